package bitstream

import (
	"bytes"
	"slices"

	"github.com/bluenviron/mediacommon/v2/pkg/bits"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"

	"github.com/vedette/vedette/ingest"
)

// set is one parameter set. A stream may have several of a kind, which pictures choose by number (sections 7.4.1.2.1 of H.264,
// 7.4.2.4.2 of H.265).
type set struct {
	kind   int // its place in the order they are sent
	id     int
	data   []byte
	inline bool // the unit under way brought it
}

// maxSets bounds what is kept of one kind, in bytes: all that the standards number, of the usual sizes.
const maxSets = 64 << 10

// first returns the set in use of a kind; nil: none is known.
func (a *Assembler) first(kind int) []byte {
	for _, s := range a.sets {
		if s.kind == kind {
			return s.data
		}
	}
	return nil
}

// keep notes a set in place of the one of its kind and number, and reports whether it is another.
func (a *Assembler) keep(kind int, u []byte) bool {
	size := len(u)
	for i, s := range a.sets {
		if s.kind != kind {
			continue
		}
		if bytes.Equal(s.data, u) {
			a.sets[i].inline = true
			return false
		}
		size += len(s.data)
	}
	id := a.number(kind, u)
	a.sets = slices.DeleteFunc(a.sets, func(s set) bool { return s.kind == kind && (s.id == id || size > maxSets) })
	at := slices.IndexFunc(a.sets, func(s set) bool { return s.kind >= kind })
	if at < 0 {
		at = len(a.sets)
	}
	a.sets = slices.Insert(a.sets, at, set{kind, id, bytes.Clone(u), true})
	return true
}

// number returns a set's own; -1: it cannot be read.
func (a *Assembler) number(kind int, u []byte) int {
	switch {
	case a.codec == ingest.H265 && kind == 0: // the first four bits
		if len(u) > 2 {
			return int(u[2] >> 4)
		}
	case a.codec == ingest.H265 && kind == 1:
		var s h265.SPS
		if s.Unmarshal(u) == nil {
			return int(s.ID)
		}
	case a.codec == ingest.H265:
		if n := golomb(u, 2, 0, 1); n != nil {
			return n[0]
		}
	case kind == 0: // behind profile, constraints and level
		if n := golomb(u, 4, 0, 1); n != nil {
			return n[0]
		}
	default:
		if n := golomb(u, 1, 0, 1); n != nil {
			return n[0]
		}
	}
	return -1
}

// choose puts those sets first that a keyframe's slice chooses, and reports whether they are others than before. Where there
// is one of each kind there is nothing to choose.
func (a *Assembler) choose(slice []byte) bool {
	if len(a.sets) <= setCount(a.codec) {
		return false
	}
	var n []int
	kind := 1 // of a PPS
	if a.codec == ingest.H264 {
		if n = golomb(slice, 1, 0, 3); n != nil { // first_mb_in_slice, slice_type
			n = n[2:]
		}
	} else {
		kind = 2
		n = golomb(slice, 2, 2, 1) // first_slice_segment_in_pic_flag, no_output_of_prior_pics_flag
	}
	changed := false
	for ; n != nil && kind >= 0; kind-- {
		i := slices.IndexFunc(a.sets, func(s set) bool { return s.kind == kind && s.id == n[0] })
		if i < 0 {
			break
		}
		chosen := a.sets[i]
		first := slices.IndexFunc(a.sets, func(s set) bool { return s.kind == kind })
		if i != first {
			changed = true
			a.sets = slices.Insert(slices.Delete(a.sets, i, i+1), first, chosen)
		}
		n = a.refers(chosen)
	}
	return changed
}

// refers returns the number of the set that a set refers to; nil: none, or it cannot be read.
func (a *Assembler) refers(s set) []int {
	switch {
	case a.codec == ingest.H265 && s.kind == 1 && len(s.data) > 2:
		return []int{int(s.data[2] >> 4)}
	case a.codec == ingest.H265 && s.kind == 2:
		if n := golomb(s.data, 2, 0, 2); n != nil {
			return n[1:]
		}
	case a.codec == ingest.H264 && s.kind == 1:
		if n := golomb(s.data, 1, 0, 2); n != nil {
			return n[1:]
		}
	}
	return nil
}

// golomb reads numbers (ue(v)) from a NAL unit, behind so many bytes and bits; nil: they cannot be read.
func golomb(u []byte, skip, bit, count int) []int {
	if len(u) <= skip {
		return nil
	}
	b := h264.EmulationPreventionRemove(u[skip:min(len(u), skip+16)])
	n := make([]int, count)
	for i := range n {
		v, err := bits.ReadGolombUnsigned(b, &bit)
		if err != nil {
			return nil
		}
		n[i] = int(v)
	}
	return n
}
