package sidecar_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
	"github.com/vedette/vedette/internal/unixmsg"
)

// dial connects to a sidecar by hand.
func dial(t *testing.T, socket string) *unixmsg.Conn {
	t.Helper()
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := unixmsg.New(raw.(*net.UnixConn))
	t.Cleanup(func() { _ = c.Close(); c.Discard() })
	return c
}

func send(t *testing.T, c *unixmsg.Conn, m *ingestv1.ToIngest) {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(b); err != nil {
		t.Fatal(err)
	}
}

func hello(contract string) *ingestv1.ToIngest {
	return &ingestv1.ToIngest{Message: &ingestv1.ToIngest_Hello{Hello: &ingestv1.Hello{Contract: contract}}}
}

func TestAClientOfAnotherContractWaitsAndDisturbsNobody(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	r.frame().Release()
	old := dial(t, r.socket)
	if _, _, err := old.Receive(); err != nil {
		t.Fatal(err)
	}
	send(t, old, hello("of last year"))
	send(t, old, &ingestv1.ToIngest{Message: &ingestv1.ToIngest_SetCameras{SetCameras: &ingestv1.SetCameras{}}})
	for range 20 {
		r.frame().Release() // the camera was not removed
	}
}

func TestASidecarOfAnotherContractIsReportedAsUpgrading(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	states := make(chan ingestclient.State, 100)
	c := ingestclient.New(ingestclient.Config{Socket: socket, Handler: ingestclient.Handler{
		State: func(s ingestclient.State, _ *ingestv1.Hello, _ error) { put(states, s) },
	}})
	run(t, c.Run)
	raw, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	b, err := proto.Marshal(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Hello{Hello: &ingestv1.Hello{Contract: "of next year"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unixmsg.New(raw).Send(b); err != nil {
		t.Fatal(err)
	}
	next(t, states, "UPGRADING", func(s ingestclient.State) bool { return s == ingestclient.Upgrading })
	if _, err := c.Picture(t.Context(), &ingestv1.GetPicture{}); err == nil {
		t.Error("a picture was asked of a sidecar that waits for its upgrade")
	}
}

func TestTheSlotsOfAClientThatDiesAreFree(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{LeaseTime: time.Hour})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	r.frame().Release()
	// Another client takes every slot and reads nothing but its notices.
	thief := dial(t, r.socket)
	send(t, thief, hello(ingestv1.Contract()))
	send(t, thief, &ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchFrames{WatchFrames: &ingestv1.WatchFrames{}}})
	var reading sync.WaitGroup
	t.Cleanup(func() { _ = thief.Close(); reading.Wait() })
	reading.Go(func() {
		for {
			_, files, err := thief.Receive()
			for _, f := range files {
				_ = f.Close()
			}
			if err != nil {
				return
			}
		}
	})
	release := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case f := <-r.frames:
				f.Release()
			case <-release:
				return
			}
		}
	})
	next(t, r.counts, "dropped frames", func(c *ingestv1.Counters) bool { return c.GetDroppedNoSlot() > 3 })
	_ = thief.Close()
	close(release)
	wg.Wait()
	for range 20 {
		r.frame().Release()
	}
}

func TestGarbageEndsTheConnectionAlone(t *testing.T) {
	r := start(t, sidecar.Config{})
	for name, payload := range map[string][]byte{"no message": []byte("\xff\xff\xff"), "a request before Hello": {0x12, 0}} {
		c := dial(t, r.socket)
		if err := c.Send(payload); err != nil {
			t.Fatal(err)
		}
		for {
			if _, _, err := c.Receive(); err != nil {
				break
			}
		}
		_ = name
	}
	if _, err := r.client.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "none"}}); err == nil || !strings.HasPrefix(err.Error(), "NOT_FOUND") {
		t.Errorf("the other client's answer: %v", err)
	}
}

func TestStartAndStopAtOnceTenTimes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		s := sidecar.New(sidecar.Config{Socket: socket})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		cancel()
		wg.Wait()
	}
}

func TestASocketInUseIsNotTaken(t *testing.T) {
	r := start(t, sidecar.Config{})
	err := sidecar.New(sidecar.Config{Socket: r.socket}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("got %v", err)
	}
}
