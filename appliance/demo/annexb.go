package demo

import (
	"bytes"
	"errors"
	"fmt"
)

// picture is one access unit: its NAL units without start codes, and without
// delimiters, which RTP does not carry.
type picture struct {
	nalus [][]byte
	idr   bool
}

// The NAL unit types that tell pictures apart.
const (
	nalSlice     = 1
	nalIDR       = 5
	nalSEI       = 6
	nalSPS       = 7
	nalPPS       = 8
	nalDelimiter = 9
)

// split cuts an Annex B stream into pictures and finds its first parameter
// sets. The slices point into clip.
func split(clip []byte) (out []picture, sps, pps []byte, err error) {
	var cur picture
	coded := false // cur holds a slice already
	flush := func() {
		if coded {
			out = append(out, cur)
		}
		cur, coded = picture{}, false
	}
	for i, n := range units(clip) {
		if n[0]&0x80 != 0 {
			return nil, nil, nil, fmt.Errorf("NAL unit %d has its forbidden bit set: not an H.264 stream", i)
		}
		switch kind := n[0] & 0x1f; kind {
		case nalSlice, nalIDR:
			// first_mb_in_slice is 0, one set bit, in a picture's first slice.
			if coded && len(n) > 1 && n[1]&0x80 != 0 {
				flush()
			}
			coded = true
			cur.idr = cur.idr || kind == nalIDR
		case nalDelimiter:
			flush()
			continue
		case nalSEI, nalSPS, nalPPS:
			if coded {
				flush()
			}
			if kind == nalSPS && sps == nil {
				sps = n
			}
			if kind == nalPPS && pps == nil {
				pps = n
			}
		}
		cur.nalus = append(cur.nalus, n)
	}
	flush()
	switch {
	case len(out) == 0:
		return nil, nil, nil, errors.New("no coded picture in it: want H.264 in Annex B form")
	case sps == nil || pps == nil:
		return nil, nil, nil, errors.New("no parameter sets in it")
	case !out[0].idr:
		return nil, nil, nil, errors.New("the first picture is no IDR: the loop would begin in the middle")
	}
	return out, sps, pps, nil
}

// units cuts an Annex B stream at its start codes; empty units are left out.
func units(b []byte) [][]byte {
	var out [][]byte
	code := []byte{0, 0, 1}
	i := bytes.Index(b, code)
	if i < 0 {
		return nil
	}
	for b = b[i+3:]; ; b = b[i+3:] {
		i = bytes.Index(b, code)
		n := b
		if i >= 0 {
			n = b[:i]
		}
		// The zero before a four-byte start code, and trailing zeros, are no part of a unit.
		if n = bytes.TrimRight(n, "\x00"); len(n) > 0 {
			out = append(out, n)
		}
		if i < 0 {
			return out
		}
	}
}
