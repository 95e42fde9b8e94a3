package pipeline_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/tracker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a pipeline between peers that speak the real contracts, over a real store.
type box struct {
	t      *testing.T
	dir    string
	store  *store.Store
	pipe   *pipeline.Pipeline
	ingest *ingestPeer
	infer  *inferPeer
	stop   func()
	silent atomic.Bool // so the pipeline says of ingest

	mu       sync.Mutex
	analysis map[string]pipeline.Analysis
	told     chan struct{}
}

func (b *box) Stream(string, *ingestv1.CameraStatus, *ingestv1.Counters) {}
func (b *box) Online()                                                   { b.silent.Store(false) }
func (b *box) Upgrading()                                                {}
func (b *box) Silent()                                                   { b.silent.Store(true) }
func (b *box) Offline()                                                  {}

func (b *box) Analysis(camera string, a pipeline.Analysis) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.analysis[camera] = a
	select {
	case b.told <- struct{}{}:
	default:
	}
}

// eventually waits until the camera's lane reports what ok wants.
func (b *box) eventually(what string, ok func(pipeline.Analysis) bool) pipeline.Analysis {
	b.t.Helper()
	for {
		b.mu.Lock()
		a := b.analysis["door"]
		b.mu.Unlock()
		if ok(a) {
			return a
		}
		select {
		case <-b.told:
		case <-time.After(20 * time.Second):
			b.t.Fatalf("%s: still %+v", what, a)
		}
	}
}

func camera(a pipeline.Analysing) []pipeline.Camera {
	return []pipeline.Camera{{Ingest: &ingestv1.Camera{Name: "door", Address: "rtsp://camera/door"}, UID: "u1", Analysing: a}}
}

func start(t *testing.T, a pipeline.Analysing) *box {
	t.Helper()
	return startWith(t, a, nil)
}

func startWith(t *testing.T, a pipeline.Analysing, rules pipeline.Rules) *box {
	t.Helper()
	return startConfigured(t, a, func(c *pipeline.Config) { c.Rules = rules })
}

func startConfigured(t *testing.T, a pipeline.Analysing, adjust func(*pipeline.Config)) *box {
	t.Helper()
	b := &box{t: t, dir: t.TempDir(), analysis: map[string]pipeline.Analysis{}, told: make(chan struct{}, 1)}
	// On a disk that is near full pictures are shed.
	b.store = store.New(store.Config{Dir: b.dir, Window: 10 * time.Millisecond, Retention: store.Retention{MinFree: -1}})
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var storeWG sync.WaitGroup
	storeWG.Go(func() {
		if err := b.store.Run(storeCtx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-b.store.Ready()
	b.ingest, b.infer = startIngest(t, filepath.Join(b.dir, "ingest.sock")), startInfer(t, b.dir)
	cfg := pipeline.Config{
		Store: b.store, IngestSocket: filepath.Join(b.dir, "ingest.sock"), InferSocket: filepath.Join(b.dir, "infer.sock"),
		InferDoor: filepath.Join(b.dir, "door.sock"), Observer: b, Retry: 5 * time.Millisecond, Report: 5 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	adjust(&cfg)
	b.pipe = pipeline.New(cfg)
	b.pipe.SetCameras(camera(a))
	wg.Go(func() {
		if err := b.pipe.Run(ctx); err != nil {
			t.Errorf("pipeline: %v", err)
		}
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		closing := make(chan struct{})
		var answers sync.WaitGroup
		answers.Go(func() { b.answerEnds(closing) })
		wg.Wait()
		close(closing)
		answers.Wait()
		cancelStore()
		storeWG.Wait()
	})
	t.Cleanup(b.stop)
	for {
		if set := next(t, b.ingest.cameras); len(set.GetCameras()) == 1 {
			return b
		}
	}
}

func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
	}
	panic("unreachable")
}

// request waits for a request of a kind and answers the ticks that come before it.
func (b *box) request(kind func(*inferRequest) bool) *inferRequest {
	b.t.Helper()
	for {
		r := next(b.t, b.infer.requests)
		if kind(r) {
			return r
		}
		if r.GetModelName() != "tracker" || r.start() || r.end() {
			b.t.Fatalf("unexpected request to %s, start %v, end %v", r.GetModelName(), r.start(), r.end())
		}
		r.answer(b.t)
	}
}

// answerEnds answers what comes while the pipeline stops, unless the test has done so.
func (b *box) answerEnds(closing <-chan struct{}) {
	for {
		select {
		case <-closing:
			return
		case r := <-b.infer.requests:
			if r.isFrame() && !r.end() {
				continue
			}
			r.answer(b.t)
		}
	}
}

// begin opens a stream epoch and its sequence and returns the sequence's id.
func (b *box) begin(epoch string) int64 {
	b.t.Helper()
	b.ingest.open("door", epoch, base)
	r := b.request((*inferRequest).start)
	r.answer(b.t)
	return r.sequence()
}

const milli = int64(time.Millisecond)

// base is the capture time of the first frames, in microseconds' steps as the store keeps them.
var base = time.Now().Truncate(time.Second).UnixNano()

func person(id int64, age time.Duration) tracker.Track {
	return tracker.Track{ID: id, Box: tracker.Box{X1: 16, Y1: 12, X2: 32, Y2: 36}, Score: 0.75, State: tracker.Tracked, Age: age}
}

func (b *box) sequenceRow(id int64) store.Sequence {
	b.t.Helper()
	q, err := b.store.GetSequence(context.Background(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return q
}

// closed waits until a sequence's row is closed.
func (b *box) closed(id int64) store.Sequence {
	b.t.Helper()
	sub := b.store.Subscribe(0)
	for {
		if q := b.sequenceRow(id); q.CloseReason != "" {
			return q
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := sub.Next(ctx)
		cancel()
		if err != nil {
			b.t.Fatalf("sequence %d was not closed: %v", id, err)
		}
	}
}

func TestFrameBecomesATrackInTheStore(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	if q := b.sequenceRow(seq); q.Camera != "door" || q.StreamEpoch != "e1" || q.Model != "pipeline" || q.ModelVersion != "3" || q.CloseReason != "" {
		t.Errorf("sequence row %+v", q)
	}
	lease := b.ingest.announce("door", "e1", 5, base+100*milli, 0)
	r := b.request((*inferRequest).isFrame)
	layout, err := frame.LayoutFor(slots, frame.I420, width, height)
	if err != nil {
		t.Fatal(err)
	}
	pixels := r.input("FRAME").GetParameters()
	if got := pixels["shared_memory_offset"].GetInt64Param(); got != int64(layout.PixelOffset(5)) {
		t.Errorf("FRAME at %d, want %d", got, layout.PixelOffset(5))
	}
	if got := pixels["shared_memory_byte_size"].GetInt64Param(); got != width*height*3/2 {
		t.Errorf("FRAME has %d bytes", got)
	}
	b.infer.mu.Lock()
	if !b.infer.regions[pixels["shared_memory_region"].GetStringParam()] {
		t.Errorf("region %q was not handed over", pixels["shared_memory_region"].GetStringParam())
	}
	b.infer.mu.Unlock()
	if r.sequence() != seq || r.flag("sequence_start") || r.flag("sequence_end") {
		t.Errorf("sequence %d, flags %v %v", r.sequence(), r.flag("sequence_start"), r.flag("sequence_end"))
	}
	r.answer(t, person(4, 60*time.Millisecond))
	if got := next(t, b.ingest.released); got != lease {
		t.Errorf("lease %d was released, want %d", got, lease)
	}
	a := b.eventually("one frame is analysed", func(a pipeline.Analysis) bool { return a.Frames == 1 })
	if a.Sequence != seq || a.Reason != "" || !a.LastFrame.Equal(time.Unix(0, base+100*milli)) {
		t.Errorf("reported %+v", a)
	}
	if err := b.store.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	track, err := b.store.GetTrack(context.Background(), store.TrackID{Sequence: seq, Local: 4})
	if err != nil {
		t.Fatal(err)
	}
	if track.Class != "person" || !track.Start.Equal(time.Unix(0, base+40*milli)) || !track.End.Equal(time.Unix(0, base+100*milli)) || track.State != store.TrackActive {
		t.Errorf("track %+v", track)
	}
	if near := track.Box.X1 - 0.25; near < -0.001 || near > 0.001 {
		t.Errorf("box %+v, want x from 0.25", track.Box)
	}
}

func TestStopClosesTheSequenceInTheTrackerAndTheStore(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	var wg sync.WaitGroup
	sub := b.store.Subscribe(0)
	wg.Go(func() {
		for {
			c, err := sub.Next(context.Background())
			if err != nil {
				t.Error("no event of the closed sequence")
				return
			}
			for _, e := range c.Events {
				if e.Type == "sequence_closed" {
					if !bytes.Contains(e.Payload, []byte(`"reason":"STOPPED"`)) {
						t.Errorf("closed: %s", e.Payload)
					}
					return
				}
			}
		}
	})
	b.stop()
	wg.Wait()
	b.infer.mu.Lock()
	defer b.infer.mu.Unlock()
	if !b.infer.ended[seq] {
		t.Error("the tracker got no END")
	}
}

func TestNewestFrameWinsWhileInferenceIsBusy(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	b.begin("e1")
	b.ingest.announce("door", "e1", 1, base+10*milli, 0)
	first := b.request((*inferRequest).isFrame)
	skipped := b.ingest.announce("door", "e1", 2, base+20*milli, 0)
	b.ingest.announce("door", "e1", 3, base+30*milli, 0)
	if got := next(t, b.ingest.released); got != skipped {
		t.Errorf("lease %d was released, want that of the older frame, %d", got, skipped)
	}
	first.answer(t)
	second := b.request((*inferRequest).isFrame)
	if at := second.GetRawInputContents()[1]; at[0] == 0 && at[1] == 0 && at[2] == 0 {
		t.Errorf("TIME %v", at)
	}
	second.answer(t)
	a := b.eventually("two frames are analysed", func(a pipeline.Analysis) bool { return a.Frames == 2 })
	if a.Drops["busy"] != 1 {
		t.Errorf("drops %v, want one for busy", a.Drops)
	}
}

func TestEveryFrameIsAnalysedFourInFlight(t *testing.T) {
	b := start(t, pipeline.Analysing{EveryFrame: true})
	b.begin("e1")
	for n := range uint64(6) {
		b.ingest.announce("door", "e1", n, base+int64(n)*10*milli, int64(time.Hour))
	}
	var flight []*inferRequest
	for range 4 {
		flight = append(flight, b.request((*inferRequest).isFrame))
	}
	select {
	case r := <-b.infer.requests:
		t.Fatalf("a fifth request to %s while four are in flight", r.GetModelName())
	default:
	}
	for range 6 {
		flight[0].answer(t)
		if flight = flight[1:]; len(flight) < 4 && b.remaining(&flight) {
			continue
		}
	}
	a := b.eventually("six frames are analysed", func(a pipeline.Analysis) bool { return a.Frames == 6 })
	if len(a.Drops) != 0 {
		t.Errorf("drops %v", a.Drops)
	}
}

// remaining takes one more frame into flight unless all are through.
func (b *box) remaining(flight *[]*inferRequest) bool {
	if len(*flight) == 0 {
		return false
	}
	select {
	case r := <-b.infer.requests:
		*flight = append(*flight, r)
	case <-time.After(100 * time.Millisecond): // the last ones: nothing more is to come
	}
	return true
}

func TestStaleFrameIsDropped(t *testing.T) {
	b := start(t, pipeline.Analysing{Staleness: 50 * time.Millisecond})
	b.begin("e1")
	old := b.ingest.announce("door", "e1", 1, base, int64(time.Second))
	if got := next(t, b.ingest.released); got != old {
		t.Errorf("lease %d was released, want %d", got, old)
	}
	b.eventually("the frame is counted", func(a pipeline.Analysis) bool { return a.Drops["stale"] == 1 && a.Frames == 0 })
}

// The first pictures of something that moves are late where the motion gate held them back, and come at once.
func TestFramesThatTheGateHeldBackAreAllAnalysedInOrder(t *testing.T) {
	b := start(t, pipeline.Analysing{Staleness: 50 * time.Millisecond})
	b.begin("e1")
	b.ingest.announce("door", "e1", 1, base, 0)
	first := b.request((*inferRequest).isFrame)
	for n := range uint64(3) {
		b.ingest.announce("door", "e1", 2+n, base+int64(n+1)*100*milli, int64(2*time.Second), true)
	}
	b.ingest.announce("door", "e1", 5, base+400*milli, 0)
	first.answer(t)
	for range 3 {
		b.request((*inferRequest).isFrame).answer(t)
	}
	b.eventually("the frames are analysed", func(a pipeline.Analysis) bool { return a.Frames >= 4 && a.LastFrame.UnixNano() >= base+300*milli })
}

func TestDeadInferenceOpensANewSequenceWhenItIsBack(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.ingest.announce("door", "e1", 1, base, 0)
	b.request((*inferRequest).isFrame).answer(t, person(1, 0))
	b.eventually("a frame is analysed", func(a pipeline.Analysis) bool { return a.Frames == 1 })
	b.infer.stop()
	if q := b.closed(seq); q.CloseReason != "INFERENCE_RESTARTED" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	b.ingest.announce("door", "e1", 2, base+milli, 0)
	b.eventually("frames are counted while it is away", func(a pipeline.Analysis) bool {
		return a.Drops["no_inference"] == 1 && a.Reason == "INFERENCE_UNAVAILABLE"
	})
	b.infer = startInfer(t, b.dir)
	r := b.request((*inferRequest).start)
	if r.sequence() <= seq {
		t.Errorf("sequence %d after %d", r.sequence(), seq)
	}
	r.answer(t)
	b.ingest.announce("door", "e1", 3, base+2*milli, 0)
	b.request((*inferRequest).isFrame).answer(t)
	b.eventually("analysis goes on", func(a pipeline.Analysis) bool { return a.Frames == 2 && a.Reason == "" && a.Sequence == r.sequence() })
	track, err := b.store.GetTrack(context.Background(), store.TrackID{Sequence: seq, Local: 1})
	if err != nil {
		t.Fatal(err)
	}
	if track.State != store.TrackEnded || track.EndReason != "INFERENCE_RESTARTED" {
		t.Errorf("the track of the lost sequence is %v %q", track.State, track.EndReason)
	}
}

func TestDeadIngestEndsTheSequenceAndTheNextEpochOpensAnother(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.ingest.stop()
	b.request((*inferRequest).end).answer(t)
	if q := b.closed(seq); q.CloseReason != "INGEST_RESTARTED" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	b.ingest = startIngest(t, filepath.Join(b.dir, "ingest.sock"))
	if set := next(t, b.ingest.cameras); len(set.GetCameras()) != 1 {
		t.Errorf("after the reconnect %d cameras were wanted", len(set.GetCameras()))
	}
	if again := b.begin("e2"); again <= seq {
		t.Errorf("sequence %d after %d", again, seq)
	}
}

func TestNewEpochWaitsForTheFramesOfTheOld(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.ingest.announce("door", "e1", 1, base, 0)
	r := b.request((*inferRequest).isFrame)
	b.ingest.close("door", "e1")
	b.ingest.open("door", "e2", base+time.Second.Nanoseconds())
	r.answer(t, person(1, 0))
	b.request((*inferRequest).end).answer(t)
	if q := b.closed(seq); q.CloseReason != "STREAM_ENDED" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	again := b.request((*inferRequest).start)
	again.answer(t)
	if again.sequence() <= seq {
		t.Errorf("sequence %d after %d", again.sequence(), seq)
	}
	b.eventually("the last frame of the old epoch counts", func(a pipeline.Analysis) bool { return a.Frames == 1 && len(a.Drops) == 0 })
}

func TestRecordedFramesAreAnalysedToTheLastThoughTheStreamHasEnded(t *testing.T) {
	b := start(t, pipeline.Analysing{EveryFrame: true})
	seq := b.begin("e1")
	const frames = 9
	for n := range uint64(frames) {
		b.ingest.announce("door", "e1", n, base+int64(n)*10*milli, 0)
	}
	b.ingest.close("door", "e1")
	for range frames {
		b.request((*inferRequest).isFrame).answer(t)
	}
	b.request((*inferRequest).end).answer(t)
	b.closed(seq)
	b.eventually("every frame counts", func(a pipeline.Analysis) bool { return a.Frames == frames && len(a.Drops) == 0 })
}

func TestFailedFrameCostsOneFrameAndManyCostTheSequence(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	send := func(n uint64) *inferRequest {
		b.ingest.announce("door", "e1", n, base+int64(n)*milli, 0)
		return b.request((*inferRequest).isFrame)
	}
	send(1).fail(t, "out of memory")
	send(2).fail(t, "FRAME_OVERWRITTEN: the slot was given to a newer frame")
	send(3).answer(t)
	b.eventually("the sequence goes on", func(a pipeline.Analysis) bool {
		return a.Frames == 1 && a.Drops["infer_error"] == 1 && a.Drops["overwritten"] == 1 && a.Sequence == seq
	})
	for n := range uint64(3) {
		send(4+n).fail(t, "out of memory")
	}
	if q := b.closed(seq); q.CloseReason != "INFERENCE_ERROR" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	b.request((*inferRequest).start).answer(t)
}

func TestMissingModelIsReportedAndTriedAgain(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	b.infer.mu.Lock()
	b.infer.missing = true
	b.infer.mu.Unlock()
	b.ingest.open("door", "e1", base)
	a := b.eventually("the fault is reported", func(a pipeline.Analysis) bool { return a.Reason == "MODEL_NOT_READY" })
	if !strings.Contains(a.Message, "model 'detector': the library is not there") || strings.Contains(a.Message, "broken") {
		t.Errorf("the message %q does not lead to the model at fault alone", a.Message)
	}
	b.infer.mu.Lock()
	b.infer.missing = false
	b.infer.mu.Unlock()
	b.request((*inferRequest).start).answer(t)
	b.eventually("analysis runs", func(a pipeline.Analysis) bool { return a.Reason == "" && a.Sequence > 0 })
}

func TestSilenceIsHeldByUnobservedTicks(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	r := next(t, b.infer.requests)
	if r.GetModelName() != "tracker" || r.start() || r.end() || r.sequence() != seq || r.input("OBSERVED") == nil {
		t.Fatalf("after silence came a request to %s", r.GetModelName())
	}
	if raw := r.GetRawInputContents(); len(raw) != 3 || len(raw[0]) != 0 || raw[2][0] != 0 {
		t.Errorf("a tick has rows or claims to have seen: %v", raw)
	}
	r.answer(t)
}

func TestRemovedCameraIsClosedAndNotWantedAnyMore(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.pipe.SetCameras(nil)
	b.request((*inferRequest).end).answer(t)
	if q := b.closed(seq); q.CloseReason != "CAMERA_REMOVED" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	for {
		if set := next(t, b.ingest.cameras); len(set.GetCameras()) == 0 {
			break
		}
	}
	stray := b.ingest.announce("door", "e1", 9, base, 0)
	if got := next(t, b.ingest.released); got != stray {
		t.Errorf("lease %d was released, want %d", got, stray)
	}
}

// A camera that is switched off and on again may stay connected: the sidecar sees the newest list of cameras alone.
func TestACameraSwitchedOffAndOnIsAnalysedOnTheSlotsThatAreOpen(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.pipe.SetCameras(nil)
	b.request((*inferRequest).end).answer(t)
	b.closed(seq)
	b.pipe.SetCameras(camera(pipeline.Analysing{}))
	r := b.request((*inferRequest).start)
	r.answer(t)
	if r.sequence() == seq {
		t.Errorf("sequence %d goes on", seq)
	}
	other := camera(pipeline.Analysing{})
	other[0].UID, other[0].Ingest.Address = "u2", "rtsp://camera/another"
	b.pipe.SetCameras(other)
	b.request((*inferRequest).end).answer(t)
	b.ingest.close("door", "e1")
	b.ingest.open("door", "e2", base)
	if r = b.request((*inferRequest).start); r.sequence() == seq {
		t.Errorf("sequence %d goes on", seq)
	}
	r.answer(t)
	if q := b.sequenceRow(r.sequence()); q.StreamEpoch != "e2" {
		t.Errorf("another camera of the name begins with the slots of %q", q.StreamEpoch)
	}
}

func TestAnotherPipelineOpensAnotherSequence(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	b.pipe.SetCameras(camera(pipeline.Analysing{Pipeline: "nano"}))
	b.request((*inferRequest).end).answer(t)
	if q := b.closed(seq); q.CloseReason != "MODEL_CHANGED" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	r := b.request((*inferRequest).start)
	r.answer(t)
	if q := b.sequenceRow(r.sequence()); q.Model != "nano" {
		t.Errorf("the new sequence is of model %q", q.Model)
	}
}

func TestTrackEndsWhenItWasNotSeenForAWhileOfObservedTime(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	seq := b.begin("e1")
	sub := b.store.Subscribe(0)
	for n := range uint64(8) {
		b.ingest.announce("door", "e1", n, base+int64(n+1)*int64(500*time.Millisecond), 0)
		r := b.request((*inferRequest).isFrame)
		if n == 0 {
			r.answer(t, person(1, 0), person(2, 0))
			continue
		}
		r.answer(t, person(2, 0))
	}
	b.eventually("eight frames are analysed", func(a pipeline.Analysis) bool { return a.Frames == 8 })
	commits(t, sub, func(c *store.Commit) bool {
		return slices.ContainsFunc(c.Tracks, func(tr store.Track) bool { return tr.State == store.TrackEnded })
	})
	if err := b.store.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	states := map[int64]store.TrackState{}
	list, _, err := b.store.ListTracks(context.Background(), store.Query{Sequence: seq})
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range list {
		states[tr.ID.Local] = tr.State
	}
	if want := map[int64]store.TrackState{1: store.TrackEnded, 2: store.TrackActive}; !maps.Equal(states, want) {
		t.Errorf("states %v, want %v (locals %v)", states, want, slices.Collect(maps.Keys(states)))
	}
}

func TestPictureComesFromIngest(t *testing.T) {
	b := start(t, pipeline.Analysing{})
	pic, err := b.pipe.Picture(t.Context(), &ingestv1.GetPicture{Source: &ingestv1.GetPicture_Camera{Camera: "door"}})
	if err != nil {
		t.Fatal(err)
	}
	if string(pic.GetJpeg()) != "jpeg of door" {
		t.Errorf("picture %q", pic.GetJpeg())
	}
}
