package jpegs

import (
	"bufio"
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"slices"
	"testing"
	"testing/iotest"
)

// coded is a real JPEG with a smaller one inside, as cameras with thumbnails send it.
func coded(tb testing.TB) []byte {
	tb.Helper()
	encode := func(side int) []byte {
		img := image.NewGray(image.Rect(0, 0, side, side))
		for i := range img.Pix {
			img.Set(i%side, i/side, color.Gray{uint8(i * i)})
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			tb.Fatal(err)
		}
		return b.Bytes()
	}
	whole, small := encode(64), encode(8)
	n := len(small) + 2
	return slices.Concat(whole[:2], []byte{0xFF, 0xE1, byte(n >> 8), byte(n)}, small, whole[2:])
}

func scan(r io.Reader) (pictures [][]byte, broken uint64, err error) {
	s := scanner{r: bufio.NewReader(r), limit: 256 << 10}
	for {
		picture, n, err := s.next()
		broken += n
		if err != nil {
			return pictures, broken, err
		}
		pictures = append(pictures, picture)
	}
}

func TestPicturesAreFoundWhateverStandsBetweenThem(t *testing.T) {
	p := coded(t)
	if _, err := jpeg.Decode(bytes.NewReader(p)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		in     [][]byte
		want   int
		broken uint64
	}{
		{"nothing", [][]byte{p, p, p}, 3, 0},
		{"parts", [][]byte{[]byte("\r\n--x\r\nContent-Length: 7\r\n\r\n"), p, []byte("\r\n--x\r\n\r\n"), p}, 2, 0},
		{"bytes that mean nothing", [][]byte{{0xFF, 0, 0xFF}, p, {0xFF, 0xD8, 0}, p, {0xFF}, p}, 3, 0},
		{"pictures cut short", [][]byte{p[:len(p)-9], p, p[:len(p)-20], []byte("--x"), p, p[:len(p)-2]}, 2, 3},
		{"a segment of no length", [][]byte{{0xFF, 0xD8, 0xFF, 0xE0, 0, 1}, p}, 1, 1},
		{"0xFF before a marker", [][]byte{slices.Concat(p[:2], []byte{0xFF, 0xFF}, p[2:])}, 1, 0},
	} {
		in := slices.Concat(c.in...)
		for _, r := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in))} {
			pictures, broken, err := scan(r)
			if len(pictures) != c.want || broken != c.broken || !errors.Is(err, io.EOF) {
				t.Errorf("%s: %d pictures, %d broken, %v", c.name, len(pictures), broken, err)
			}
			for i, got := range pictures {
				if _, err := jpeg.Decode(bytes.NewReader(got)); err != nil {
					t.Errorf("%s: picture %d: %v", c.name, i, err)
				}
			}
		}
	}
}

// endless gives the same bytes over and over.
type endless struct{ of []byte }

func (e endless) Read(b []byte) (int, error) {
	if len(b) < len(e.of) {
		return copy(b, e.of), nil
	}
	n := 0
	for n+len(e.of) <= len(b) {
		n += copy(b[n:], e.of)
	}
	return n, nil
}

func TestWhatNeverEndsIsGivenUp(t *testing.T) {
	begun := coded(t)[:300]
	for name, r := range map[string]io.Reader{
		"no picture":             endless{[]byte{7}},
		"a picture without end":  io.MultiReader(bytes.NewReader(begun), endless{[]byte{7}}),
		"segments without end":   io.MultiReader(bytes.NewReader(begun[:2]), endless{[]byte{0xFF, 0xE0, 0, 2}}),
		"markers that are none":  endless{[]byte{0xFF, 0}},
		"fill bytes without end": io.MultiReader(bytes.NewReader(begun[:2]), endless{[]byte{0xFF}}),
	} {
		if pictures, _, err := scan(r); !errors.Is(err, errTooLarge) || len(pictures) > 0 {
			t.Errorf("%s: %d pictures, %v", name, len(pictures), err)
		}
	}
}

func FuzzScanner(f *testing.F) {
	p := coded(f)
	f.Add([]byte("--x\r\n\r\n"))
	f.Add([]byte{0xFF, 0xD8, 0xFF, 0xDA, 0, 2, 1, 0xFF, 0, 2, 0xFF, 0xD3, 3, 0xFF, 0xD9})
	f.Add(p[:200])
	f.Fuzz(func(t *testing.T, b []byte) {
		pictures, _, err := scan(bytes.NewReader(b))
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("ends with %v", err)
		}
		rest := b
		for _, got := range pictures {
			i := bytes.Index(rest, got)
			if i < 0 || !bytes.HasPrefix(got, []byte{0xFF, 0xD8}) || !bytes.HasSuffix(got, []byte{0xFF, 0xD9}) {
				t.Fatalf("%x is no picture of %x", got, rest)
			}
			rest = rest[i+len(got):]
		}
		// What cannot be the beginning of a picture hides none behind it.
		harmless := bytes.ReplaceAll(b, []byte{0xFF}, []byte{0xFE})
		pictures, broken, _ := scan(bytes.NewReader(slices.Concat(harmless, p, harmless, p)))
		if len(pictures) != 2 || broken > 0 || !bytes.Equal(pictures[0], p) || !bytes.Equal(pictures[1], p) {
			t.Errorf("%d pictures, %d broken", len(pictures), broken)
		}
	})
}
