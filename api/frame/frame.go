// Package frame says how one decoded picture lies in shared memory.
//
// A camera's frames live in one memfd per stream epoch, the region: a page with the region's
// header and one header for each slot, then the pixels of every slot, page-aligned:
//
//	0      region header (128 bytes)
//	128    header of slot 0 (128 bytes)
//	256    header of slot 1 …
//	4096   pixels of slot 0 (slot bytes)
//	4096 + slot bytes   pixels of slot 1 …
//
// Pixels are tight: no padding between rows or planes. I420 is Y (w·h), then U, then V, each
// ⌈w/2⌉·⌈h/2⌉; NV12 is Y, then U and V interleaved in rows of 2·⌈w/2⌉ bytes. Values are as the camera
// sent them: of limited range unless the flags say FullRange, by the matrix of BT.601 unless they name another. Every slot ends with at least 64
// bytes of room, so that code with wide loads may read a little past the pixels. All numbers are little-endian.
//
// Only the ingest sidecar writes. A slot's generation is odd while it is being written and even
// while it holds a frame; it only grows. A reader compares it with the generation it was told
// before it looks and again when it has finished (View.Check): equal both times, the pixels between
// were one frame; otherwise the answer is ErrOverwritten and whatever was read is worthless.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Format is the arrangement of a frame's pixels. Its numbers travel in FRAME_INFO and in
// the ingest contract.
type Format uint32

// The formats frames come in.
const (
	I420 Format = 1
	NV12 Format = 2
)

// String returns the format's usual name.
func (f Format) String() string {
	switch f {
	case I420:
		return "I420"
	case NV12:
		return "NV12"
	default:
		return fmt.Sprintf("format %d", uint32(f))
	}
}

// MaxSide is the largest width or height of a frame.
const MaxSide = 16384

// Size returns the bytes of a tight w×h frame, or 0 when the format is unknown or a side is not
// within 1 … MaxSide.
func (f Format) Size(w, h int) int {
	if (f != I420 && f != NV12) || w < 1 || h < 1 || w > MaxSide || h > MaxSide {
		return 0
	}
	return w*h + 2*((w+1)/2)*((h+1)/2)
}

// Places in the FRAME_INFO tensor (INT64[8]) that accompanies a FRAME tensor (UINT8[-1]).
const (
	InfoFormat     = 0 // Format
	InfoWidth      = 1 // pixels
	InfoHeight     = 2 // pixels
	InfoGeneration = 3 // slot generation; 0: the pixels are not in a slot and need no check
	InfoSlot       = 4 // slot within the region; 0 when not in a slot
	InfoFlags      = 5 // Flags
	InfoNumber     = 6 // frame number within the stream epoch
	InfoReserved   = 7 // 0
	InfoLen        = 8 // elements of the tensor
)

// Flags tell what a reader should know of a frame.
type Flags uint32

// The flags; more may come, unknown ones are ignored.
const (
	// Tainted: decoded from damaged or missing references.
	Tainted Flags = 1 << iota
	// Keyframe: decodable on its own.
	Keyframe
	// FullRange: values from 0 to 255 instead of 16 to 235 (chroma 16 to 240).
	FullRange
	// BT709 and BT2020: colours became YUV by that matrix; BT.601's without either.
	BT709
	BT2020
)

// Info is what FRAME_INFO says.
type Info struct {
	Format        Format
	Width, Height int
	Generation    uint64
	Slot          int
	Flags         Flags
	Number        uint64
}

// Values returns the elements of the FRAME_INFO tensor.
func (i Info) Values() [InfoLen]int64 {
	return [InfoLen]int64{
		InfoFormat: int64(i.Format), InfoWidth: int64(i.Width), InfoHeight: int64(i.Height),
		InfoGeneration: int64(i.Generation), InfoSlot: int64(i.Slot), InfoFlags: int64(i.Flags),
		InfoNumber: int64(i.Number),
	}
}

// ParseInfo reads the elements of a FRAME_INFO tensor and checks them against the bytes of
// the FRAME tensor beside it.
func ParseInfo(v []int64, frameBytes int) (Info, error) {
	if len(v) != InfoLen {
		return Info{}, fmt.Errorf("FRAME_INFO has %d elements, not %d", len(v), InfoLen)
	}
	if v[InfoFormat] != int64(I420) && v[InfoFormat] != int64(NV12) {
		return Info{}, fmt.Errorf("FRAME_INFO: format %d is neither I420 (%d) nor NV12 (%d)", v[InfoFormat], I420, NV12)
	}
	w, h := v[InfoWidth], v[InfoHeight]
	if w < 1 || h < 1 || w > MaxSide || h > MaxSide {
		return Info{}, fmt.Errorf("FRAME_INFO: %d×%d pixels, each side must be within 1 and %d", w, h, MaxSide)
	}
	if v[InfoGeneration] < 0 || v[InfoGeneration]%2 != 0 {
		return Info{}, fmt.Errorf("FRAME_INFO: generation %d is odd or negative: no frame was announced with it", v[InfoGeneration])
	}
	if v[InfoSlot] < 0 || v[InfoSlot] >= MaxSlots {
		return Info{}, fmt.Errorf("FRAME_INFO: slot %d is not within 0 and %d", v[InfoSlot], MaxSlots-1)
	}
	if v[InfoFlags] < 0 || v[InfoFlags] > math.MaxUint32 || v[InfoNumber] < 0 {
		return Info{}, fmt.Errorf("FRAME_INFO: flags %d or number %d out of range", v[InfoFlags], v[InfoNumber])
	}
	i := Info{
		Format: Format(v[InfoFormat]), Width: int(w), Height: int(h), Generation: uint64(v[InfoGeneration]),
		Slot: int(v[InfoSlot]), Flags: Flags(v[InfoFlags]), Number: uint64(v[InfoNumber]),
	}
	if n := i.Format.Size(i.Width, i.Height); n != frameBytes {
		return Info{}, fmt.Errorf("FRAME has %d bytes, FRAME_INFO says %s of %d×%d pixels, which is %d", frameBytes, i.Format, w, h, n)
	}
	return i, nil
}

// Sizes of the layout, in bytes.
const (
	Page       = 4096
	headerSize = 128
	// MaxSlots is what fits in the header page.
	MaxSlots = Page/headerSize - 1
)

// magic opens every region: "VEDETTE" and the layout's version.
const magic = uint64('V') | 'E'<<8 | 'D'<<16 | 'E'<<24 | 'T'<<32 | 'T'<<40 | 'E'<<48 | 1<<56

// Layout describes a region.
type Layout struct {
	// Slots is the number of slots, 1 … MaxSlots.
	Slots int
	// SlotBytes is the room for pixels in each, a multiple of Page.
	SlotBytes int
}

// LayoutFor returns the layout of slots that hold frames up to the given size.
func LayoutFor(slots int, f Format, w, h int) (Layout, error) {
	n := f.Size(w, h)
	if n == 0 {
		return Layout{}, fmt.Errorf("frame of %d×%d pixels in %s: each side must be within 1 and %d", w, h, f, MaxSide)
	}
	l := Layout{Slots: slots, SlotBytes: (n + overread + Page - 1) / Page * Page}
	return l, l.check()
}

func (l Layout) check() error {
	if l.Slots < 1 || l.Slots > MaxSlots {
		return fmt.Errorf("%d slots, must be within 1 and %d", l.Slots, MaxSlots)
	}
	if l.SlotBytes < Page || l.SlotBytes%Page != 0 || l.SlotBytes > maxSlotBytes {
		return fmt.Errorf("slots of %d bytes, must be a multiple of %d up to %d", l.SlotBytes, Page, maxSlotBytes)
	}
	return nil
}

const (
	overread     = 64
	maxSlotBytes = (MaxSide*MaxSide*3/2 + overread + Page - 1) / Page * Page
)

// Size returns the bytes of the whole region.
func (l Layout) Size() int { return Page + l.Slots*l.SlotBytes }

// HeaderOffset returns where the header of a slot begins; its first eight bytes are
// the generation.
func (l Layout) HeaderOffset(slot int) int { return headerSize*(slot+1) + slotGeneration }

// PixelOffset returns where the pixels of a slot begin.
func (l Layout) PixelOffset(slot int) int { return Page + slot*l.SlotBytes }

// Offsets within the region's header.
const (
	regionMagic     = 0  // uint64
	regionSlots     = 8  // uint32
	regionHeaderLen = 12 // uint32
	regionSlotBytes = 16 // uint64
	regionLen       = 24 // uint64
	regionEnd       = 32
)

// Offsets within a slot's header.
const (
	slotGeneration = 0  // uint64
	slotNumber     = 8  // uint64
	slotCapture    = 16 // int64
	slotReceive    = 24 // int64
	slotFormat     = 32 // uint32
	slotWidth      = 36 // uint32
	slotHeight     = 40 // uint32
	slotFlags      = 44 // uint32
	slotEnd        = 48
)

// The layout is a contract: these do not compile when a header outgrows its room, when the headers
// outgrow their page, or when a generation is not aligned for a single load.
const (
	_ = uint(headerSize - regionEnd)
	_ = uint(headerSize - slotEnd)
	_ = uint(Page - headerSize*(MaxSlots+1))
	_ = -uint(headerSize%64 + slotGeneration%8)
)

// PutLayout writes the region's header into a fresh region.
func PutLayout(region []byte, l Layout) error {
	if err := l.check(); err != nil {
		return err
	}
	if len(region) != l.Size() {
		return fmt.Errorf("region of %d bytes, the layout needs %d", len(region), l.Size())
	}
	le := binary.LittleEndian
	le.PutUint64(region[regionMagic:], magic)
	le.PutUint32(region[regionSlots:], uint32(l.Slots))
	le.PutUint32(region[regionHeaderLen:], headerSize)
	le.PutUint64(region[regionSlotBytes:], uint64(l.SlotBytes))
	le.PutUint64(region[regionLen:], uint64(l.Size()))
	return nil
}

// ParseLayout reads the header of a region received from another process. Whatever the bytes
// are, a layout it returns lies within them.
func ParseLayout(region []byte) (Layout, error) {
	if len(region) < Page {
		return Layout{}, fmt.Errorf("region of %d bytes is shorter than its header page", len(region))
	}
	le := binary.LittleEndian
	if m := le.Uint64(region); m != magic {
		return Layout{}, fmt.Errorf("region begins with %#x, not with %#x: no frame region, or of another layout version", m, magic)
	}
	l := Layout{
		Slots:     int(le.Uint32(region[regionSlots:])),
		SlotBytes: int(min(le.Uint64(region[regionSlotBytes:]), math.MaxInt32)),
	}
	if err := l.check(); err != nil {
		return Layout{}, fmt.Errorf("region header: %w", err)
	}
	if n := le.Uint64(region[regionLen:]); n != uint64(l.Size()) || l.Size() > len(region) {
		return Layout{}, fmt.Errorf("region header: %d bytes announced, layout needs %d, region has %d", n, l.Size(), len(region))
	}
	return l, nil
}

// Header is what a slot's header says of its frame besides the generation.
type Header struct {
	Number        uint64
	CaptureNS     int64
	ReceiveNS     int64
	Format        Format
	Width, Height int
	Flags         Flags
}

// PutHeader writes a slot's header, all but its generation. Only between two changes of the generation.
func PutHeader(region []byte, l Layout, slot int, h Header) {
	b, le := region[l.HeaderOffset(slot):][:headerSize], binary.LittleEndian
	le.PutUint64(b[slotNumber:], h.Number)
	le.PutUint64(b[slotCapture:], uint64(h.CaptureNS))
	le.PutUint64(b[slotReceive:], uint64(h.ReceiveNS))
	le.PutUint32(b[slotFormat:], uint32(h.Format))
	le.PutUint32(b[slotWidth:], uint32(h.Width))
	le.PutUint32(b[slotHeight:], uint32(h.Height))
	le.PutUint32(b[slotFlags:], uint32(h.Flags))
}

// ErrOverwritten says that the slot holds another frame by now; what was read of it is worthless. Its
// text begins with the wire name of the fault.
var ErrOverwritten = errors.New("FRAME_OVERWRITTEN: the slot was given to a newer frame")
