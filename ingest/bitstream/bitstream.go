// Package bitstream reads as much of a coded stream as is needed to hand it on: where units begin,
// which are keyframes, and what the parameter sets say of the picture.
package bitstream

import (
	"bytes"

	"github.com/vedette/vedette/ingest"
)

// Assembler joins the units of one access unit and follows the stream's parameter sets. Not safe
// for concurrent use.
type Assembler struct {
	codec   ingest.Codec
	sets    []set // by kind, in the order they are sent: (VPS,) SPS, PPS; of each kind the one in use first
	current ingest.Stream
	// recovery is what the last unit said (see Recovery).
	recovery int
}

// NewAssembler begins with the parameter sets known from elsewhere (the SDP), in any order; others are awaited in the
// stream.
func NewAssembler(codec ingest.Codec, sets ...[]byte) Assembler {
	a := Assembler{codec: codec, current: ingest.Stream{Codec: codec}}
	if setCount(codec) == 0 {
		return a
	}
	for _, u := range sets {
		if kind, n := a.kind(u); kind == unitSet {
			a.keep(n, u)
		}
	}
	a.describe()
	return a
}

func setCount(c ingest.Codec) int {
	switch c {
	case ingest.H264:
		return 2
	case ingest.H265:
		return 3
	default:
		return 0
	}
}

// Stream returns what is known of the stream.
func (a *Assembler) Stream() ingest.Stream { return a.current }

// Recovery is how many units after the last one that Assemble called a keyframe pictures are right (ingest.AccessUnit).
func (a *Assembler) Recovery() int { return a.recovery }

// Assemble joins one access unit's units (NAL units without start codes, OBUs with sizes, or one
// JPEG) in fresh memory. Keyframes get the parameter sets they came without. changed says that the
// picture's size or the codec's profile is another than before. Units of no picture give no data.
func (a *Assembler) Assemble(units [][]byte) (data []byte, key, changed bool) {
	switch a.codec {
	case ingest.MJPEG:
		return bytes.Join(units, nil), true, false
	case ingest.AV1:
		return joinOBUs(units), hasSequenceHeader(units), false
	default:
	}
	size, picture := 0, false
	fresh, recovers, whole := false, false, false
	a.recovery = 0
	for i := range a.sets {
		a.sets[i].inline = false
	}
	var slice []byte
	for _, u := range units {
		switch kind, n := a.kind(u); kind {
		case unitSet:
			if a.keep(n, u) {
				fresh = true
			}
		case unitKey:
			picture, key, whole = true, true, true
			slice = u
		case unitPicture:
			slice = u
			// Without a keyframe, decoding can begin where the encoder says so.
			key = key || recovers && !picture && (a.recovery > 0 || intra(u))
			picture = true
		case unitNote:
			if n, ok := recoveryPoint(u); ok {
				a.recovery, recovers = n, true
			}
		case unitDelimiter:
			continue
		default:
		}
		size += 4 + len(u)
	}
	if !key || whole {
		a.recovery = 0
	}
	if key && a.choose(slice) {
		fresh = true
	}
	if fresh {
		before := a.current
		a.describe()
		changed = before.Width != 0 && before != a.current
	}
	if !picture {
		return nil, false, changed
	}
	if key {
		for _, s := range a.sets {
			if !s.inline {
				size += 4 + len(s.data)
			}
		}
	}
	data = make([]byte, 0, size)
	if key {
		for _, s := range a.sets {
			if !s.inline {
				data = appendUnit(data, s.data)
			}
		}
	}
	for _, u := range units {
		if kind, _ := a.kind(u); kind != unitDelimiter {
			data = appendUnit(data, u)
		}
	}
	return data, key, changed
}

func appendUnit(b, u []byte) []byte {
	return append(append(b, 0, 0, 0, 1), u...)
}

type unitKind int

const (
	unitOther unitKind = iota
	unitPicture
	unitKey
	unitSet
	unitNote      // supplemental information of H.264
	unitDelimiter // says nothing a reader needs
)

// kind classifies a NAL unit; for parameter sets also which.
func (a *Assembler) kind(u []byte) (kind unitKind, set int) {
	if len(u) == 0 {
		return unitDelimiter, 0
	}
	if a.codec == ingest.H264 {
		// Table 7-1 of H.264.
		switch t := u[0] & 0x1F; {
		case t == 5:
			return unitKey, 0
		case t >= 1 && t <= 4:
			return unitPicture, 0
		case t == 6:
			return unitNote, 0
		case t == 7:
			return unitSet, 0
		case t == 8:
			return unitSet, 1
		case t == 9 || t == 12:
			return unitDelimiter, 0
		}
		return unitOther, 0
	}
	// Table 7-1 of H.265.
	switch t := u[0] >> 1 & 0x3F; {
	case t >= 16 && t <= 21:
		return unitKey, 0
	case t <= 9:
		return unitPicture, 0
	case t >= 32 && t <= 34:
		return unitSet, int(t - 32)
	case t == 35 || t == 38:
		return unitDelimiter, 0
	}
	return unitOther, 0
}

// Begins reports whether units begin as a whole access unit does when the encoder marks it: with
// a delimiter or a parameter set. False means that one cannot tell.
func (a *Assembler) Begins(units [][]byte) bool {
	if len(units) == 0 || setCount(a.codec) == 0 {
		return len(units) > 0
	}
	kind, _ := a.kind(units[0])
	return kind == unitSet || kind == unitDelimiter
}

// Continues reports whether units go on with a picture that units before them began: they begin with a slice that is not a
// picture's first (section 7.3.3 of H.264, 7.3.6.1 of H.265).
func (a *Assembler) Continues(units [][]byte) bool {
	for _, u := range units {
		kind, _ := a.kind(u)
		if kind != unitPicture && kind != unitKey {
			continue
		}
		first := 1 // byte with the flag that it is the first, or with the number of its first block, whose 0 is the bit 1
		if a.codec == ingest.H265 {
			first = 2
		}
		return len(u) > first && u[first]&0x80 == 0
	}
	return false
}

// ParameterSets returns the parameter sets in use, (VPS,) SPS, PPS, without start codes; nil ones are not known. They are
// never written again.
func (a *Assembler) ParameterSets() [][]byte {
	n := setCount(a.codec)
	if n == 0 {
		return nil
	}
	sets := make([][]byte, n)
	for kind := range sets {
		sets[kind] = a.first(kind)
	}
	return sets
}

// hasSequenceHeader: AV1 key pictures of a stream one can join begin with a sequence header OBU (type 1).
func hasSequenceHeader(obus [][]byte) bool {
	for _, o := range obus {
		if len(o) > 0 && o[0]>>3&0xF == 1 {
			return true
		}
	}
	return false
}

// joinOBUs gives every OBU the size that RTP left out (section 5.3 of AV1), behind a temporal delimiter.
func joinOBUs(obus [][]byte) []byte {
	data := []byte{2<<3 | 2, 0}
	for _, o := range obus {
		if len(o) == 0 || o[0]>>3&0xF == 2 {
			continue // a delimiter of its own
		}
		if o[0]&2 != 0 {
			data = append(data, o...)
			continue
		}
		head := 1
		if o[0]&4 != 0 && len(o) > 1 { // extension
			head = 2
		}
		data = append(data, o[0]|2)
		data = append(data, o[1:head]...)
		for n := uint(len(o) - head); ; n >>= 7 {
			if n < 0x80 {
				data = append(data, byte(n))
				break
			}
			data = append(data, byte(n)|0x80)
		}
		data = append(data, o[head:]...)
	}
	return data
}

// Units cuts data as Assemble joined it, or as anybody wrote Annex B, into NAL units without start
// codes, which share its memory.
func Units(data []byte) [][]byte {
	var units [][]byte
	for rest := data; ; {
		i := bytes.Index(rest, []byte{0, 0, 1})
		if i < 0 {
			return units
		}
		rest = rest[i+3:]
		end := bytes.Index(rest, []byte{0, 0, 1})
		if end < 0 {
			end = len(rest)
		}
		// Zero bytes before a start code belong to it.
		if u := bytes.TrimRight(rest[:end], "\x00"); len(u) > 0 {
			units = append(units, u)
		}
	}
}
