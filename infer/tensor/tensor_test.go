package tensor_test

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/race"
)

func TestP9EveryTypeHasAName(t *testing.T) {
	for _, name := range []string{
		"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16",
	} {
		d, err := tensor.Parse(name)
		if err != nil || d.String() != name {
			t.Errorf("%s: %v %v", name, d, err)
		}
	}
	for _, name := range []string{"", "fp32", "STRING", "INVALID"} {
		if d, err := tensor.Parse(name); err == nil {
			t.Errorf("%q was read as %v", name, d)
		}
	}
}

func TestElementCountNeverOverflows(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape []int64
		want  int64 // -1: an error
	}{
		{"a scalar", nil, 1},
		{"a picture", []int64{3, 416, 416}, 519168},
		{"no rows", []int64{0, 6}, 0},
		{"a variable size", []int64{-1, 6}, -1},
		{"a product beyond 63 bits", []int64{1 << 32, 1 << 31}, -1},
		{"a product of exactly 63 bits", []int64{1 << 31, 1 << 31}, 1 << 62},
		{"an overflow that zero hides", []int64{1 << 62, 1 << 62, 0}, -1},
		{"zero before an overflow", []int64{0, math.MaxInt64, math.MaxInt64}, -1},
	} {
		got, err := tensor.ElementCount(c.shape)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%s: %d %v", c.name, got, err)
		}
	}
	if _, err := tensor.ByteSize(tensor.FP64, []int64{1 << 61}); err == nil {
		t.Error("2^61 doubles were counted in bytes")
	}
	if _, err := tensor.ByteSize(tensor.Bytes, []int64{1}); err == nil {
		t.Error("strings were given a size")
	}
}

func TestViewsShareAlignedMemoryAndCopyTheRest(t *testing.T) {
	values := []float32{1, -2.5, float32(math.Inf(1))}
	data := tensor.AsBytes(values)
	if got := tensor.Float32s(data); !slices.Equal(got, values) || unsafe.SliceData(got) != unsafe.SliceData(values) {
		t.Errorf("aligned view %v is a copy or wrong", got)
	}
	odd := append(make([]byte, 1, 13), data...)[1:]
	if got := tensor.Float32s(odd); !slices.Equal(got, values) {
		t.Errorf("unaligned view %v", got)
	}
	if got := tensor.View[int64](data[:7]); got != nil {
		t.Errorf("less than an element is %v", got)
	}
}

func TestP9HalvesSurviveTheWayThere(t *testing.T) {
	for h := range 1 << 16 {
		f := tensor.FP16ToFloat32(uint16(h))
		if math.IsNaN(float64(f)) {
			if !math.IsNaN(float64(tensor.FP16ToFloat32(tensor.Float32ToFP16(f)))) {
				t.Fatalf("NaN %#04x became a number", h)
			}
		} else if back := tensor.Float32ToFP16(f); back != uint16(h) {
			t.Fatalf("%#04x is %v and back %#04x", h, f, back)
		}
		b := tensor.BF16ToFloat32(uint16(h))
		if math.IsNaN(float64(b)) {
			if !math.IsNaN(float64(tensor.BF16ToFloat32(tensor.Float32ToBF16(b)))) {
				t.Fatalf("bfloat NaN %#04x became a number", h)
			}
		} else if back := tensor.Float32ToBF16(b); back != uint16(h) {
			t.Fatalf("bfloat %#04x is %v and back %#04x", h, b, back)
		}
	}
	for _, c := range []struct {
		f    float32
		want uint16
	}{{65504, 0x7bff}, {65519, 0x7bff}, {65520, 0x7c00}, {1e9, 0x7c00}, {-1e9, 0xfc00}, {1 + 1.0/2048, 0x3c00}, {1 + 3.0/2048, 0x3c02}, {1e-9, 0}, {6e-8, 1}} {
		if got := tensor.Float32ToFP16(c.f); got != c.want {
			t.Errorf("%v rounds to %#04x, want %#04x", c.f, got, c.want)
		}
	}
}

func TestPoolLendsAlignedBuffersAgain(t *testing.T) {
	var p tensor.Pool
	for _, n := range []int{0, 1, 255, 256, 257, 1 << 20, 6 << 20} {
		b := p.Get(n)
		if len(b.Bytes) != n || n > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes)))%8 != 0 {
			t.Errorf("buffer of %d has %d bytes at %p", n, len(b.Bytes), b.Bytes)
		}
		b.Release()
	}
	if p.Lent() != 0 {
		t.Errorf("%d buffers are lent", p.Lent())
	}
	defer func() {
		if recover() == nil {
			t.Error("a second release went unnoticed")
		}
	}()
	b := p.Get(10)
	b.Release()
	b.Release()
}

func TestPoolCostsNothingOnceWarm(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's pools forget; the run without it counts")
	}
	var p tensor.Pool
	p.Get(6 << 20).Release()
	if n := testing.AllocsPerRun(100, func() { p.Get(6 << 20).Release() }); n >= 1 {
		t.Errorf("%v allocations for a buffer", n)
	}
}

func FuzzElements(f *testing.F) {
	f.Add(tensor.EncodeStrings("a", "", "long string"))
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		strings, err := tensor.DecodeStrings(data)
		n, err2 := tensor.CountElements(data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("decoding says %v, counting %v", err, err2)
		}
		if err != nil {
			return
		}
		if int64(len(strings)) != n || !bytes.Equal(tensor.EncodeStrings(strings...), data) {
			t.Fatalf("%q does not encode to what it was decoded from", strings)
		}
	})
}
