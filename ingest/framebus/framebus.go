// Package framebus puts decoded pictures where other processes can read them, and takes the places
// back when the readers are done, or too slow, or dead.
//
// A Bus has one camera's slots. Announcing a frame gives every watching reader a lease on its slot;
// the slot is free again when the last lease has ended. Nothing ever waits for a reader: with no
// slot free the frame is dropped. A reader that outlives its lease may find its slot
// overwritten, which the generation tells it (api/frame).
package framebus

import (
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/mmap"
)

// Opening says that slots for a stream epoch are there.
type Opening struct {
	Camera string
	Epoch  *ingest.Epoch
	Layout frame.Layout
	Size   image.Point
	// Capture time of the epoch's first frame.
	Capture time.Time
	// File is the region's descriptor, open for as long as the call that hands over the Opening lasts:
	// a reader that needs it later duplicates it.
	File *os.File
}

// Notice announces a frame, leased to the reader it is given to.
type Notice struct {
	Camera     string
	Frame      ingest.Frame
	Slot       int
	Generation uint64
	Lease      uint64
}

// Reader is told of slots and frames. Its methods must not block and not call the Bus.
type Reader interface {
	SlotsOpened(Opening)
	SlotsClosed(camera string, e *ingest.Epoch)
	// Frame returns false when it cannot take the notice; the lease is then void.
	Frame(b *Bus, n Notice) bool
	// LeaseEnded says that a lease of an accepted notice is over, however it ended.
	LeaseEnded(id uint64)
}

// Config of a Bus.
type Config struct {
	Camera string
	// Slots is the number of slots; 0: 5.
	Slots int
	// LeaseTime is how long a reader may keep a slot; 0: 2 s.
	LeaseTime time.Duration
	// Leases gives out lease ids, unique over all buses; nil: a counter of the bus's own.
	Leases *atomic.Uint64
}

// Counts of what happened to frames, as totals.
type Counts struct {
	Announced, NoSlot, NoLease, Expired uint64
}

// Bus is one camera's frames. Safe for concurrent use, but one goroutine publishes.
type Bus struct {
	cfg Config

	mu      sync.Mutex // guards everything below
	current *region
	readers map[Reader]*reader
	leases  map[uint64]*lease
	counts  Counts
	freed   chan struct{} // closed and replaced when a slot becomes free
	closed  bool
}

type reader struct {
	max    int // leases at once
	leases int
}

type lease struct {
	region *region
	slot   int
	reader Reader
	ends   time.Duration // mono
	frame  ingest.Frame
	gen    uint64
}

type region struct {
	opening Opening
	mem     *mmap.Memory
	held    []int // leases and other holds on each slot
	total   int   // sum of held
	old     bool  // no longer published to
}

// New returns a bus without slots.
func New(cfg Config) *Bus {
	if cfg.Slots <= 0 {
		cfg.Slots = 5
	}
	if cfg.LeaseTime <= 0 {
		cfg.LeaseTime = 2 * time.Second
	}
	if cfg.Leases == nil {
		cfg.Leases = new(atomic.Uint64)
	}
	return &Bus{cfg: cfg, readers: map[Reader]*reader{}, leases: map[uint64]*lease{}, freed: make(chan struct{})}
}

// Open makes slots for a stream epoch and closes those of the epoch before.
func (b *Bus) Open(e *ingest.Epoch, size image.Point, capture time.Time) error {
	layout, err := frame.LayoutFor(b.cfg.Slots, frame.I420, size.X, size.Y)
	if err != nil {
		return fmt.Errorf("open slots of camera %q: %w", b.cfg.Camera, err)
	}
	mem, err := mmap.Create("vedette-frames", layout.Size())
	if err != nil {
		return fmt.Errorf("open slots of camera %q: %w", b.cfg.Camera, err)
	}
	if err := frame.PutLayout(mem.Bytes(), layout); err != nil {
		_ = mem.Close()
		return fmt.Errorf("open slots of camera %q: %w", b.cfg.Camera, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retireLocked()
	b.current = &region{
		opening: Opening{Camera: b.cfg.Camera, Epoch: e, Layout: layout, Size: size, Capture: capture, File: mem.File()},
		mem:     mem, held: make([]int, layout.Slots),
	}
	for r := range b.readers {
		r.SlotsOpened(b.current.opening)
	}
	return nil
}

// retireLocked closes the current region for new frames; its memory goes with the last hold.
func (b *Bus) retireLocked() {
	old := b.current
	if old == nil {
		return
	}
	b.current = nil
	old.old = true
	for r := range b.readers {
		r.SlotsClosed(b.cfg.Camera, old.opening.Epoch)
	}
	old.closeUnheld()
}

func (r *region) closeUnheld() {
	if r.old && r.total == 0 {
		_ = r.mem.Close()
	}
}

// CloseSlots ends the current epoch's slots without opening others.
func (b *Bus) CloseSlots() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retireLocked()
}

// Camera returns the camera's name.
func (b *Bus) Camera() string { return b.cfg.Camera }

// Epoch returns the epoch whose slots are open, or nil, and their frame size.
func (b *Bus) Epoch() (*ingest.Epoch, image.Point) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil, image.Point{}
	}
	return b.current.opening.Epoch, b.current.opening.Size
}

// Watched reports whether anybody reads frames; if not, decoding may be all for nothing.
func (b *Bus) Watched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.readers) > 0
}

// ErrNoSlot says: every slot is leased.
var ErrNoSlot = errors.New("no free slot")

// Publish has fill write a frame's pixels (tight I420) into a free slot and announces it to every
// reader that has room. It returns ErrNoSlot when the frame was dropped, and fill's error. Nobody
// watching is no error and costs no copy.
func (b *Bus) Publish(f ingest.Frame, fill func(dst []byte) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.current
	if r == nil || len(b.readers) == 0 {
		return nil
	}
	if !b.anyRoomLocked() {
		for range b.readers {
			b.counts.NoLease++
		}
		return nil
	}
	slot := r.freeSlot()
	if slot < 0 {
		b.counts.NoSlot++
		return ErrNoSlot
	}
	// Held while it is written, so that the lock can be let go for the copy.
	r.hold(slot)
	b.mu.Unlock()
	gen, err := r.write(slot, f, fill)
	b.mu.Lock()
	if err == nil && !r.old {
		b.announceLocked(r, slot, gen, f)
	}
	b.unholdLocked(r, slot)
	return err
}

func (b *Bus) anyRoomLocked() bool {
	for _, rd := range b.readers {
		if rd.leases < rd.max {
			return true
		}
	}
	return false
}

func (r *region) hold(slot int) { r.held[slot]++; r.total++ }

func (b *Bus) unholdLocked(r *region, slot int) {
	r.held[slot]--
	r.total--
	if r.held[slot] == 0 {
		close(b.freed)
		b.freed = make(chan struct{})
	}
	r.closeUnheld()
}

// freeSlot returns the free slot whose frame is oldest, so that a late reader has the best chances.
func (r *region) freeSlot() int {
	best, bestNumber := -1, uint64(0)
	for slot, held := range r.held {
		if held > 0 {
			continue
		}
		if n := r.mem.LoadUint64(r.opening.Layout.HeaderOffset(slot)); best < 0 || n < bestNumber {
			best, bestNumber = slot, n
		}
	}
	return best
}

// write fills a held slot. Its generation is odd meanwhile, and even, and new, after.
func (r *region) write(slot int, f ingest.Frame, fill func([]byte) error) (uint64, error) {
	l := r.opening.Layout
	at := l.HeaderOffset(slot)
	gen := r.mem.LoadUint64(at) + 1
	r.mem.StoreUint64(at, gen)
	n := frame.I420.Size(f.Size.X, f.Size.Y)
	if n == 0 || n > l.SlotBytes {
		return 0, fmt.Errorf("frame of %d×%d pixels does not fit a slot of %d bytes", f.Size.X, f.Size.Y, l.SlotBytes)
	}
	p := l.PixelOffset(slot)
	if err := fill(r.mem.Bytes()[p : p+n : p+n]); err != nil {
		// The generation stays odd: nothing was announced, and the next write makes it odd again.
		r.mem.StoreUint64(at, gen+1)
		return 0, err
	}
	frame.PutHeader(r.mem.Bytes(), l, slot, frame.Header{
		Number: f.Number, CaptureNS: f.Capture.UnixNano(), ReceiveNS: f.Received.Wall.UnixNano(), Format: frame.I420,
		Width: f.Size.X, Height: f.Size.Y, Flags: f.Flags(),
	})
	r.mem.StoreUint64(at, gen+1)
	return gen + 1, nil
}

func (b *Bus) announceLocked(r *region, slot int, gen uint64, f ingest.Frame) {
	announced := false
	for rd, state := range b.readers {
		if state.leases >= state.max {
			b.counts.NoLease++
			continue
		}
		id := b.cfg.Leases.Add(1)
		if !rd.Frame(b, Notice{Camera: b.cfg.Camera, Frame: f, Slot: slot, Generation: gen, Lease: id}) {
			b.counts.NoLease++
			continue
		}
		announced = true
		state.leases++
		r.hold(slot)
		b.leases[id] = &lease{region: r, slot: slot, reader: rd, ends: ingest.Now().Mono + b.cfg.LeaseTime, frame: f, gen: gen}
	}
	if announced {
		b.counts.Announced++
	}
}

// Watch begins telling rd of slots (those open now at once) and frames, with at most maxLeases leases
// at a time (0: as many as there are slots). Watching again changes the limit.
func (b *Bus) Watch(rd Reader, maxLeases int) {
	if maxLeases <= 0 {
		maxLeases = b.cfg.Slots
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if state := b.readers[rd]; state != nil {
		state.max = maxLeases
		return
	}
	b.readers[rd] = &reader{max: maxLeases}
	if b.current != nil {
		rd.SlotsOpened(b.current.opening)
	}
}

// Unwatch tells rd nothing more and ends its leases.
func (b *Bus) Unwatch(rd Reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, l := range b.leases {
		if l.reader == rd {
			b.endLocked(id, l)
		}
	}
	delete(b.readers, rd)
}

// Release ends a lease of rd; false when rd holds none of that id.
func (b *Bus) Release(rd Reader, id uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.leases[id]
	if l == nil || l.reader != rd {
		return false
	}
	b.endLocked(id, l)
	return true
}

func (b *Bus) endLocked(id uint64, l *lease) {
	delete(b.leases, id)
	if state := b.readers[l.reader]; state != nil {
		state.leases--
	}
	l.reader.LeaseEnded(id)
	b.unholdLocked(l.region, l.slot)
}

// Expire ends the leases whose time is over; to be called now and then.
func (b *Bus) Expire(mono time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, l := range b.leases {
		if mono >= l.ends {
			b.counts.Expired++
			b.endLocked(id, l)
		}
	}
}

// ErrNoLease says: the reader holds no such lease, or no more.
var ErrNoLease = errors.New("the lease has ended")

// Read shows use the frame of a lease of rd. The slot cannot be overwritten meanwhile, even if
// the lease ends.
func (b *Bus) Read(rd Reader, id uint64, use func(f ingest.Frame, pixels []byte) error) error {
	b.mu.Lock()
	l := b.leases[id]
	if l == nil || l.reader != rd {
		b.mu.Unlock()
		return ErrNoLease
	}
	l.region.hold(l.slot)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unholdLocked(l.region, l.slot)
	}()
	p := l.region.opening.Layout.PixelOffset(l.slot)
	n := frame.I420.Size(l.frame.Size.X, l.frame.Size.Y)
	return use(l.frame, l.region.mem.Bytes()[p:p+n:p+n])
}

// WaitFree waits until a slot is free and a reader has room for it: for files, which drop nothing.
func (b *Bus) WaitFree(ctx context.Context) error {
	for {
		b.mu.Lock()
		ready := b.current == nil || (len(b.readers) > 0 && b.anyRoomLocked() && b.current.freeSlot() >= 0)
		freed := b.freed
		b.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		// Readers come and go without freeing anything.
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Counts returns the totals so far.
func (b *Bus) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Close ends the slots and every lease. The readers are told.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.retireLocked()
	for id, l := range b.leases {
		b.endLocked(id, l)
	}
	clear(b.readers)
}
