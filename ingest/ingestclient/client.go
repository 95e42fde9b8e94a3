// Package ingestclient is the other end of the ingest sidecar's socket, for the appliance and whoever
// else wants cameras. It needs no C library.
package ingestclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/unixmsg"
)

// State of the connection to the sidecar.
type State int

// The states.
const (
	Disconnected State = iota
	Connected
	// Upgrading: the sidecar was built from another contract; the client waits for one of
	// the two to be replaced.
	Upgrading
)

// String names the state as it is shown.
func (s State) String() string {
	return [...]string{"DISCONNECTED", "CONNECTED", "UPGRADING"}[max(0, min(int(s), 2))]
}

// Handler is told what the sidecar says, by one goroutine, in order. Nil functions are left out.
// Messages may be kept but not changed. A function that blocks holds up everything behind it.
type Handler struct {
	// State of the connection, with the sidecar's Hello when there is one and the reason when
	// there is none. On Disconnected every lease, slot and watch is over.
	State  func(State, *ingestv1.Hello, error)
	Camera func(*ingestv1.CameraStatus)
	// SlotsOpened gives the memfd away: the handler closes it.
	SlotsOpened func(*ingestv1.SlotsOpened, *os.File)
	SlotsClosed func(*ingestv1.SlotsClosed)
	// Frame is leased to the handler: Release it, sooner rather than later.
	Frame       func(Frame)
	Description func(*ingestv1.StreamDescription)
	AccessUnit  func(*ingestv1.AccessUnit)
	Counters    func(*ingestv1.Counters)
	ClockStep   func(*ingestv1.ClockStep)
}

// Frame is a notice with its lease.
type Frame struct {
	*ingestv1.FrameNotice
	link *link
}

// Release ends the lease. Releasing twice, late or after the connection has ended does no harm.
func (f Frame) Release() { f.link.release(f.GetLeaseId()) }

// Config of a Client.
type Config struct {
	// Socket is the sidecar's path. Required.
	Socket string
	// Program is the name and version told to the sidecar.
	Program string
	Handler Handler
	// Retry is the pause between attempts to connect; 0: 200 ms.
	Retry  time.Duration
	Logger *slog.Logger // nil: discard
}

// Client keeps a connection to the sidecar. What it was asked to watch and which cameras it was given it
// says again after every reconnect.
type Client struct {
	cfg Config

	mu      sync.Mutex // guards everything below
	link    *link
	cameras *ingestv1.SetCameras
	frames  map[string]*ingestv1.WatchFrames
	units   map[string]*ingestv1.WatchAccessUnits
	changed chan struct{} // closed and replaced when link changes

	// heard is when the sidecar last said something, of those that say that they live; 0: none is connected.
	heard atomic.Int64
}

// New connects nothing.
func New(cfg Config) *Client {
	if cfg.Retry <= 0 {
		cfg.Retry = 200 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{
		cfg: cfg, frames: map[string]*ingestv1.WatchFrames{}, units: map[string]*ingestv1.WatchAccessUnits{}, changed: make(chan struct{}),
	}
}

// Run connects, and connects again, until ctx ends; it returns nil.
func (c *Client) Run(ctx context.Context) error {
	told := ""
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop
		}
		if err.Error() != told { // once, not five times a second
			level := slog.LevelWarn
			if told == "" && errors.Is(err, fs.ErrNotExist) {
				level = slog.LevelInfo // it is just being started
			}
			told = err.Error()
			c.cfg.Logger.Log(ctx, level, "no connection to the ingest sidecar", slog.Any("err", err))
		}
		t := time.NewTimer(c.cfg.Retry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	return nil
}

// session holds one connection.
func (c *Client) session(ctx context.Context) error {
	raw, err := (&net.Dialer{}).DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return fmt.Errorf("connect to the ingest sidecar: %w", err)
	}
	l := &link{msg: unixmsg.New(raw.(*net.UnixConn)), pictures: map[uint64]chan *ingestv1.Picture{}, probes: map[uint64]chan *ingestv1.Probe{}, spans: map[uint64]*span{}, dumps: map[uint64]*dump{}}
	stop := context.AfterFunc(ctx, func() { _ = l.msg.Close() })
	defer stop()
	err = c.talk(l)
	_ = l.msg.Close()
	c.heard.Store(0)
	c.attach(nil)
	l.end()
	c.tell(Disconnected, nil, err)
	return err
}

func (c *Client) tell(s State, h *ingestv1.Hello, err error) {
	if c.cfg.Handler.State != nil {
		c.cfg.Handler.State(s, h, err)
	}
}

// attach makes l the connection others use, after telling it what is wanted.
func (c *Client) attach(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	close(c.changed)
	c.changed = make(chan struct{})
	if l == nil {
		return
	}
	if c.cameras != nil {
		l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_SetCameras{SetCameras: c.cameras}})
	}
	for _, w := range c.frames {
		l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: w}})
	}
	for _, w := range c.units {
		l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchAccessUnits{WatchAccessUnits: w}})
	}
}

func (c *Client) talk(l *link) error {
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_Hello{Hello: &ingestv1.Hello{Contract: ingestv1.Contract(), Program: c.cfg.Program}}})
	defer l.msg.Discard()
	for {
		payload, files, err := l.msg.Receive()
		if err != nil {
			return fmt.Errorf("connection to the ingest sidecar: %w", err)
		}
		m := &ingestv1.FromIngest{}
		if err := proto.Unmarshal(payload, m); err != nil {
			closeAll(files)
			return fmt.Errorf("message from the ingest sidecar: %w", err)
		}
		if m.GetAlive() != nil || c.heard.Load() != 0 {
			c.heard.Store(int64(ingest.Now().Mono))
		}
		if h := m.GetHello(); h != nil {
			closeAll(files)
			if h.GetContract() != ingestv1.Contract() {
				c.tell(Upgrading, h, nil)
				continue
			}
			c.tell(Connected, h, nil)
			c.attach(l)
			continue
		}
		c.handle(l, m, files)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func (c *Client) handle(l *link, m *ingestv1.FromIngest, files []*os.File) {
	h := c.cfg.Handler
	switch m := m.GetMessage().(type) {
	case *ingestv1.FromIngest_FrameNotice:
		f := Frame{FrameNotice: m.FrameNotice, link: l}
		if h.Frame == nil {
			f.Release()
			break
		}
		h.Frame(f)
	case *ingestv1.FromIngest_SlotsOpened:
		if h.SlotsOpened != nil && len(files) == 1 {
			h.SlotsOpened(m.SlotsOpened, files[0])
			return
		}
	case *ingestv1.FromIngest_Picture:
		l.answer(m.Picture)
	case *ingestv1.FromIngest_Probe:
		l.answerProbe(m.Probe)
	case *ingestv1.FromIngest_AccessUnits:
		l.answerSpan(m.AccessUnits)
	case *ingestv1.FromIngest_PacketDump:
		l.answerDump(m.PacketDump)
	case *ingestv1.FromIngest_CameraStatus:
		call(h.Camera, m.CameraStatus)
	case *ingestv1.FromIngest_SlotsClosed:
		call(h.SlotsClosed, m.SlotsClosed)
	case *ingestv1.FromIngest_StreamDescription:
		call(h.Description, m.StreamDescription)
	case *ingestv1.FromIngest_AccessUnit:
		call(h.AccessUnit, m.AccessUnit)
	case *ingestv1.FromIngest_Counters:
		call(h.Counters, m.Counters)
	case *ingestv1.FromIngest_ClockStep:
		call(h.ClockStep, m.ClockStep)
	}
	closeAll(files)
}

func call[T any](f func(T), m T) {
	if f != nil {
		f(m)
	}
}

// SetCameras makes this the whole list of cameras, now and after every reconnect.
func (c *Client) SetCameras(m *ingestv1.SetCameras) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cameras = proto.CloneOf(m)
	if c.link != nil {
		c.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_SetCameras{SetCameras: c.cameras}})
	}
}

// WatchFrames starts or stops frames of a camera ("": all), now and after every reconnect.
func (c *Client) WatchFrames(m *ingestv1.WatchFrames) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames[m.GetCamera()] = proto.CloneOf(m)
	if m.GetStop() {
		delete(c.frames, m.GetCamera())
	}
	if c.link != nil {
		c.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: m}})
	}
}

// WatchAccessUnits starts or stops the coded stream of a camera, now and after every reconnect.
func (c *Client) WatchAccessUnits(m *ingestv1.WatchAccessUnits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.units[m.GetCamera()] = proto.CloneOf(m)
	if m.GetStop() {
		delete(c.units, m.GetCamera())
	}
	if c.link != nil {
		c.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchAccessUnits{WatchAccessUnits: m}})
	}
}

// ErrDisconnected says: there is no connection to the sidecar now.
var ErrDisconnected = errors.New("the ingest sidecar is not connected")

// Picture asks for a JPEG; request_id is the client's business. The error is an *ingest.Error, ErrDisconnected or
// the context's.
func (c *Client) Picture(ctx context.Context, m *ingestv1.GetPicture) (*ingestv1.Picture, error) {
	l := c.current()
	if l == nil {
		return nil, ErrDisconnected
	}
	m = proto.CloneOf(m)
	id, answer := l.ask()
	defer l.forget(id)
	m.RequestId = id
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetPicture{GetPicture: m}})
	select {
	case p, ok := <-answer:
		if !ok {
			return nil, ErrDisconnected
		}
		if e := p.GetError(); e != nil {
			return nil, &ingest.Error{Reason: ingest.Reason(e.GetReason()), Err: errors.New(e.GetMessage())}
		}
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Probe tries a camera without adding it. A Probe with an error in it is an answer, not an error.
func (c *Client) Probe(ctx context.Context, m *ingestv1.GetProbe) (*ingestv1.Probe, error) {
	l := c.current()
	if l == nil {
		return nil, ErrDisconnected
	}
	m = proto.CloneOf(m)
	id, answer := l.askProbe()
	defer l.forget(id)
	m.RequestId = id
	l.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetProbe{GetProbe: m}})
	select {
	case p, ok := <-answer:
		if !ok {
			return nil, ErrDisconnected
		}
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Silent is how long the sidecar has said nothing; 0 while there is no connection, or it has yet to say that it lives.
func (c *Client) Silent() time.Duration {
	if at := c.heard.Load(); at != 0 {
		return ingest.Now().Mono - time.Duration(at)
	}
	return 0
}

// WaitConnected returns when the sidecar is connected, or with ctx's error.
func (c *Client) WaitConnected(ctx context.Context) error {
	for {
		c.mu.Lock()
		l, changed := c.link, c.changed
		c.mu.Unlock()
		if l != nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}
