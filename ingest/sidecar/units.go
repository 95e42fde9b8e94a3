package sidecar

import (
	"context"
	"errors"
	"fmt"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/wire"
)

// unitsKey names a stream.
type unitsKey struct {
	camera string
	main   bool
}

// watchUnits begins or ends a stream's access units.
func (c *conn) watchUnits(m *ingestv1.WatchAccessUnits) {
	key := unitsKey{m.GetCamera(), m.GetMain()}
	c.mu.Lock()
	c.rolls[key] = time.Duration(m.GetPreRollNs())
	if m.GetStop() {
		delete(c.rolls, key)
	}
	c.mu.Unlock()
	if e := c.s.entry(m.GetCamera()); e != nil {
		c.followStream(e, m.GetMain())
	} else {
		c.dropUnits(key)
	}
}

// dropUnits ends a stream's access units.
func (c *conn) dropUnits(key unitsKey) {
	c.mu.Lock()
	old := c.units[key]
	delete(c.units, key)
	c.mu.Unlock()
	if old != nil {
		old.stop()
	}
}

// followUnits watches a camera's access units if the client wishes.
func (c *conn) followUnits(e *entry) {
	c.followStream(e, false)
	c.followStream(e, true)
}

func (c *conn) followStream(e *entry, main bool) {
	if !c.mayHear(e) {
		return
	}
	key := unitsKey{e.name, main}
	c.mu.Lock()
	roll, want := c.rolls[key]
	if e.worker != nil {
		known := c.relays[e.worker] != nil
		c.mu.Unlock()
		if !want && !known {
			return
		}
		if r := c.relay(e.worker); r != nil {
			r.watch(map[bool]string{false: "units", true: "main units"}[main], &ingestv1.ToIngest{Message: &ingestv1.ToIngest_WatchAccessUnits{WatchAccessUnits: &ingestv1.WatchAccessUnits{
				Camera: e.name, Main: main, Stop: !want, PreRollNs: int64(roll),
			}}})
		}
		return
	}
	want = want && !c.ended
	c.mu.Unlock()
	if !want {
		c.dropUnits(key)
		return
	}
	stream, release := e.stream(main) // before the one of the same camera that it replaces, perhaps, lets go
	c.dropUnits(key)
	w := &unitWatcher{describer: describer{name: e.name, main: main}, out: c.out, camera: stream, release: release}
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.units[key] = w
	}
	c.mu.Unlock()
	if ended {
		release()
		return
	}
	stream.WatchUnits(w, roll)
	c.mu.Lock()
	ended = c.ended
	c.mu.Unlock()
	if ended { // between the two locks
		w.stop()
	}
}

// unitWatcher hands one stream's access units to one client.
type unitWatcher struct {
	describer // used by the camera alone

	out     *outbox
	camera  *camera.Camera
	release func() // lets the stream go
}

func (w *unitWatcher) stop() {
	w.camera.UnwatchUnits(w)
	w.release()
}

// Coded is part of camera.UnitWatcher.
func (w *unitWatcher) Coded(c camera.Coded) bool {
	before := w.describer
	description, u := w.write(c)
	if description != nil && !w.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_StreamDescription{StreamDescription: description}}, nil) {
		w.describer = before
		return false
	}
	return w.out.putUnit(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_AccessUnit{AccessUnit: u}}, len(c.Unit.Data))
}

// describer writes access units and says when their stream needs describing anew. Not safe for concurrent use.
type describer struct {
	name   string
	main   bool
	epoch  *ingest.Epoch // described last
	stream ingest.Stream
}

// write returns the unit and, when it is the first of its kind, the description that goes before it.
func (d *describer) write(c camera.Coded) (*ingestv1.StreamDescription, *ingestv1.AccessUnit) {
	u := &ingestv1.AccessUnit{
		Camera: d.name, Main: d.main, StreamEpoch: c.Epoch.ID, Number: c.Number, Keyframe: c.Unit.Keyframe, RtpTicks: int64(c.Unit.Ticks),
		CaptureTimeNs: c.Capture.UnixNano(), ReceiveTimeNs: c.Unit.Received.Wall.UnixNano(), Discontinuity: c.Unit.Lost,
	}
	if c.Stream.Codec == ingest.H264 || c.Stream.Codec == ingest.H265 {
		u.Units = bitstream.Units(c.Unit.Data)
	} else {
		u.Units = [][]byte{c.Unit.Data}
	}
	if d.epoch == c.Epoch && d.stream == c.Stream {
		return nil, u
	}
	d.epoch, d.stream = c.Epoch, c.Stream
	a := bitstream.NewAssembler(c.Stream.Codec)
	a.Assemble(u.Units)
	return &ingestv1.StreamDescription{
		Camera: d.name, Main: d.main, StreamEpoch: c.Epoch.ID, Codec: ingestv1.Codec(c.Stream.Codec), Width: wire.Side(c.Stream.Width), Height: wire.Side(c.Stream.Height),
		ParameterSets: a.ParameterSets(), Masked: c.Masked,
	}, u
}

// Spans of access units.
const (
	maxSpan = 5 * time.Minute
	// spanGrace is how long a span waits for units after its end by the box's clock.
	spanGrace = 2 * time.Second
	// reorder is how much later than its neighbours a picture may be shown: one that shows after the span's end
	// can stand before some that show within it.
	reorder = 500 * time.Millisecond
)

// getUnits begins or ends the answer to a GetAccessUnits.
func (c *conn) getUnits(ctx context.Context, m *ingestv1.GetAccessUnits) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	before := c.spans[m.GetRequestId()]
	if delete(c.spans, m.GetRequestId()); !m.GetCancel() {
		c.spans[m.GetRequestId()] = cancel
	}
	c.mu.Unlock()
	if before != nil {
		before()
	}
	if m.GetCancel() {
		cancel()
		return
	}
	c.wg.Go(func() {
		defer cancel()
		end := &ingestv1.AccessUnits{RequestId: m.GetRequestId(), Done: true, Error: wire.Fault(c.span(ctx, m))}
		c.mu.Lock()
		delete(c.spans, m.GetRequestId())
		c.mu.Unlock()
		c.out.put(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_AccessUnits{AccessUnits: end}}, nil)
	})
}

// span sends a span of access units; nil when it is complete or nobody wants it any more.
func (c *conn) span(ctx context.Context, m *ingestv1.GetAccessUnits) error {
	from, to := time.Unix(0, m.GetFromTimeNs()), time.Unix(0, m.GetToTimeNs())
	if d := to.Sub(from); d < 0 || d > maxSpan {
		return &ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: fmt.Errorf("a span of %s: it must be within 0 and %s", d, maxSpan)}
	}
	e := c.s.entry(m.GetCamera())
	if e == nil || !c.mayHear(e) {
		return &ingest.Error{Reason: ingest.ReasonNotFound, Err: errors.New("no camera of this name")}
	}
	// A main stream that comes and goes has not been there when it mattered.
	stream, release := e.stream(m.GetMain() && e.settings().KeepMain)
	defer release()
	place, kept := stream.UnitsFrom(from)
	if !kept {
		return &ingest.Error{Reason: ingest.ReasonInvalidConfig, Err: errors.New("the camera keeps no access units (its pre-roll is off)")}
	}
	over := time.NewTimer(time.Until(to) + spanGrace)
	defer over.Stop()
	d := describer{name: e.name, main: stream != e.camera}
	sent := false
	for {
		unit, behind, more := stream.NextUnit(place)
		place = behind
		if unit == nil {
			select {
			case <-more:
			case <-over.C:
				return complete(sent)
			case <-e.done:
				return complete(sent)
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if late := unit.Capture.Sub(to); late > reorder || late > 0 && unit.Unit.Keyframe {
			return complete(sent)
		}
		if !sent && !unit.Unit.Keyframe {
			continue // the group was cut
		}
		sent = true
		part := &ingestv1.AccessUnits{RequestId: m.GetRequestId()}
		part.Description, part.Unit = d.write(*unit)
		if ctx.Err() != nil || !c.out.waitUnit(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_AccessUnits{AccessUnits: part}}, len(unit.Unit.Data)) {
			return nil
		}
	}
}

// complete ends a span that sent something, or nothing.
func complete(sent bool) error {
	if sent {
		return nil
	}
	return gone(errors.New("no access unit of that time is kept any more, or none came"))
}
