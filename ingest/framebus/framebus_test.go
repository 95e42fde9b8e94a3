package framebus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"image"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/internal/mmap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var size = image.Pt(64, 48)

// reader keeps what it is told.
type reader struct {
	t      *testing.T
	refuse bool

	mu      sync.Mutex // guards everything below
	notices []framebus.Notice
	regions map[*ingest.Epoch]*frame.Reader
	ended   map[uint64]bool
	closed  int
}

func newReader(t *testing.T) *reader {
	return &reader{t: t, regions: map[*ingest.Epoch]*frame.Reader{}, ended: map[uint64]bool{}}
}

func (r *reader) SlotsOpened(o framebus.Opening) {
	r.mu.Lock()
	known := r.regions[o.Epoch] != nil
	r.mu.Unlock()
	if known {
		return
	}
	fd, err := unix.FcntlInt(o.File.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		r.t.Error(err)
		return
	}
	m, err := mmap.Open(os.NewFile(uintptr(fd), "frames"))
	if err != nil {
		r.t.Error(err)
		return
	}
	r.t.Cleanup(func() { _ = m.Close() })
	fr, err := frame.NewReader(m)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.regions[o.Epoch] = fr
}

func (r *reader) SlotsClosed(string, *ingest.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed++
}

func (r *reader) Frame(_ *framebus.Bus, n framebus.Notice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse {
		return false
	}
	r.notices = append(r.notices, n)
	return true
}

func (r *reader) LeaseEnded(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[id] {
		r.t.Errorf("lease %d ended twice", id)
	}
	r.ended[id] = true
}

func (r *reader) take() []framebus.Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.notices
	r.notices = nil
	return n
}

func (r *reader) view(n framebus.Notice) (frame.View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.regions[n.Frame.Epoch].View(n.Slot, n.Generation)
}

func open(t *testing.T, cfg framebus.Config) (*framebus.Bus, *ingest.Epoch) {
	t.Helper()
	b := framebus.New(cfg)
	e := &ingest.Epoch{ID: "e1"}
	if err := b.Open(e, size, time.Time{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, e
}

// publish writes a frame whose every pixel is its number.
func publish(b *framebus.Bus, e *ingest.Epoch, number uint64) error {
	return b.Publish(ingest.Frame{Epoch: e, Number: number, Size: size}, func(dst []byte) error {
		for i := 0; i+8 <= len(dst); i += 8 {
			binary.LittleEndian.PutUint64(dst[i:], number)
		}
		return nil
	})
}

func TestEverySlotLeasedDropsTheFrameAndCounts(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 3})
	greedy, modest := newReader(t), newReader(t)
	b.Watch(greedy, 10)
	b.Watch(modest, 1)
	for n := range uint64(3) {
		if err := publish(b, e, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish(b, e, 3); !errors.Is(err, framebus.ErrNoSlot) {
		t.Errorf("a fourth frame in three slots: %v", err)
	}
	if g, m := len(greedy.take()), modest.take(); g != 3 || len(m) != 1 {
		t.Errorf("%d and %d notices", g, len(m))
	} else if !b.Release(modest, m[0].Lease) || b.Release(modest, m[0].Lease) {
		t.Error("a lease ends once")
	}
	b.Unwatch(greedy)
	if err := publish(b, e, 4); err != nil {
		t.Errorf("after the holder left: %v", err)
	}
	if c := b.Counts(); c != (framebus.Counts{Announced: 4, NoSlot: 1, NoLease: 2}) {
		t.Errorf("counts %+v", c)
	}
}

func TestALeaseIsItsReadersAlone(t *testing.T) {
	b, e := open(t, framebus.Config{})
	holder, thief := newReader(t), newReader(t)
	b.Watch(holder, 0)
	b.Watch(thief, 1)
	if err := publish(b, e, 0); err != nil {
		t.Fatal(err)
	}
	id := holder.take()[0].Lease
	if b.Release(thief, id) {
		t.Error("a stranger released the lease")
	}
	if err := b.Read(thief, id, func(ingest.Frame, []byte) error { return nil }); !errors.Is(err, framebus.ErrNoLease) {
		t.Errorf("a stranger read by the lease: %v", err)
	}
}

func TestAnExpiredLeaseFreesItsSlotAndTheReaderIsTold(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 2, LeaseTime: time.Nanosecond})
	r := newReader(t)
	b.Watch(r, 0)
	if err := publish(b, e, 7); err != nil {
		t.Fatal(err)
	}
	n := r.take()[0]
	v, err := r.view(n)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Read(r, n.Lease, func(_ ingest.Frame, pixels []byte) error {
		b.Expire(ingest.Now().Mono)
		// The lease is over, but the slot is still being read: only the other may be written.
		for i := range uint64(4) {
			_ = publish(b, e, 100+i)
			b.Expire(ingest.Now().Mono + time.Second)
		}
		if got := binary.LittleEndian.Uint64(pixels); got != 7 {
			t.Errorf("the frame changed to %d while it was read", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.Check() != nil {
		t.Error("overwritten while it was read")
	}
	for i := range uint64(3) {
		_ = publish(b, e, 200+i)
		b.Expire(ingest.Now().Mono + time.Second)
	}
	if !errors.Is(v.Check(), frame.ErrOverwritten) {
		t.Error("the reader does not see that its frame is gone")
	}
	if c := b.Counts(); c.Expired < 5 || !r.ended[n.Lease] {
		t.Errorf("counts %+v", c)
	}
}

func TestANewEpochHasItsOwnSlotsAndTheOldLeasesStayReadable(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 2})
	r := newReader(t)
	b.Watch(r, 0)
	if err := publish(b, e, 1); err != nil {
		t.Fatal(err)
	}
	old := r.take()[0]
	next := &ingest.Epoch{ID: "e2"}
	if err := b.Open(next, image.Pt(32, 32), time.Time{}); err != nil {
		t.Fatal(err)
	}
	v, err := r.view(old)
	if err != nil || binary.LittleEndian.Uint64(v.Pixels) != 1 {
		t.Errorf("the old epoch's frame: %v", err)
	}
	if err := b.Read(r, old.Lease, func(f ingest.Frame, _ []byte) error {
		if f.Number != 1 {
			t.Errorf("frame %d", f.Number)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(r.regions) != 2 || r.closed != 1 {
		t.Errorf("%d regions, %d closed", len(r.regions), r.closed)
	}
	if !b.Release(r, old.Lease) {
		t.Error("the old lease cannot be released")
	}
}

func TestAFillThatFailsAnnouncesNothing(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 2})
	r := newReader(t)
	b.Watch(r, 0)
	fault := errors.New("no picture")
	for range 10 {
		if err := b.Publish(ingest.Frame{Epoch: e, Size: size}, func([]byte) error { return fault }); !errors.Is(err, fault) {
			t.Fatal(err)
		}
	}
	if err := publish(b, e, 1); err != nil || len(r.take()) != 1 {
		t.Errorf("the slots are lost: %v", err)
	}
}

func TestAFileWaitsForASlotAndAReader(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 2})
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	waited := make(chan error, 1) // one at a time
	wait := func() { g.Go(func() error { waited <- b.WaitFree(ctx); return nil }) }
	wait()
	r := newReader(t)
	b.Watch(r, 1)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := publish(b, e, 0); err != nil {
		t.Fatal(err)
	}
	wait()
	b.Release(r, r.take()[0].Lease)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := publish(b, e, 1); err != nil {
		t.Fatal(err)
	}
	wait()
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = g.Wait()
}

// Readers that never release, release what is not theirs, refuse, come and go, or read after
// their time neither stop the writer nor ever see a torn frame that checks as whole.
func TestHostileReadersNeitherBlockTheWriterNorSeeTornFrames(t *testing.T) {
	b, e := open(t, framebus.Config{Slots: 4, LeaseTime: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	g := errgroup.Group{}
	var torn, whole, gone int64
	var mu sync.Mutex
	for kind := range 4 {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(uint64(kind), 1))
			r := newReader(t)
			b.Watch(r, 1+rng.IntN(5))
			defer b.Unwatch(r)
			for ctx.Err() == nil {
				r.mu.Lock()
				r.refuse = kind == 3 && rng.IntN(2) == 0
				r.mu.Unlock()
				for _, n := range r.take() {
					v, err := r.view(n)
					if err == nil {
						first, same := binary.LittleEndian.Uint64(v.Pixels), true
						for i := 0; i+8 <= len(v.Pixels); i += 8 {
							same = same && binary.LittleEndian.Uint64(v.Pixels[i:]) == first
						}
						err = v.Check()
						mu.Lock()
						if err == nil && (!same || first != n.Frame.Number) {
							torn++
						}
						mu.Unlock()
					}
					mu.Lock()
					if err == nil {
						whole++
					} else {
						gone++
					}
					mu.Unlock()
					switch kind {
					case 0:
						b.Release(r, n.Lease)
					case 1:
						b.Release(r, n.Lease+uint64(rng.IntN(3))-1)
					}
				}
				if kind == 2 && rng.IntN(50) == 0 {
					b.Unwatch(r)
					b.Watch(r, 1+rng.IntN(5))
				}
			}
			return nil
		})
	}
	published := 0
	seen := func() int64 { mu.Lock(); defer mu.Unlock(); return whole }
	for n := uint64(0); n < 20000 || seen() < 200; n++ {
		if publish(b, e, n) == nil {
			published++
		}
		b.Expire(ingest.Now().Mono)
	}
	cancel()
	_ = g.Wait()
	if torn != 0 {
		t.Errorf("%d torn frames passed their check", torn)
	}
	if whole == 0 || published < 100 {
		t.Errorf("%d published, %d read whole, %d overwritten: nothing was tried", published, whole, gone)
	}
}

func TestMasksCoverWhateverTheyTouch(t *testing.T) {
	size := image.Pt(10, 6)
	pixels := make([]byte, 10*6+2*5*3)
	for i := range pixels {
		pixels[i] = 200
	}
	// A thin triangle between pixel centres, and a rectangle.
	framebus.NewBlanker([]ingest.Mask{
		{{X: 0.51, Y: 0.51}, {X: 0.52, Y: 0.51}, {X: 0.515, Y: 0.53}},
		{{X: 0, Y: 0}, {X: 0.3, Y: 0}, {X: 0.3, Y: 0.5}, {X: 0, Y: 0.5}},
	}, size).Blank(pixels)
	for y := range 6 {
		for x := range 10 {
			want := byte(200)
			if (x < 3 && y < 3) || (x == 5 && y == 3) {
				want = 16
			}
			if got := pixels[y*10+x]; got != want {
				t.Errorf("pixel %d,%d is %d, want %d", x, y, got, want)
			}
		}
	}
	u := pixels[60:75]
	for i, want := range []byte{128, 128, 200, 200, 200, 128, 128, 128, 200, 200, 200, 200, 200, 200, 200} {
		if u[i] != want {
			t.Errorf("U sample %d is %d, want %d", i, u[i], want)
		}
	}
}
