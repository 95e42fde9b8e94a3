package jpegs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxPicture bounds one JPEG, and what may come before it.
const maxPicture = 16 << 20

var errTooLarge = fmt.Errorf("%d MiB came, and no picture ended in them", maxPicture>>20)

// Second bytes of markers (ITU-T T.81, table B.1); those from TEM to RST7 that are not named stand alone or are reserved.
const (
	markTEM  = 0x01
	markRST0 = 0xD0
	markRST7 = 0xD7
	markSOI  = 0xD8
	markEOI  = 0xD9
)

// errBroken: what began like a JPEG does not go on like one.
var errBroken = errors.New("a broken JPEG")

// scanner finds the JPEGs in a stream of bytes, whatever stands between them. It has a picture when its last byte comes; who
// reads parts has it when the next one begins.
type scanner struct {
	r       *bufio.Reader
	limit   int // of bytes of one picture, and of what may come before it
	picture []byte
}

// next returns the next whole picture, which is the caller's, and how many broken ones came before it or the end.
func (s *scanner) next() (picture []byte, broken uint64, err error) {
	for ; ; broken++ {
		if err := s.begin(); err != nil {
			return nil, broken, err
		}
		err := s.rest()
		if err == nil {
			picture = s.picture
			s.picture = make([]byte, 0, len(picture)+len(picture)/8) // the next is about as large
			return picture, broken, nil
		}
		if !errors.Is(err, errBroken) {
			return nil, broken + 1, err
		}
	}
}

// begin skips to behind SOI, where another marker comes next.
func (s *scanner) begin() error {
	if len(s.picture) == 2 { // it ended the broken one
		return nil
	}
	for skipped := 0; skipped <= s.limit; {
		part, err := s.r.ReadSlice(0xFF)
		skipped += len(part)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		next, err := s.r.Peek(2)
		if err != nil {
			return err
		}
		if next[0] == markSOI && next[1] == 0xFF {
			_, err := s.r.Discard(1)
			s.picture = append(s.picture[:0], 0xFF, markSOI)
			return err
		}
	}
	return errTooLarge
}

// rest reads from behind SOI to behind EOI.
func (s *scanner) rest() error {
	for {
		mark, err := s.mark()
		switch {
		case err != nil:
			return err
		case mark == markEOI:
			return nil
		case mark == markSOI: // the one before was cut short
			s.picture = append(s.picture[:0], 0xFF, markSOI)
			return errBroken
		case mark == markTEM, mark >= markRST0 && mark <= markRST7:
			continue
		}
		// A segment, with its length in front, which counts itself.
		if err := s.read(2); err != nil {
			return err
		}
		n := len(s.picture)
		length := int(s.picture[n-2])<<8 | int(s.picture[n-1])
		if length < 2 {
			s.picture = s.picture[:0]
			return errBroken
		}
		if err := s.read(length - 2); err != nil {
			return err
		}
	}
}

// mark reads up to the next marker, with coded data before it, and returns its second byte.
func (s *scanner) mark() (byte, error) {
	for {
		part, err := s.r.ReadSlice(0xFF)
		s.picture = append(s.picture, part...)
		if len(s.picture) > s.limit {
			return 0, errTooLarge
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		b := byte(0xFF)
		for err == nil && b == 0xFF { // any number of them may stand before a marker
			err = s.read(1)
			b = s.picture[len(s.picture)-1]
		}
		if err != nil || b != 0 { // in coded data, 0xFF is followed by 0
			return b, err
		}
	}
}

// read adds n bytes to the picture.
func (s *scanner) read(n int) error {
	begin := len(s.picture)
	if begin+n > s.limit {
		return errTooLarge
	}
	s.picture = slices.Grow(s.picture, n)[:begin+n]
	_, err := io.ReadFull(s.r, s.picture[begin:])
	return err
}
