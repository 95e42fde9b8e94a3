package fmp4

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
)

// sample is a picture with its place in the MP4, in ticks from 0.
type sample struct {
	dts, pts, duration int64
	key                bool
	payload            []byte
}

// timeline gives pictures their times: those of decoding found out, without holes, from 0.
type timeline struct {
	codec    Codec
	decoding interface {
		Extract(au [][]byte, pts int64) (int64, error)
	}
	guess  guess
	begun  bool
	moved  bool  // the next unit's time has another origin
	shift  int64 // from the stream's time to the MP4's
	source int64 // the last unit's decoding time in the stream
	last   int64 // and in the MP4
	step   int64 // between the last two
	live   bool  // pictures go out before the next one's time is known
	lasts  int64 // how long the last picture is said to last, when live
}

// longest is the longest time between two pictures that is taken for real: slower streams exist, but then the
// camera was not there.
const longest = 10 * Rate

// stretch is by how much a picture may come later than the one before was said to last, and still belong to it: after more than
// twice its duration a browser takes decoding for broken off and shows nothing until the next keyframe (Media Source Extensions,
// coded frame processing).
func stretch(lasts int64) int64 { return 2*lasts - Rate/1000 }

func (t *timeline) place(u Unit) (sample, error) {
	units := u.Units
	if t.codec == AV1 {
		var err error
		if units, err = obus(units); err != nil {
			return sample{}, err
		}
	}
	if !t.begun && !u.Key {
		return sample{}, fmt.Errorf("an MP4 begins with a keyframe")
	}
	if t.decoding == nil || u.Gap && u.Key {
		t.decoding, t.guess = t.extractor(), guess{}
		if t.codec == H264 && u.Key {
			t.guess = guessOf(units)
		}
	}
	dts := u.Ticks
	if t.decoding != nil {
		// A stream that was damaged gives no decoding time: the picture is decoded when it is shown, or at once.
		if d, err := t.decoding.Extract(units, u.Ticks); err == nil {
			dts = d
		} else if t.guess.known {
			dts = t.guess.next(u.Ticks, max(t.step, 1))
		} else if t.begun && !t.moved {
			dts = min(u.Ticks, t.source+max(t.step, 1))
		}
	}
	step := dts - t.source
	switch {
	case !t.begun:
		t.begun, t.shift, t.step = true, -dts, Rate/25
	case step <= 0 || step > longest || u.Gap || t.moved:
		t.shift = t.last + t.step - dts
	default:
		if t.live {
			t.shift -= max(step-stretch(t.lasts), 0)
		}
		t.step = step
	}
	// Pictures that come unevenly are said to last as long as the longest of late.
	t.lasts = max(t.step, t.lasts-t.lasts/8, Rate/100)
	t.source, t.last, t.moved = dts, dts+t.shift, false
	s := sample{dts: t.last, pts: max(u.Ticks, dts) + t.shift, duration: t.step, key: u.Key}
	if t.live {
		s.duration = t.lasts
	}
	var err error
	if t.codec == AV1 {
		s.payload = bytes.Join(units, nil)
	} else {
		s.payload, err = h264.AVCC(units).Marshal()
	}
	if err != nil {
		return sample{}, fmt.Errorf("pack a picture: %w", err)
	}
	return s, nil
}

func (t *timeline) extractor() interface {
	Extract(au [][]byte, pts int64) (int64, error)
} {
	switch t.codec {
	case H264:
		d := &h264.DTSExtractor{}
		d.Initialize()
		return d
	case H265:
		d := &h265.DTSExtractor{}
		d.Initialize()
		return d
	default:
		return nil
	}
}

// guess finds decoding times of H.264 that begins at a recovery point, where the extractor waits for a keyframe in the
// strict sense: every picture is decoded when the one is shown that has as many shown after it as may be reordered.
type guess struct {
	known   bool
	reorder int
	shown   []int64 // the latest times of presentation, in order
	begun   bool
	last    int64 // decoding time
}

// guessOf looks how much a keyframe's parameter sets let pictures be reordered; a keyframe in the strict sense needs no guess.
func guessOf(units [][]byte) guess {
	g := guess{known: true, reorder: 2}
	for _, u := range units {
		switch {
		case len(u) == 0:
		case u[0]&0x1F == 5:
			return guess{}
		case u[0]&0x1F == 7:
			var sps h264.SPS
			switch {
			case sps.Unmarshal(u) != nil:
			case sps.ProfileIdc == 66:
				g.reorder = 0
			case sps.VUI != nil && sps.VUI.BitstreamRestriction != nil:
				g.reorder = int(min(sps.VUI.BitstreamRestriction.MaxNumReorderFrames, 16))
			}
		}
	}
	return g
}

func (g *guess) next(pts, step int64) int64 {
	i, _ := slices.BinarySearch(g.shown, pts)
	g.shown = slices.Insert(g.shown, i, pts)
	dts := g.shown[0]
	if early := g.reorder - len(g.shown) + 1; early > 0 { // there are not so many yet
		dts -= int64(early) * step
	} else {
		g.shown = g.shown[1:]
	}
	if g.begun { // what is shown before the first would have to be decoded before it
		dts = max(dts, g.last+1)
	}
	g.begun, g.last = true, dts
	return dts
}
