package ingestclient_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/internal/unixmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a sidecar that says what a test tells it to.
type peer struct {
	t    *testing.T
	l    *net.UnixListener
	conn *unixmsg.Conn
}

func listen(t *testing.T) *peer {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &peer{t: t, l: l}
}

// accept takes the client's next connection and greets it.
func (p *peer) accept() {
	p.t.Helper()
	raw, err := p.l.AcceptUnix()
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn = unixmsg.New(raw)
	p.t.Cleanup(func() { _ = p.conn.Close(); p.conn.Discard() })
	if p.next().GetHello().GetContract() != ingestv1.Contract() {
		p.t.Error("the client does not begin with its contract")
	}
	p.say(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Hello{Hello: &ingestv1.Hello{Contract: ingestv1.Contract()}}})
}

func (p *peer) next() *ingestv1.ToIngest {
	p.t.Helper()
	b, _, err := p.conn.Receive()
	if err != nil {
		p.t.Fatal(err)
	}
	m := &ingestv1.ToIngest{}
	if err := proto.Unmarshal(b, m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *peer) say(m *ingestv1.FromIngest, files ...*os.File) {
	p.t.Helper()
	b, err := proto.Marshal(m)
	if err == nil {
		err = p.conn.Send(b, files...)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func run(t *testing.T, p *peer, h ingestclient.Handler) *ingestclient.Client {
	t.Helper()
	c := ingestclient.New(ingestclient.Config{Socket: p.l.Addr().String(), Program: "test", Handler: h, Retry: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

func TestWhatIsWantedIsSaidAgainAfterAReconnect(t *testing.T) {
	p := listen(t)
	c := run(t, p, ingestclient.Handler{})
	c.SetCameras(&ingestv1.SetCameras{Revision: 1})
	c.SetCameras(&ingestv1.SetCameras{Revision: 2})
	c.WatchFrames(&ingestv1.WatchFrames{Camera: "a"})
	c.WatchFrames(&ingestv1.WatchFrames{Camera: "b"})
	c.WatchFrames(&ingestv1.WatchFrames{Camera: "b", Stop: true})
	c.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: "c", PreRollNs: 5})
	for range 3 {
		p.accept()
		var revision uint64
		var watched, units []string
		for range 3 {
			m := p.next()
			revision = max(revision, m.GetSetCameras().GetRevision())
			if w := m.GetWatchFrames(); w != nil {
				watched = append(watched, w.GetCamera())
			}
			if w := m.GetWatchAccessUnits(); w != nil && w.GetPreRollNs() == 5 {
				units = append(units, w.GetCamera())
			}
		}
		if revision != 2 || len(watched) != 1 || watched[0] != "a" || len(units) != 1 {
			t.Errorf("said again: revision %d, frames of %v, units of %v", revision, watched, units)
		}
		_ = p.conn.Close()
	}
}

func TestAnswersFindWhoeverAskedAndNobodyWaitsForADeadSidecar(t *testing.T) {
	p := listen(t)
	c := run(t, p, ingestclient.Handler{})
	if _, err := c.Picture(t.Context(), &ingestv1.GetPicture{}); !errors.Is(err, ingestclient.ErrDisconnected) {
		t.Errorf("before there is a connection: %v", err)
	}
	p.accept()
	if err := c.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		width uint32
		err   error
	}
	ask := func(width uint32) chan answer {
		ch := make(chan answer, 1)
		go func() {
			m, err := c.Picture(t.Context(), &ingestv1.GetPicture{MaxWidth: width})
			ch <- answer{m.GetWidth(), err}
		}()
		return ch
	}
	first, second := ask(1), ask(2)
	asked := map[uint32]uint64{}
	for range 2 {
		m := p.next().GetGetPicture()
		asked[m.GetMaxWidth()] = m.GetRequestId()
	}
	reply := func(width uint32, e *ingestv1.Error) {
		p.say(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Picture{Picture: &ingestv1.Picture{RequestId: asked[width], Width: width, Error: e}}})
	}
	reply(2, nil)
	reply(2, nil) // twice does no harm
	reply(1, &ingestv1.Error{Reason: ingestv1.ErrorReason_ERROR_REASON_GONE, Message: "too late"})
	if a := <-second; a.width != 2 || a.err != nil {
		t.Errorf("the second: %+v", a)
	}
	if a := <-first; a.err == nil || ingest.AsError(a.err).Reason != ingest.ReasonGone {
		t.Errorf("the first: %+v", a)
	}
	third := ask(3)
	dump := make(chan error, 1)
	p.next()
	go func() {
		_, err := c.DumpPackets(t.Context(), &ingestv1.DumpPackets{}, func([]byte) error { return nil })
		dump <- err
	}()
	p.next()
	_ = p.conn.Close()
	if a := <-third; !errors.Is(a.err, ingestclient.ErrDisconnected) {
		t.Errorf("a question to a dead sidecar: %+v", a)
	}
	if err := <-dump; !errors.Is(err, ingestclient.ErrDisconnected) {
		t.Errorf("a dump of a dead sidecar: %v", err)
	}
}

func TestDescriptorsNobodyTakesAreClosed(t *testing.T) {
	p := listen(t)
	opened := make(chan *os.File, 1)
	steps := make(chan *ingestv1.ClockStep, 1)
	run(t, p, ingestclient.Handler{
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { opened <- f },
		ClockStep:   func(s *ingestv1.ClockStep) { steps <- s },
	})
	p.accept()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // read only
	// A message that should carry none, one that should carry one and carries two.
	p.say(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_ClockStep{ClockStep: &ingestv1.ClockStep{StepNs: 1}}}, w)
	p.say(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsOpened{SlotsOpened: &ingestv1.SlotsOpened{}}}, w, w)
	p.say(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsOpened{SlotsOpened: &ingestv1.SlotsOpened{}}}, w)
	<-steps
	if err := errors.Join(w.Close(), (<-opened).Close()); err != nil {
		t.Fatal(err)
	}
	// Every other copy of the writing end is closed, or this read never ends.
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d, %v", n, err)
	}
}
