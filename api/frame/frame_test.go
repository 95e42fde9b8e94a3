package frame_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/frame"
)

// heap is a region in ordinary memory.
type heap []byte

func (m heap) Bytes() []byte { return m }
func (m heap) LoadUint64(off int) uint64 {
	return binary.LittleEndian.Uint64(m[off:])
}

func TestSizeOfATightFrame(t *testing.T) {
	for _, c := range []struct {
		name string
		f    frame.Format
		w, h int
		want int
	}{
		{"even sides", frame.I420, 640, 480, 640 * 480 * 3 / 2},
		{"odd sides round chroma up", frame.I420, 5, 3, 15 + 2*3*2},
		{"NV12 takes the same room", frame.NV12, 5, 3, 27},
		{"one pixel", frame.I420, 1, 1, 3},
		{"no width", frame.I420, 0, 10, 0},
		{"negative height", frame.I420, 10, -1, 0},
		{"too wide", frame.I420, frame.MaxSide + 1, 2, 0},
		{"unknown format", 9, 2, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f.Size(c.w, c.h); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestInfoSurvivesItsTensor(t *testing.T) {
	want := frame.Info{Format: frame.NV12, Width: 640, Height: 360, Generation: 14, Slot: 3, Flags: frame.Tainted | frame.Keyframe, Number: 77}
	v := want.Values()
	got, err := frame.ParseInfo(v[:], frame.NV12.Size(640, 360))
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestParseInfoRefusesWhatCannotBe(t *testing.T) {
	good := frame.Info{Format: frame.I420, Width: 4, Height: 4, Generation: 2}.Values()
	for _, c := range []struct {
		name  string
		at    int
		value int64
		bytes int
		say   string
	}{
		{"unknown format", frame.InfoFormat, 3, 24, "format 3"},
		{"no width", frame.InfoWidth, 0, 24, "0×4"},
		{"a huge height", frame.InfoHeight, 1 << 40, 24, "each side"},
		{"a generation in writing", frame.InfoGeneration, 3, 24, "generation 3"},
		{"a slot beyond all", frame.InfoSlot, frame.MaxSlots, 24, "slot 31"},
		{"flags beyond 32 bits", frame.InfoFlags, 1 << 32, 24, "out of range"},
		{"too few bytes of pixels", frame.InfoFormat, 1, 23, "FRAME has 23 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := good
			v[c.at] = c.value
			_, err := frame.ParseInfo(v[:], c.bytes)
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v, want it to say %q", err, c.say)
			}
		})
	}
}

func region(t *testing.T, slots, w, h int) (heap, frame.Layout) {
	t.Helper()
	l, err := frame.LayoutFor(slots, frame.I420, w, h)
	if err != nil {
		t.Fatal(err)
	}
	m := make(heap, l.Size())
	if err := frame.PutLayout(m, l); err != nil {
		t.Fatal(err)
	}
	return m, l
}

func TestAFrameIsReadAsItWasWritten(t *testing.T) {
	m, l := region(t, 5, 6, 4)
	want := frame.Header{Number: 9, CaptureNS: -5, ReceiveNS: 7, Format: frame.I420, Width: 6, Height: 4, Flags: frame.Keyframe}
	frame.PutHeader(m, l, 4, want)
	binary.LittleEndian.PutUint64(m[l.HeaderOffset(4):], 8)
	m[l.PixelOffset(4)+35] = 0xAB

	r, err := frame.NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.View(4, 8)
	if err != nil {
		t.Fatal(err)
	}
	if v.Header != want || len(v.Pixels) != 36 || v.Pixels[35] != 0xAB {
		t.Errorf("got %+v with %d bytes", v.Header, len(v.Pixels))
	}
	binary.LittleEndian.PutUint64(m[l.HeaderOffset(4):], 9)
	if err := v.Check(); !errors.Is(err, frame.ErrOverwritten) {
		t.Errorf("after the writer came back: %v", err)
	}
	if _, err := r.View(4, 8); !errors.Is(err, frame.ErrOverwritten) {
		t.Errorf("a late view: %v", err)
	}
}

func TestAViewThatCannotBeIsRefused(t *testing.T) {
	m, l := region(t, 2, 6, 4)
	frame.PutHeader(m, l, 0, frame.Header{Format: frame.I420, Width: 4000, Height: 4000})
	binary.LittleEndian.PutUint64(m[l.HeaderOffset(0):], 2)
	r, err := frame.NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		slot int
		gen  uint64
	}{
		{"a frame larger than its slot", 0, 2},
		{"a slot that is not there", 2, 2},
		{"a negative slot", -1, 2},
		{"generation zero", 1, 0},
		{"an odd generation", 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v, err := r.View(c.slot, c.gen); err == nil {
				t.Errorf("got %+v", v.Header)
			}
		})
	}
}

func TestTheContractDependsOnEveryDescription(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range [][][]byte{nil, {nil}, {[]byte("a")}, {[]byte("a"), []byte("b")}, {[]byte("ab")}, {[]byte("b"), []byte("a")}} {
		seen[frame.Contract(d...)] = true
	}
	if len(seen) != 6 {
		t.Errorf("6 different lists of descriptions gave %d hashes", len(seen))
	}
}

func FuzzParseLayout(f *testing.F) {
	l, err := frame.LayoutFor(5, frame.I420, 64, 36)
	if err != nil {
		f.Fatal(err)
	}
	m := make([]byte, l.Size())
	if err := frame.PutLayout(m, l); err != nil {
		f.Fatal(err)
	}
	f.Add(m[:256], uint(l.Size()))
	f.Add([]byte{}, uint(0))
	f.Fuzz(func(t *testing.T, head []byte, size uint) {
		m := make(heap, max(len(head), int(size%(1<<20))))
		copy(m, head)
		r, err := frame.NewReader(m)
		if err != nil {
			return
		}
		l := r.Layout()
		for slot := range l.Slots {
			if end := l.PixelOffset(slot) + l.SlotBytes; end > len(m) {
				t.Fatalf("slot %d of %+v ends at %d of %d", slot, l, end, len(m))
			}
			gen := binary.LittleEndian.Uint64(m[l.HeaderOffset(slot):])
			v, err := r.View(slot, gen)
			if err != nil {
				continue
			}
			if len(v.Pixels) != v.Format.Size(v.Width, v.Height) || cap(v.Pixels) > l.SlotBytes {
				t.Fatalf("view %+v has %d bytes", v.Header, len(v.Pixels))
			}
		}
		again := make([]byte, l.Size())
		if err := frame.PutLayout(again, l); err != nil {
			t.Fatalf("a layout that was read cannot be written: %v", err)
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	f.Add(int64(1), int64(4), int64(4), int64(2), int64(0), int64(0), int64(0), 24)
	f.Fuzz(func(t *testing.T, format, w, h, gen, slot, flags, number int64, n int) {
		in := []int64{format, w, h, gen, slot, flags, number, 0}
		i, err := frame.ParseInfo(in, n)
		if err != nil {
			return
		}
		if out := i.Values(); [8]int64(in) != out {
			t.Fatalf("%v came back as %v", in, out)
		}
	})
}
