package frame

import (
	"encoding/binary"
	"fmt"
)

// Memory is a mapped region (internal/mmap has one).
type Memory interface {
	// Bytes returns the whole mapping.
	Bytes() []byte
	// LoadUint64 reads eight bytes at once, with acquire order; offset is a multiple of 8.
	LoadUint64(offset int) uint64
}

// Reader reads frames out of a region that another process writes. Safe for concurrent use.
type Reader struct {
	mem    Memory
	layout Layout
}

// NewReader checks the region's header. The memory must stay mapped while the reader or a view of
// it is in use.
func NewReader(mem Memory) (*Reader, error) {
	l, err := ParseLayout(mem.Bytes())
	if err != nil {
		return nil, err
	}
	return &Reader{mem: mem, layout: l}, nil
}

// Layout returns the region's layout.
func (r *Reader) Layout() Layout { return r.layout }

// View is one frame in its slot. It is a window, not a copy: after the last look at Pixels, Check
// tells whether what was seen was one frame.
type View struct {
	Header
	// Pixels are tight planes of Format.Size(Width, Height) bytes. Never to be written.
	Pixels []byte

	mem        Memory
	offset     int
	generation uint64
}

// View opens the frame that was announced with this generation.
func (r *Reader) View(slot int, generation uint64) (View, error) {
	if slot < 0 || slot >= r.layout.Slots {
		return View{}, fmt.Errorf("slot %d of a region of %d", slot, r.layout.Slots)
	}
	if generation == 0 || generation%2 != 0 {
		return View{}, fmt.Errorf("generation %d of slot %d was never announced", generation, slot)
	}
	off := r.layout.HeaderOffset(slot)
	v := View{mem: r.mem, offset: off, generation: generation}
	if err := v.Check(); err != nil {
		return View{}, err
	}
	b, le := r.mem.Bytes()[off:][:headerSize], binary.LittleEndian
	v.Header = Header{
		Number:    le.Uint64(b[slotNumber:]),
		CaptureNS: int64(le.Uint64(b[slotCapture:])),
		ReceiveNS: int64(le.Uint64(b[slotReceive:])),
		Format:    Format(le.Uint32(b[slotFormat:])),
		Width:     int(le.Uint32(b[slotWidth:])),
		Height:    int(le.Uint32(b[slotHeight:])),
		Flags:     Flags(le.Uint32(b[slotFlags:])),
	}
	if err := v.Check(); err != nil {
		return View{}, err
	}
	n := v.Format.Size(v.Width, v.Height)
	if n == 0 || n > r.layout.SlotBytes {
		return View{}, fmt.Errorf("slot %d: %s of %d×%d pixels does not fit its %d bytes", slot, v.Format, v.Width, v.Height, r.layout.SlotBytes)
	}
	p := r.layout.PixelOffset(slot)
	v.Pixels = r.mem.Bytes()[p : p+n : p+n]
	return v, nil
}

// Check returns ErrOverwritten when the slot no longer holds the view's frame.
func (v View) Check() error {
	if v.mem.LoadUint64(v.offset) != v.generation {
		return ErrOverwritten
	}
	return nil
}
