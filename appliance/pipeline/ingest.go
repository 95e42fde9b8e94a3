package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
)

// ErrIngestGone says that the ingest sidecar is not there.
var ErrIngestGone = ingestclient.ErrDisconnected

// ErrUpgrading says that the ingest sidecar speaks another version of the contract.
var ErrUpgrading = errors.New("the ingest sidecar is of another version: an upgrade is under way, or only one of the two was replaced")

// ErrSilent says that a sidecar is connected and does not answer: it is stopped, or stuck.
var ErrSilent = errors.New("no answer")

// silent is the fault of a sidecar that has said nothing for d; nil when that is not long.
func (p *Pipeline) silent(d time.Duration) error {
	if d < p.cfg.Silence {
		return nil
	}
	return fmt.Errorf("%w for %d s: the process is stopped, or stuck", ErrSilent, int(d.Seconds()))
}

// ingestLink is what the pipeline does with what the ingest sidecar says.
type ingestLink struct {
	p      *Pipeline
	client *ingestclient.Client

	telling sync.Mutex // one list of cameras at a time
	slots   openSlots

	mu       sync.Mutex // guards what follows
	err      error      // why there is no connection
	revision uint64
	states   map[string]ingestv1.CameraState
}

func newIngestLink(p *Pipeline) *ingestLink {
	l := &ingestLink{p: p, err: ErrIngestGone, states: map[string]ingestv1.CameraState{}, slots: openSlots{open: map[string]addressedSlots{}}}
	l.client = ingestclient.New(ingestclient.Config{
		Socket: p.cfg.IngestSocket, Program: "vedette", Retry: p.cfg.Retry, Logger: p.cfg.Logger,
		Handler: ingestclient.Handler{
			State: l.state, Camera: l.camera, SlotsOpened: l.slotsOpened, SlotsClosed: l.slotsClosed, Frame: l.frame,
			Counters: l.counters, ClockStep: l.clockStep,
		},
	})
	l.client.WatchFrames(&ingestv1.WatchFrames{})
	return l
}

// cameras tells the sidecar what is wanted.
func (l *ingestLink) cameras() {
	l.telling.Lock() // an older list must not follow a newer one
	defer l.telling.Unlock()
	set := &ingestv1.SetCameras{}
	l.p.mu.Lock()
	for i := range l.p.wanted {
		set.Cameras = append(set.Cameras, l.p.limitedLocked(&l.p.wanted[i]))
	}
	l.p.mu.Unlock()
	l.mu.Lock()
	l.revision++
	set.Revision = l.revision
	l.mu.Unlock()
	l.client.SetCameras(set)
}

// fault returns why there is no connection, or no answer, or nil.
func (l *ingestLink) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return l.p.silent(l.client.Silent())
}

// listen tells the observer when the sidecar falls silent, and when it is heard again, until ctx ends. One that stays silent
// is started anew, where this program runs it.
func (l *ingestLink) listen(ctx context.Context) error {
	tick := time.NewTicker(l.p.cfg.Silence / 6)
	defer tick.Stop()
	was := false
	looks := 0 // at a silent sidecar, one after the other: when this process was stopped itself, what came meanwhile is read by the second
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		d := l.client.Silent()
		if looks++; d < l.p.cfg.Silence {
			looks = 0
		}
		is := looks >= 2
		if restart := l.p.cfg.RestartIngest; restart != nil && looks >= 24 {
			restart(l.p.silent(d).Error())
			looks = 2
		}
		if is == was {
			continue
		}
		was = is
		if is {
			l.p.cfg.Logger.Warn("the ingest sidecar does not answer", slog.Duration("for", d))
			l.p.cfg.Observer.Silent()
		} else if l.fault() == nil {
			l.p.cfg.Logger.Info("the ingest sidecar answers again")
			l.p.cfg.Observer.Online()
		}
	}
}

// state follows the connection. When it ends, every stream epoch ends with it.
func (l *ingestLink) state(s ingestclient.State, hello *ingestv1.Hello, err error) {
	l.mu.Lock()
	had := l.err == nil
	switch s {
	case ingestclient.Connected:
		l.err = nil
	case ingestclient.Upgrading:
		l.err = ErrUpgrading
	case ingestclient.Disconnected:
		l.err = errors.Join(ErrIngestGone, err)
		clear(l.states)
		l.p.mu.Lock()
		clear(l.p.streams)
		l.p.mu.Unlock()
	}
	l.mu.Unlock()
	if s != ingestclient.Connected {
		l.slots.clear()
	}
	if s == ingestclient.Connected {
		l.p.cfg.Observer.Online()
		l.p.cfg.Logger.Info("ingest connected", slog.String("program", hello.GetProgram()), slog.String("instance", hello.GetInstance()))
	}
	if had && s != ingestclient.Connected {
		l.p.cfg.Observer.Offline()
	}
	if s == ingestclient.Upgrading {
		l.p.cfg.Observer.Upgrading()
	}
	if !had || s == ingestclient.Connected {
		return
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for _, r := range l.p.lanes {
		r.lane.put(epochClosed{reason: "INGEST_RESTARTED"})
	}
}

func (l *ingestLink) slotsOpened(m *ingestv1.SlotsOpened, file *os.File) {
	l.slots.put(m, file, l.p.address(m.GetCamera()))
	if lane := l.p.lane(m.GetCamera()); lane == nil || !lane.put(epochOpened{slots: m, file: file}) {
		_ = file.Close()
	}
}

func (l *ingestLink) slotsClosed(m *ingestv1.SlotsClosed) {
	l.slots.forget(m.GetCamera(), m.GetStreamEpoch())
	if lane := l.p.lane(m.GetCamera()); lane != nil {
		lane.put(epochClosed{epoch: m.GetStreamEpoch(), reason: "STREAM_ENDED"})
	}
}

// frame passes a frame on to its lane; a live camera's older one gives way.
func (l *ingestLink) frame(f ingestclient.Frame) {
	lane := l.p.lane(f.GetCamera())
	if lane == nil {
		f.Release()
		return
	}
	if t := lane.turns.Load(); t != nil {
		t.arrived(f.GetCamera())
	}
	cause := dropBusy
	if lane.inLine.Load() {
		cause = dropNoTurn
	}
	displaced, ok := lane.announce(f, !lane.everyFrame.Load())
	if !ok {
		f.Release()
	}
	for _, d := range displaced {
		lane.put(dropped{cause: cause})
		d.Release()
	}
}

// camera passes a camera's state on and makes an event of a change.
func (l *ingestLink) camera(s *ingestv1.CameraStatus) {
	if s.GetRemoved() {
		return
	}
	l.mu.Lock()
	before, known := l.states[s.GetCamera()]
	l.states[s.GetCamera()] = s.GetState()
	l.mu.Unlock()
	l.p.mu.Lock()
	if l.p.lanes[s.GetCamera()] != nil {
		l.p.streams[s.GetCamera()] = s
	}
	n := l.p.counters[s.GetCamera()]
	l.p.mu.Unlock()
	l.p.cfg.Observer.Stream(s.GetCamera(), s, n)
	if (known && before == s.GetState()) || l.p.lane(s.GetCamera()) == nil {
		return
	}
	attributes := map[string]string{"state": strings.TrimPrefix(s.GetState().String(), "CAMERA_STATE_")}
	if known {
		attributes["before"] = strings.TrimPrefix(before.String(), "CAMERA_STATE_")
	}
	if e := s.GetError(); e != nil {
		attributes["reason"] = strings.TrimPrefix(e.GetReason().String(), "ERROR_REASON_")
		attributes["message"] = e.GetMessage()
	}
	l.p.event(context.Background(), s.GetCamera(), "camera_state", l.p.cfg.Now(), attributes)
}

func (l *ingestLink) counters(m *ingestv1.Counters) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.lanes[m.GetCamera()] != nil {
		l.p.counters[m.GetCamera()] = m
	}
}

func (l *ingestLink) clockStep(m *ingestv1.ClockStep) {
	l.p.event(context.Background(), "", "clock_step", l.p.cfg.Now(), map[string]string{"step": time.Duration(m.GetStepNs()).String()})
}

// Picture asks the ingest sidecar for a picture.
func (p *Pipeline) Picture(ctx context.Context, req *ingestv1.GetPicture) (*ingestv1.Picture, error) {
	return p.ingest.client.Picture(ctx, req)
}

// Probe has the ingest sidecar try a camera once. A fault of the camera is in the answer.
func (p *Pipeline) Probe(ctx context.Context, camera *ingestv1.Camera) (*ingestv1.Probe, error) {
	return p.ingest.client.Probe(ctx, &ingestv1.GetProbe{Camera: camera})
}

// AccessUnits hands take the coded pictures of a camera from one capture time to another (at most 5 minutes), in decoding
// order, beginning with the last keyframe at or before from, or with the oldest that is still kept: the ring of a camera
// holds 8 MiB and 30 s unless its settings say otherwise. They are those of the main stream when that is kept connected.
// A span that reaches into the future is followed to its end, so a clip of an event is asked for at once, not when its
// end has come. Before the first unit, and when the stream changes in mid-span, the description is not nil: codec, size,
// parameter sets, and masked, which says that the camera has privacy masks that coded pictures do not show: such a clip
// must not be kept or shown without the right to see unmasked pictures. internal/fmp4 makes a file of it.
//
// The error is take's, ErrIngestGone, the context's, or says why there is nothing ("GONE: …").
func (p *Pipeline) AccessUnits(ctx context.Context, camera string, from, to time.Time, take func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error) error {
	return p.ingest.client.AccessUnits(ctx, &ingestv1.GetAccessUnits{Camera: camera, FromTimeNs: from.UnixNano(), ToTimeNs: to.UnixNano(), Main: true}, take)
}

// DumpPackets has the ingest sidecar show what it and a camera say to each other. Packets that take was too slow for are
// left out, and logged.
func (p *Pipeline) DumpPackets(ctx context.Context, m *ingestv1.DumpPackets, take func([]byte) error) error {
	dropped, err := p.ingest.client.DumpPackets(ctx, m, take)
	if dropped > 0 {
		p.cfg.Logger.Warn("a packet dump has gaps", slog.String("camera", m.GetCamera()), slog.Uint64("packets", dropped))
	}
	return err
}
