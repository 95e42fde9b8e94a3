package sidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/ingest/wire"
	"github.com/vedette/vedette/internal/unixmsg"
)

// conn is one client. It reads frames as a framebus.Reader.
type conn struct {
	s   *Sidecar
	msg *unixmsg.Conn
	out *outbox
	wg  sync.WaitGroup // pictures being made
	// background runs something beside the client's requests until the function returned is called, or the client leaves.
	background func(func(context.Context)) context.CancelFunc

	mu        sync.Mutex // guards everything below; never held across a call into a bus
	all       bool       // watches every camera
	maxLeases int
	only      map[string]int             // cameras watched by name, and their leases
	leases    map[uint64]*framebus.Bus   // of the notices sent
	rolls     map[unitsKey]time.Duration // access units wished for, and how far back
	units     map[unitsKey]*unitWatcher  // access units watched
	spans     map[uint64]func()          // ends a span of access units
	buses     map[*framebus.Bus]struct{} // watched
	relays    map[*worker]*relay         // to the processes of isolated cameras
	dumps     map[uint64]context.CancelFunc
	ended     bool
}

// serve talks to one client until it leaves.
func (s *Sidecar) serve(ctx context.Context, raw *net.UnixConn) {
	c := &conn{
		s: s, msg: unixmsg.New(raw), out: newOutbox(), only: map[string]int{}, leases: map[uint64]*framebus.Bus{},
		rolls: map[unitsKey]time.Duration{}, units: map[unitsKey]*unitWatcher{}, spans: map[uint64]func(){}, buses: map[*framebus.Bus]struct{}{},
		relays: map[*worker]*relay{}, dumps: map[uint64]context.CancelFunc{},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.background = func(run func(context.Context)) context.CancelFunc {
		own, end := context.WithCancel(ctx)
		c.wg.Go(func() { run(own) })
		return end
	}
	stop := context.AfterFunc(ctx, func() { _ = c.msg.Close() })
	defer stop()
	defer c.msg.Close() //nolint:errcheck // nothing is lost with it

	var writing sync.WaitGroup
	writing.Go(func() {
		c.out.run(c.msg)
		_ = c.msg.Close() // a client that cannot be written to is gone
	})
	err := c.read(ctx)
	c.leave()
	c.out.close()
	_ = c.msg.Close()
	cancel()
	writing.Wait()
	c.wg.Wait()
	c.msg.Discard()
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
		s.cfg.Logger.Warn("client connection ended", slog.Any("err", err))
	}
}

// read handles what the client says.
func (c *conn) read(ctx context.Context) error {
	c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Hello{Hello: &ingestv1.Hello{
		Contract: ingestv1.Contract(), Program: c.s.cfg.Program, Instance: c.s.mint.Instance(),
	}}}, nil)
	greeted := false
	for {
		payload, files, err := c.msg.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			_ = f.Close() // clients have none to give
		}
		var m ingestv1.ToIngest
		if err := proto.Unmarshal(payload, &m); err != nil {
			return err
		}
		if hello := m.GetHello(); hello != nil {
			if hello.GetContract() != ingestv1.Contract() {
				c.s.cfg.Logger.Warn("client speaks another contract: waiting for the upgrade to finish", slog.String("client", hello.GetProgram()))
				return c.idle()
			}
			greeted = true
			c.join()
			continue
		}
		if !greeted {
			return errors.New("the client did not begin with Hello")
		}
		c.handle(ctx, &m)
	}
}

// idle waits for the other side to be upgraded.
func (c *conn) idle() error {
	for {
		_, files, err := c.msg.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			_ = f.Close()
		}
	}
}

// join makes the client hear of everything.
func (c *conn) join() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.conns[c] = struct{}{}
	for _, e := range c.s.cameras {
		if e.owner == nil {
			c.out.put(e.now(), nil)
		}
	}
}

// leave ends everything the client holds.
func (c *conn) leave() {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	c.mu.Lock()
	c.ended = true
	buses, units, relays := c.buses, c.units, c.relays
	c.buses, c.units, c.relays = nil, nil, nil
	c.mu.Unlock()
	for _, r := range relays {
		r.cancel()
	}
	for b := range buses {
		b.Unwatch(c)
	}
	for _, w := range units {
		w.stop()
	}
	for _, e := range c.s.entries() {
		if e.owner == c {
			c.s.remove(e)
		}
	}
}

// openCamera starts a camera for this connection alone.
func (c *conn) openCamera(m *ingestv1.Camera) {
	c.s.applying.Lock()
	defer c.s.applying.Unlock()
	if c.s.entry(m.GetName()) != nil || m.GetName() == "" {
		c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_CameraStatus{CameraStatus: &ingestv1.CameraStatus{
			Camera: m.GetName(), Removed: true, Error: wire.Fault(&ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: errors.New("the name is in use, or empty")}),
		}}}, nil)
		return
	}
	c.s.add(m, c, 0, ingestv1.Applied_APPLIED_UNSPECIFIED)
}

func (c *conn) handle(ctx context.Context, m *ingestv1.ToIngest) {
	if c.forward(m) {
		return
	}
	switch m := m.GetMessage().(type) {
	case *ingestv1.ToIngest_SetCameras:
		c.s.setCameras(m.SetCameras) //nolint:contextcheck // cameras outlive the connection they came by
	case *ingestv1.ToIngest_OpenCamera:
		c.openCamera(m.OpenCamera.GetCamera()) //nolint:contextcheck // it ends with the connection, see leave
	case *ingestv1.ToIngest_WatchFrames:
		c.watchFrames(m.WatchFrames)
	case *ingestv1.ToIngest_ReleaseLease:
		for _, id := range m.ReleaseLease.GetLeaseIds() {
			c.mu.Lock()
			bus := c.leases[id]
			c.mu.Unlock()
			if bus != nil {
				bus.Release(c, id)
			} else if r := c.relayOf(id); r != nil {
				r.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_ReleaseLease{ReleaseLease: &ingestv1.ReleaseLease{LeaseIds: []uint64{id}}}})
			}
		}
	case *ingestv1.ToIngest_GetPicture:
		c.wg.Go(func() { c.picture(ctx, m.GetPicture) })
	case *ingestv1.ToIngest_GetProbe:
		c.wg.Go(func() { c.probe(ctx, m.GetProbe) })
	case *ingestv1.ToIngest_WatchAccessUnits:
		c.watchUnits(m.WatchAccessUnits)
	case *ingestv1.ToIngest_DumpPackets:
		c.dump(m.DumpPackets)
	case *ingestv1.ToIngest_GetAccessUnits:
		c.getUnits(ctx, m.GetAccessUnits)
	}
}

func (c *conn) watchFrames(m *ingestv1.WatchFrames) {
	limit := int(m.GetMaxLeases())
	c.mu.Lock()
	switch {
	case m.GetCamera() == "":
		c.all, c.maxLeases = !m.GetStop(), limit
	case m.GetStop():
		delete(c.only, m.GetCamera())
	default:
		c.only[m.GetCamera()] = limit
	}
	c.mu.Unlock()
	for _, e := range c.s.entries() {
		c.follow(e)
	}
}

func (c *conn) mayHear(e *entry) bool { return e.owner == nil || e.owner == c }

// follow watches a camera's frames, or stops, as the client wishes.
func (c *conn) follow(e *entry) {
	if !c.mayHear(e) {
		return
	}
	c.mu.Lock()
	limit, want := c.only[e.name]
	if !want && c.all {
		limit, want = c.maxLeases, true
	}
	want = want && !c.ended
	if e.worker != nil {
		known := c.relays[e.worker] != nil
		c.mu.Unlock()
		if !want && !known {
			return
		}
		if r := c.relay(e.worker); r != nil {
			r.watch("frames", &ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: &ingestv1.WatchFrames{
				Camera: e.name, Stop: !want, MaxLeases: wire.Side(limit),
			}}})
		}
		return
	}
	if c.buses != nil {
		if want {
			c.buses[e.bus] = struct{}{}
		} else {
			delete(c.buses, e.bus)
		}
	}
	c.mu.Unlock()
	if !want {
		e.bus.Unwatch(c)
		return
	}
	e.bus.Watch(c, limit)
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	if ended { // between the two locks
		e.bus.Unwatch(c)
	}
}

// SlotsOpened is part of framebus.Reader.
func (c *conn) SlotsOpened(o framebus.Opening) {
	fd, err := unix.FcntlInt(o.File.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		c.s.cfg.Logger.Error("cannot pass slots on", slog.String("camera", o.Camera), slog.Any("err", err))
		return
	}
	c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsOpened{SlotsOpened: &ingestv1.SlotsOpened{
		Camera: o.Camera, StreamEpoch: o.Epoch.ID, SlotCount: wire.Side(o.Layout.Slots), SlotBytes: uint64(o.Layout.SlotBytes),
		Width: wire.Side(o.Size.X), Height: wire.Side(o.Size.Y), Format: ingestv1.PixelFormat_PIXEL_FORMAT_I420,
		Reason: ingestv1.EpochReason(o.Epoch.Reason), CaptureTimeNs: wire.Time(o.Capture), RegionBytes: uint64(o.Layout.Size()),
	}}}, os.NewFile(uintptr(fd), "frames"))
}

// SlotsClosed is part of framebus.Reader.
func (c *conn) SlotsClosed(name string, e *ingest.Epoch) {
	c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsClosed{SlotsClosed: &ingestv1.SlotsClosed{Camera: name, StreamEpoch: e.ID}}}, nil)
}

// Frame is part of framebus.Reader. Notices wait no longer than leases last, so they need no bound
// of their own.
func (c *conn) Frame(b *framebus.Bus, n framebus.Notice) bool {
	m := &ingestv1.FrameNotice{Camera: n.Camera, Slot: wire.Side(n.Slot), Generation: n.Generation, LeaseId: n.Lease}
	wire.Frame(m, n.Frame)
	c.mu.Lock()
	c.leases[n.Lease] = b
	c.mu.Unlock()
	if c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_FrameNotice{FrameNotice: m}}, nil) {
		return true
	}
	c.LeaseEnded(n.Lease)
	return false
}

// LeaseEnded is part of framebus.Reader.
func (c *conn) LeaseEnded(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, id)
}
