package fmp4

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Writer writes the pictures of one stream as a file, a fragment for each group of pictures. Not safe for concurrent
// use.
type Writer struct {
	w       io.Writer
	mux     *Muxer
	codec   Codec
	waiting []sample
	capture time.Time // of the first that waits
}

// NewWriter writes nothing before the first picture.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Add writes a picture; units before the first keyframe are left out. ErrFormatChanged leaves the file as it is, to be
// closed.
func (w *Writer) Add(codec Codec, u Unit) error {
	if w.mux == nil && !u.Key {
		return nil
	}
	if w.mux == nil {
		mux, err := NewMuxer(codec, u)
		if err != nil {
			return err
		}
		w.mux, w.codec = mux, codec
		if _, err := w.w.Write(mux.Init()); err != nil {
			return fmt.Errorf("write the header of an MP4: %w", err)
		}
	}
	if codec != w.codec || u.Key && !w.mux.Continues(codec, u) {
		return ErrFormatChanged
	}
	s, err := w.mux.line.place(u)
	if err != nil {
		return err
	}
	if n := len(w.waiting); n > 0 {
		w.waiting[n-1].duration = s.dts - w.waiting[n-1].dts
		if u.Key {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if len(w.waiting) == 0 {
		w.capture = u.Capture
	}
	w.waiting = append(w.waiting, s)
	return nil
}

func (w *Writer) flush() error {
	if len(w.waiting) == 0 {
		return nil
	}
	b, err := w.mux.fragment(w.waiting, w.capture)
	if err != nil {
		return err
	}
	w.waiting = w.waiting[:0]
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("write a fragment of an MP4: %w", err)
	}
	return nil
}

// ErrEmpty says that there was no keyframe, and so no file.
var ErrEmpty = errors.New("no keyframe came: there is nothing to write")

// Close writes what waits; the writer below stays open.
func (w *Writer) Close() error {
	if w.mux == nil {
		return ErrEmpty
	}
	return w.flush()
}
