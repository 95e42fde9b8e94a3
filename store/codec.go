package store

import (
	"encoding/binary"
	"errors"
	"math"
)

// A block holds frames of one sequence within one UTC minute:
//
//	version (1) · frames
//	each frame: Δcapture µs · receive - capture µs · Δnumber · objects
//	each object: tag · [local · class when new] · Δscore · Δx1 · Δy1 · Δwidth · Δheight
//
// Every number is a varint, signed ones zigzag. An even tag says that the object is the same track and class as one
// in the frame before it (its place there, relative to the place after the last one used, is in the tag's upper bits),
// and the values are differences from that; tag 1 says that it is new, and the values are whole. So a steady object
// takes about eight bytes, and decoding needs no look-up.
const (
	blockVersion = 1
	// maxObjects bounds the objects of one frame, and so the quadratic search for the frame before.
	maxObjects = 4096
	// blockObjects is where a block is cut, so that one page never decodes more than this for a start.
	blockObjects = 8192
	scoreScale   = 1000
	boxScale     = 65535
)

var errBlock = errors.New("detection block is damaged")

// objectRec is an object as it is stored.
type objectRec struct {
	local, class int64
	score        int32 // thousandths
	box          [4]uint16
}

// frameRec is a frame as it is stored; times are microseconds.
type frameRec struct {
	capture, receive, number int64
	objects                  []objectRec
}

func quantise(v float32) uint16 {
	return uint16(min(max(float64(v), 0), 1)*boxScale + 0.5)
}

func packBox(b Box) [4]uint16 {
	return [4]uint16{quantise(b.X1), quantise(b.Y1), quantise(b.X2), quantise(b.Y2)}
}

func unpackBox(b [4]uint16) Box {
	return Box{float32(b[0]) / boxScale, float32(b[1]) / boxScale, float32(b[2]) / boxScale, float32(b[3]) / boxScale}
}

// boxInt and intBox carry a box in one SQLite integer.
func boxInt(b [4]uint16) int64 {
	return int64(uint64(b[0])<<48 | uint64(b[1])<<32 | uint64(b[2])<<16 | uint64(b[3]))
}

func intBox(v int64) [4]uint16 {
	u := uint64(v)
	return [4]uint16{uint16(u >> 48), uint16(u >> 32), uint16(u >> 16), uint16(u)}
}

func packScore(v float32) int32 { return int32(min(max(float64(v), 0), 1)*scoreScale + 0.5) }

func unpackScore(v int32) float32 { return float32(v) / scoreScale }

// appendBlock encodes frames; base is the capture time that the first difference is taken from.
func appendBlock(dst []byte, base int64, frames []frameRec) []byte {
	dst = append(dst, blockVersion)
	dst = binary.AppendUvarint(dst, uint64(len(frames)))
	var before []objectRec
	time, number := base, int64(0)
	for i := range frames {
		f := &frames[i]
		dst = binary.AppendVarint(dst, f.capture-time)
		dst = binary.AppendVarint(dst, f.receive-f.capture)
		dst = binary.AppendVarint(dst, f.number-number)
		dst = binary.AppendUvarint(dst, uint64(len(f.objects)))
		time, number = f.capture, f.number
		hint := 0
		for j := range f.objects {
			o := &f.objects[j]
			var ref objectRec
			if at := findObject(before, o, hint); at >= 0 {
				dst = binary.AppendUvarint(dst, zigzag(int64(at-hint))<<1)
				ref, hint = before[at], at+1
			} else {
				dst = append(dst, 1)
				dst = binary.AppendVarint(dst, o.local)
				dst = binary.AppendVarint(dst, o.class)
			}
			dst = binary.AppendVarint(dst, int64(o.score-ref.score))
			for k, v := range spans(o.box) {
				dst = binary.AppendVarint(dst, int64(v-spans(ref.box)[k]))
			}
		}
		before = f.objects
	}
	return dst
}

// spans turns corners into corner and size: while a thing moves, its size hardly changes.
func spans(b [4]uint16) [4]int32 {
	x, y := int32(b[0]), int32(b[1])
	return [4]int32{x, y, int32(b[2]) - x, int32(b[3]) - y}
}

func findObject(before []objectRec, o *objectRec, hint int) int {
	if o.local == 0 {
		return -1
	}
	for i := range before {
		at := i + hint
		if at >= len(before) {
			at -= len(before)
		}
		if before[at].local == o.local && before[at].class == o.class {
			return at
		}
	}
	return -1
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// blockReader reads numbers until one is bad, and then only zeros.
type blockReader struct {
	data []byte
	bad  bool
}

func (r *blockReader) uvarint() uint64 {
	if len(r.data) > 0 && r.data[0] < 0x80 {
		v := r.data[0]
		r.data = r.data[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *blockReader) varint() int64 { return unzigzag(r.uvarint()) }

// decodeBlock calls visit with each frame, which is reused for the next but one. It stops early when visit says false.
func decodeBlock(data []byte, base int64, visit func(*frameRec) bool) error {
	if len(data) == 0 || data[0] != blockVersion {
		return errBlock
	}
	r := &blockReader{data: data[1:]}
	count := r.uvarint()
	if count > uint64(len(data)) {
		return errBlock
	}
	frames := [2]frameRec{{capture: base}, {capture: base}}
	for i := range count {
		f, before := &frames[i&1], &frames[i&1^1]
		f.capture = before.capture + r.varint()
		f.receive = f.capture + r.varint()
		f.number = before.number + r.varint()
		n := r.uvarint()
		if r.bad || n > maxObjects || n > uint64(len(r.data)) {
			return errBlock
		}
		f.objects = f.objects[:0]
		hint := int64(0)
		for range n {
			var o objectRec
			switch tag := r.uvarint(); {
			case tag&1 == 0:
				at := hint + unzigzag(tag>>1)
				if at < 0 || at >= int64(len(before.objects)) {
					return errBlock
				}
				o, hint = before.objects[at], at+1
			case tag == 1:
				o.local, o.class = r.varint(), r.varint()
			default:
				return errBlock
			}
			if !r.values(&o) {
				return errBlock
			}
			f.objects = append(f.objects, o)
		}
		if !visit(f) {
			return nil
		}
	}
	if len(r.data) > 0 {
		return errBlock
	}
	return nil
}

// values adds the differences of score and box to o, which holds what they were taken from.
func (r *blockReader) values(o *objectRec) bool {
	score := int64(o.score) + r.varint()
	was := spans(o.box)
	var v [4]int64
	for k := range v {
		v[k] = int64(was[k]) + r.varint()
	}
	v[2], v[3] = v[2]+v[0], v[3]+v[1]
	for k := range v {
		if v[k] < 0 || v[k] > math.MaxUint16 {
			return false
		}
		o.box[k] = uint16(v[k])
	}
	o.score = int32(score)
	return !r.bad && score >= 0 && score <= scoreScale
}

// cloneFrame copies a frame that decodeBlock lent.
func cloneFrame(f *frameRec) frameRec {
	c := *f
	c.objects = append([]objectRec(nil), f.objects...)
	return c
}

const maxPath = 256

// appendPath encodes a path, thinned to maxPath points that keep both ends.
func appendPath(dst []byte, base int64, path []Point) []byte {
	n := min(len(path), maxPath)
	dst = append(dst, blockVersion)
	dst = binary.AppendUvarint(dst, uint64(n))
	var x, y int64
	for i := range n {
		p := path[i]
		if n < len(path) {
			p = path[i*(len(path)-1)/(n-1)]
		}
		t := p.Time.UnixMicro()
		px, py := int64(quantise(p.X)), int64(quantise(p.Y))
		dst = binary.AppendVarint(dst, t-base)
		dst = binary.AppendVarint(dst, px-x)
		dst = binary.AppendVarint(dst, py-y)
		base, x, y = t, px, py
	}
	return dst
}

func decodePath(data []byte, base int64) ([]Point, error) {
	if len(data) == 0 || data[0] != blockVersion {
		return nil, errBlock
	}
	r := &blockReader{data: data[1:]}
	n := r.uvarint()
	if n > maxPath {
		return nil, errBlock
	}
	path := make([]Point, 0, n)
	var x, y int64
	for range n {
		base += r.varint()
		x += r.varint()
		y += r.varint()
		if r.bad || x < 0 || x > boxScale || y < 0 || y > boxScale {
			return nil, errBlock
		}
		path = append(path, Point{Time: fromMicro(base), X: float32(x) / boxScale, Y: float32(y) / boxScale})
	}
	if len(r.data) > 0 {
		return nil, errBlock
	}
	return path, nil
}
