// Package sidecar serves cameras to other processes on a Unix socket.
//
// The list of cameras is what a client wanted last; it outlives the connection, so that cameras
// stay connected while the appliance restarts. Everything else, leases above all, ends with the
// connection it belongs to.
package sidecar

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/clockstep"
	"github.com/vedette/vedette/ingest/crash"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/ingest/device"
	"github.com/vedette/vedette/ingest/file"
	"github.com/vedette/vedette/ingest/framebus"
	"github.com/vedette/vedette/ingest/jpegs"
	"github.com/vedette/vedette/ingest/packetdump"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/ingest/wire"
	"github.com/vedette/vedette/internal/address"
	"github.com/vedette/vedette/internal/av"
)

// Config of the sidecar.
type Config struct {
	// Socket is the path to listen on. Required unless Listener is set.
	Socket string
	// Listener is a listening Unix socket inherited from systemd, or nil.
	Listener *net.UnixListener
	// Deadlines and Backoff of every camera; zero fields have defaults.
	Deadlines camera.Deadlines
	Backoff   camera.Backoff
	// LeaseTime is how long a reader may keep a slot; 0: 2 s.
	LeaseTime time.Duration
	// Dials is the number of connections set up at once; 0: 8.
	Dials int
	// Decodes is the number of pictures decoded at once; 0: the cores.
	Decodes int
	// Program is the name and version told to clients; empty: "vedette-ingest".
	Program string
	// Clock says how the box's clock is watched; the zero value asks the kernel. OnStep is the sidecar's own.
	Clock clockstep.Config
	// Engine opens decoders by name; nil: libavcodec's.
	Engine func(name string, cfg av.DecoderConfig) (decode.Engine, error)
	// Device opens video devices by their path; nil: the kernel's.
	Device func(path string) (device.Device, error)
	// CountersEvery is how often counters are sent; 0: 1 s.
	CountersEvery time.Duration
	// Worker starts the processes of isolated cameras; nil: every camera shares this one.
	Worker Worker
	// WorkerOutput receives what they print; nil: nobody does.
	WorkerOutput io.Writer
	// FirstLease is where the ids of leases begin.
	FirstLease uint64
	// RememberCrashes: what brings this process down is written beside the socket, and held against the camera it was
	// done for. The environment's GODEBUG must hold crash.Setting.
	RememberCrashes bool
	// Ready is called once the socket is served; nil: nobody is told.
	Ready func() error
	// Watchdog runs beside the sidecar and asks it from time to time whether it is alive; nil: nobody asks.
	Watchdog func(ctx context.Context, alive func() bool) error
	Logger   *slog.Logger // nil: discard
}

// Sidecar holds the cameras.
type Sidecar struct {
	cfg     Config
	mint    *camera.Mint
	socket  string
	leases  atomic.Uint64
	ticked  atomic.Int64 // mono of the last tick
	dials   chan struct{}
	decodes *decode.Budget
	stills  chan struct{} // pictures encoded at once
	sharing sharing

	running sync.WaitGroup // cameras

	applying sync.Mutex // one SetCameras at a time; guards workers and ledger
	workers  uint64     // there have been
	ledger   *crash.Ledger

	mu       sync.Mutex // guards everything below
	cameras  map[string]*entry
	conns    map[*conn]struct{}
	revision uint64
	// leaving are cameras that were removed and have not ended yet: the next of a name waits, so that a camera never
	// sees two sessions.
	leaving map[string]<-chan struct{}
}

// entry is one camera of the list.
type entry struct {
	name string
	// worker has the camera when it is isolated; camera and bus are nil then.
	worker *worker
	camera *camera.Camera
	bus    *framebus.Bus
	second *second // the main stream
	stills stills
	tap    packetdump.Tap
	want   ingest.Camera
	owner  *conn // the one connection that hears of it; nil: it is in the list, and everybody does
	cancel context.CancelFunc
	done   chan struct{}
	// replaced is what its first settings cost when they took the place of others; a later change has its own cost.
	replaced ingestv1.Applied
	// revision of the list it runs by; guarded by Sidecar.mu.
	revision uint64
}

// New listens to nothing and connects nothing.
func New(cfg Config) *Sidecar {
	if cfg.Dials <= 0 {
		cfg.Dials = 8
	}
	if cfg.Decodes <= 0 {
		cfg.Decodes = runtime.GOMAXPROCS(0)
	}
	if cfg.Program == "" {
		cfg.Program = "vedette-ingest"
	}
	if cfg.CountersEvery <= 0 {
		cfg.CountersEvery = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sidecar{
		cfg: cfg, mint: camera.NewMint(), ledger: &crash.Ledger{},
		dials: make(chan struct{}, cfg.Dials), decodes: decode.NewBudget(cfg.Decodes), stills: make(chan struct{}, 2),
		cameras: map[string]*entry{}, conns: map[*conn]struct{}{}, leaving: map[string]<-chan struct{}{},
	}
	s.leases.Store(cfg.FirstLease)
	return s
}

// Run serves until ctx ends (nil) or the socket fails.
func (s *Sidecar) Run(ctx context.Context) error {
	listener := s.cfg.Listener
	if listener == nil {
		l, err := listen(s.cfg.Socket)
		if err != nil {
			return err
		}
		listener = l
	}
	s.socket = listener.Addr().String()
	s.rememberCrashes()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() { s.tick(ctx) })
	wg.Go(func() { s.watchClock(ctx) })
	s.announce(ctx, &wg)
	var err error
	for {
		var c *net.UnixConn
		if c, err = listener.AcceptUnix(); err != nil {
			break
		}
		wg.Go(func() { s.serve(ctx, c) })
	}
	stopping := ctx.Err() != nil
	cancel()
	wg.Wait()
	s.removeAll()
	s.running.Wait()
	if stopping {
		if s.cfg.RememberCrashes {
			_ = os.Remove(crashFile(s.socket)) // nothing crashed
		}
		return nil
	}
	_ = listener.Close()
	return fmt.Errorf("accept on %s: %w", s.cfg.Socket, err)
}

// watchClock opens new epochs when the box's clock was set.
func (s *Sidecar) watchClock(ctx context.Context) {
	cfg := s.cfg.Clock
	cfg.OnStep = func(step time.Duration, now ingest.Instant) {
		s.cfg.Logger.Warn("the clock of this box was set", slog.Duration("step", step))
		for _, e := range s.entries() {
			if e.worker == nil { // the others watch for themselves
				e.camera.Reanchor()
			}
		}
		s.broadcast(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_ClockStep{
			ClockStep: &ingestv1.ClockStep{StepNs: int64(step), TimeNs: now.Wall.UnixNano()},
		}})
	}
	if err := clockstep.New(cfg).Run(ctx); err != nil {
		s.cfg.Logger.Warn("steps of the clock go unnoticed", slog.Any("err", err))
	}
}

// announce tells whoever supervises the process that it serves, and from then on that it lives.
func (s *Sidecar) announce(ctx context.Context, wg *sync.WaitGroup) {
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(); err != nil {
			s.cfg.Logger.Warn("the supervisor could not be told", slog.Any("err", err))
		}
	}
	if s.cfg.Watchdog == nil {
		return
	}
	wg.Go(func() {
		if err := s.cfg.Watchdog(ctx, s.alive); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("the watchdog could not be told", slog.Any("err", err))
		}
	})
}

// alive reports whether the sidecar still ticks.
func (s *Sidecar) alive() bool {
	return ingest.Now().Mono-time.Duration(s.ticked.Load()) < 5*time.Second
}

// listen takes the socket over from a process that is gone, but not from one that lives.
func listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		if c, derr := net.DialUnix("unix", nil, addr); derr == nil {
			_ = c.Close()
			return nil, fmt.Errorf("listen on %s: another process serves it: stop it or choose another path", path)
		}
		if rerr := os.Remove(path); rerr != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, rerr)
		}
		l, err = net.ListenUnix("unix", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// Frames and credentials pass here: the owner alone, or the group the folder is given to.
	if err := os.Chmod(path, 0o660); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// tick ends leases that are over, sends counters and says that the sidecar lives.
func (s *Sidecar) tick(ctx context.Context) {
	s.ticked.Store(int64(ingest.Now().Mono))
	leases := time.NewTicker(50 * time.Millisecond)
	defer leases.Stop()
	counters := time.NewTicker(s.cfg.CountersEvery)
	defer counters.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-leases.C:
			now := ingest.Now().Mono
			s.ticked.Store(int64(now))
			for _, e := range s.entries() {
				if e.worker == nil {
					e.bus.Expire(now)
				}
			}
		case <-counters.C:
			av.Trim()
			s.broadcast(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Alive{Alive: &ingestv1.Alive{}}})
			for _, e := range s.entries() {
				if n := e.counters(); n != nil {
					s.tell(e, &ingestv1.FromIngest{Message: &ingestv1.FromIngest_Counters{Counters: n}})
				}
				if e.worker != nil {
					continue
				}
				// The state has not changed, but its rates have.
				if st := e.camera.Status(); st.State == camera.Streaming {
					s.status(e, st)
				}
			}
		}
	}
}

// entries are the cameras of the list and those of single connections.
func (s *Sidecar) entries() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*entry, 0, len(s.cameras))
	for _, e := range s.cameras {
		list = append(list, e)
	}
	return list
}

func (s *Sidecar) entry(name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cameras[name]
}

func (s *Sidecar) broadcast(m *ingestv1.FromIngest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.out.put(m, nil)
	}
}

// tell says something of a camera to whoever may hear of it.
func (s *Sidecar) tell(e *entry, m *ingestv1.FromIngest) {
	if e.owner != nil {
		e.owner.out.put(m, nil)
		return
	}
	s.broadcast(m)
}

// setCameras makes the list what is wanted. Cameras go and come side by side; none waits for another.
func (s *Sidecar) setCameras(m *ingestv1.SetCameras) {
	s.applying.Lock()
	defer s.applying.Unlock()
	want := map[string]*ingestv1.Camera{}
	for _, c := range m.GetCameras() {
		want[c.GetName()] = c
	}
	s.mu.Lock()
	s.revision = m.GetRevision()
	s.mu.Unlock()
	for _, e := range s.entries() {
		if _, ok := want[e.name]; ok == (e.owner != nil) { // gone from the list, or its name is taken from its owner
			s.remove(e)
		}
	}
	for name, wished := range want {
		c := wire.Camera(wished)
		isolate, _ := s.isolate(c)
		e := s.entry(name)
		// The slots belong to the bus, and the camera to its process: others are another camera of the same name.
		var replaced ingestv1.Applied
		if e != nil && (c.Slots != e.want.Slots || isolate != (e.worker != nil)) {
			s.remove(e)
			e, replaced = nil, ingestv1.Applied_APPLIED_RECONNECTED
		}
		if e == nil {
			s.add(wished, nil, m.GetRevision(), replaced)
			continue
		}
		s.mu.Lock()
		e.revision = m.GetRevision()
		s.mu.Unlock()
		e.want = c
		if e.worker != nil {
			e.worker.update(wished, m.GetRevision())
			continue
		}
		e.camera.Update(c)
		e.second.update(c)
	}
}

// isolate decides whether a camera is given a process of its own, and says why when it did not ask for one.
func (s *Sidecar) isolate(c ingest.Camera) (own bool, why string) {
	if s.cfg.Worker == nil {
		return false, ""
	}
	if c.Isolated {
		return true, ""
	}
	source := sha256.Sum256([]byte(c.Address))
	held, err := s.ledger.Entry(c.Name, hex.EncodeToString(source[:8]))
	if err != nil {
		s.cfg.Logger.Warn("crashes may be forgotten", slog.Any("err", err))
	}
	if held.Count < crashesBefore {
		return false, ""
	}
	return true, fmt.Sprintf("its stream crashed the shared process %d times, last at %s: %s", held.Count, held.Last.UTC().Format(time.RFC3339), held.Text)
}

func crashFile(socket string) string { return socket + ".crash" }

// besides is the socket of a process of this one's.
func (s *Sidecar) besides(number uint64) string { return fmt.Sprintf("%s.%d", s.socket, number) }

// rememberCrashes holds what brought the process before down against its camera, and prepares for the next time.
func (s *Sidecar) rememberCrashes() {
	if !s.cfg.RememberCrashes {
		return
	}
	last, err := crash.Watch(crashFile(s.socket))
	if err != nil {
		s.cfg.Logger.Warn("crashes cannot be told from other ends", slog.Any("err", err))
	}
	if s.cfg.Worker == nil {
		return
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.ledger, err = crash.OpenLedger(s.socket + ".crashes"); err != nil {
		s.cfg.Logger.Warn("earlier crashes are forgotten", slog.Any("err", err))
	}
	if last == nil {
		return
	}
	s.cfg.Logger.Error("the process before this one crashed", slog.String("what", last.Text), slog.String("camera", last.Camera))
	if last.Camera == "" {
		return
	}
	if err := s.ledger.Add(*last, time.Now()); err != nil {
		s.cfg.Logger.Warn("this crash may be forgotten", slog.Any("err", err))
	}
}

// add starts a camera once the one of its name that was removed before it, if any, is gone.
func (s *Sidecar) add(wished *ingestv1.Camera, owner *conn, revision uint64, replaced ingestv1.Applied) {
	c := wire.Camera(wished)
	ctx, cancel := context.WithCancel(context.Background())
	e := &entry{name: c.Name, want: c, owner: owner, cancel: cancel, done: make(chan struct{}), replaced: replaced, revision: revision}
	if isolate, why := s.isolate(c); isolate && owner == nil {
		s.workers++
		e.worker = newWorker(s, s.workers, why, wished, revision, replaced)
		if why != "" {
			s.cfg.Logger.Warn("a camera is given a process of its own", slog.String("camera", c.Name), slog.String("why", why))
		}
	} else {
		e.bus = framebus.New(framebus.Config{Camera: c.Name, Slots: c.Slots, LeaseTime: s.cfg.LeaseTime, Leases: &s.leases})
		e.camera = camera.New(camera.Config{
			Camera: c, Deadlines: s.cfg.Deadlines, Backoff: s.cfg.Backoff, Bus: e.bus, Mint: s.mint,
			Source: func(c ingest.Camera, d camera.Deadlines) ingest.Source { return s.source(c, d, &e.tap) }, Dials: s.dials, Decodes: s.decodes, FileThreads: s.decodes.Places(), Logger: s.cfg.Logger,
			Engine:   s.cfg.Engine,
			OnStatus: func(st camera.Status) { s.status(e, st) },
		})
		e.second = s.newSecond(e, c)
	}
	s.mu.Lock()
	before := s.leaving[c.Name]
	s.cameras[c.Name] = e
	conns := make([]*conn, 0, len(s.conns))
	for k := range s.conns {
		conns = append(conns, k)
	}
	s.mu.Unlock()
	for _, k := range conns {
		k.follow(e)
		k.followUnits(e)
	}
	if e.worker != nil {
		status, _ := e.worker.now()
		e.worker.tell(proto.CloneOf(status))
	}
	s.running.Go(func() {
		defer s.left(e)
		if before != nil {
			<-before
		}
		crash.Blame(ctx, c.Name, e.run)
	})
}

// left is called when a removed camera has ended.
func (s *Sidecar) left(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving[e.name] == e.done {
		delete(s.leaving, e.name)
	}
	close(e.done)
}

// run keeps the camera until ctx ends.
func (e *entry) run(ctx context.Context) {
	if e.worker != nil {
		e.worker.run(ctx)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { e.second.run(ctx) })
	// Run returns nothing but nil.
	_ = e.camera.Run(ctx)
	e.bus.Close()
	wg.Wait()
}

// source chooses by the address.
func (s *Sidecar) source(c ingest.Camera, d camera.Deadlines, tap *packetdump.Tap) ingest.Source {
	if err := c.Check(); err != nil {
		return broken{&ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: err}}
	}
	if path := ingest.FilePath(c.Address); path != "" {
		return file.New(file.Config{Path: path, FullSpeed: c.FullSpeed, Logger: s.cfg.Logger.With(slog.String("camera", c.Name))})
	}
	return s.sharing.source(c, tap, func(tap rtsp.Tap) ingest.Source {
		switch {
		case strings.HasPrefix(c.Address, "http"):
			return jpegs.New(jpegs.Config{Camera: c, DialTimeout: d.Dial, AnswerTimeout: d.Answer})
		case address.IsDevice(c.Address):
			return device.New(device.Config{Camera: c, Open: s.cfg.Device})
		default:
			return rtsp.New(rtsp.Config{Camera: c, DialTimeout: d.Dial, AnswerTimeout: d.Answer, Tap: tap})
		}
	})
}

// broken is the source of a camera whose settings cannot work.
type broken struct{ err error }

func (b broken) Run(context.Context, ingest.Sink) error { return b.err }

func (s *Sidecar) remove(e *entry) {
	s.mu.Lock()
	if s.cameras[e.name] == e {
		delete(s.cameras, e.name)
		s.leaving[e.name] = e.done
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	e.cancel()
	if e.worker != nil {
		for _, c := range conns {
			c.dropRelay(e.worker)
		}
	}
	s.tell(e, &ingestv1.FromIngest{Message: &ingestv1.FromIngest_CameraStatus{
		CameraStatus: &ingestv1.CameraStatus{Camera: e.name, Removed: true, Revision: e.revision},
	}})
}

func (s *Sidecar) removeAll() {
	for _, e := range s.entries() {
		s.remove(e)
	}
}

// status tells every client of a camera's new state.
func (s *Sidecar) status(e *entry, st camera.Status) {
	s.mu.Lock()
	here := s.cameras[e.name] == e
	m := e.status(st)
	s.mu.Unlock()
	if here {
		s.tell(e, m)
	}
}

// now returns the newest status; Sidecar.mu is held.
func (e *entry) now() *ingestv1.FromIngest {
	if e.worker == nil {
		return e.status(e.camera.Status())
	}
	status, _ := e.worker.now()
	return &ingestv1.FromIngest{Message: &ingestv1.FromIngest_CameraStatus{CameraStatus: status}}
}

// status writes a status; Sidecar.mu is held.
func (e *entry) status(st camera.Status) *ingestv1.FromIngest {
	m := &ingestv1.CameraStatus{
		Camera: e.name, State: ingestv1.CameraState(st.State), Stage: ingestv1.Stage(st.Stage),
		SinceTimeNs: wire.Time(st.Since), NextAttemptTimeNs: wire.Time(st.NextAttempt), Attempts: wire.Side(st.Attempts),
		Revision: e.revision, Applied: cmp.Or(ingestv1.Applied(st.Applied), e.replaced),
	}
	if st.Err != nil {
		m.Error = wire.Fault(st.Err)
	}
	if st.Epoch != nil {
		m.StreamEpoch = st.Epoch.ID
	}
	if st.Stream.Codec != 0 {
		m.Stream = details(st.Stream)
		seen := e.camera.Measured()
		measured(m.Stream, seen)
		m.Gate = ingestv1.GateState(seen.Gate)
	}
	m.Main = e.second.status()
	return &ingestv1.FromIngest{Message: &ingestv1.FromIngest_CameraStatus{CameraStatus: m}}
}

func details(d ingest.Stream) *ingestv1.StreamDetails {
	return &ingestv1.StreamDetails{
		Codec: ingestv1.Codec(d.Codec), Profile: d.Profile, Width: wire.Side(d.Width), Height: wire.Side(d.Height),
		Transport: ingestv1.Transport(d.Transport),
	}
}

// measured adds what the running session has seen of a stream.
func measured(d *ingestv1.StreamDetails, m camera.Measured) {
	d.Rate, d.BitRate, d.Gop = m.Rate, m.BitRate, wire.Side(m.GOP)
	d.Decoder, d.DecoderFallback = m.Decoder, m.DecoderFallback
	d.SenderReports, d.ClockOffsetNs = m.SenderReports, int64(m.ClockOffset)
}

// counters returns nil when there are none yet.
func (e *entry) counters() *ingestv1.Counters {
	if e.worker != nil {
		_, counts := e.worker.now()
		return counts
	}
	n, f := e.camera.Counts(), e.bus.Counts()
	return &ingestv1.Counters{
		Camera: e.name, Packets: n.Packets, Bytes: n.Bytes, PacketsLost: n.PacketsLost, PacketsBad: n.PacketsBad,
		AccessUnits: n.AccessUnits, Keyframes: n.Keyframes,
		DroppedDecodeLate: n.Decode.Late, DroppedNoKeyframe: n.Decode.NoKeyframe, FramesDecoded: n.Decode.Decoded,
		FramesTainted: n.Decode.Tainted, DecodeErrors: n.Decode.Errors, FramesUnsampled: n.Decode.Unsampled, FramesGated: n.Gated + n.Decode.Still,
		FramesAnnounced: f.Announced, DroppedNoSlot: f.NoSlot, DroppedNoLease: f.NoLease, LeasesExpired: f.Expired,
		Reconnects: n.Reconnects, Pictures: e.stills.encodedCount(), DroppedSlowWatcher: n.SlowWatcher, FrameAgeNs: int64(n.FrameAge),
		DecoderFallbacks: n.Decode.Fallbacks, DecodersAbandoned: n.Abandoned, DecodeCpuNs: int64(n.Decode.CPU),
	}
}
