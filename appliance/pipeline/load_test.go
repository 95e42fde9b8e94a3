package pipeline_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/pipeline"
	"github.com/vedette/vedette/appliance/pipeline/ladder"
	"github.com/vedette/vedette/store"
)

// event waits for an event of a type and returns its attributes.
func (b *box) event(sub *store.Subscription, kind string) map[string]string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		c, err := sub.Next(ctx)
		if err != nil {
			b.t.Fatalf("no event %s: %v", kind, err)
		}
		for _, e := range c.Events {
			if e.Type != kind {
				continue
			}
			attributes := map[string]string{}
			if err := json.Unmarshal(e.Payload, &attributes); err != nil {
				b.t.Fatal(err)
			}
			return attributes
		}
	}
}

func TestInferenceThatHangsIsTerminatedThenReplacedThenRestarted(t *testing.T) {
	restarted := make(chan string, 10)
	b := startConfigured(t, pipeline.Analysing{}, func(c *pipeline.Config) {
		c.AnswerTimeout = 1500 * time.Millisecond
		c.RestartInference = func(reason string) { restarted <- reason }
	})
	seq := b.begin("e1")
	b.ingest.announce("door", "e1", 1, base, 0)
	b.request((*inferRequest).isFrame).answer(t)
	b.eventually("a frame is analysed", func(a pipeline.Analysis) bool { return a.Frames == 1 })

	sub := b.store.Subscribe(0)
	// No frame is answered from here on; new sequences are opened, for that is the tracker's.
	number := uint64(2)
	b.ingest.announce("door", "e1", number, base+milli, 0)
	hung := b.request((*inferRequest).isFrame)
	var reason string
	for reason == "" {
		select {
		case r := <-b.infer.requests:
			if r.isFrame() {
				continue
			}
			r.answer(t)
			if r.start() {
				number++
				b.ingest.announce("door", "e1", number, base+int64(number)*milli, 0)
			}
		case reason = <-restarted:
		case <-time.After(20 * time.Second):
			t.Fatal("the process was not restarted")
		}
	}
	if q := b.closed(seq); q.CloseReason != "INFERENCE_HUNG" {
		t.Errorf("closed with %q", q.CloseReason)
	}
	if hung.stream.Context().Err() == nil {
		t.Error("the request that hung was not given up: nothing would terminate its run")
	}
	b.infer.mu.Lock()
	loaded := slices.Clone(b.infer.loaded)
	b.infer.mu.Unlock()
	if !slices.Equal(loaded, []string{"pipeline"}) {
		t.Errorf("instances replaced of %v, want once, before the restart", loaded)
	}

	// The process is back and answers.
	for done := false; !done; {
		number++
		b.ingest.announce("door", "e1", number, base+int64(number)*milli, 0)
		r := next(t, b.infer.requests)
		r.answer(t)
		done = r.isFrame()
	}
	gap := b.event(sub, "gap")
	if gap["reason"] != "INFERENCE_HUNG" || gap["from"] == "" || gap["to"] == "" {
		t.Errorf("gap %v", gap)
	}
}

func TestFramesOfEveryStageAreTimed(t *testing.T) {
	told := make(chan pipeline.Timed, 10)
	b := startConfigured(t, pipeline.Analysing{}, func(c *pipeline.Config) {
		c.Frames = func(f pipeline.Timed) { told <- f }
	})
	b.begin("e1")
	b.ingest.announce("door", "e1", 5, base, int64(40*time.Millisecond))
	b.request((*inferRequest).isFrame).answer(t)
	if f := next(t, told); f.Camera != "door" || f.Number != 5 {
		t.Errorf("told of %+v", f)
	}
	timing := b.pipe.Timing("door")
	var names []string
	for _, s := range timing.Stages {
		names = append(names, s.Stage)
	}
	if want := []string{"receive", "queue", "track", "commit", "total"}; !slices.Equal(names, want) {
		t.Errorf("stages %v, want %v", names, want)
	}
	f := timing.Frames[0]
	last := time.Duration(0)
	for _, s := range f.Stamps {
		if s.End < last {
			t.Errorf("%s ends before what is before it: %v", s.Stage, f.Stamps)
		}
		last = s.End
	}
	if f.Number != 5 || f.Stamps[1].End < 40*time.Millisecond {
		t.Errorf("%+v: the frame was 40 ms old when it was announced", f)
	}
}

func TestOverloadLowersTheRateAndGoesBackUp(t *testing.T) {
	b := startConfigured(t, pipeline.Analysing{Staleness: time.Nanosecond}, func(c *pipeline.Config) {
		c.Balance = 10 * time.Millisecond
		c.Ladder = ladder.Config{Patience: 50 * time.Millisecond, Calm: 50 * time.Millisecond}
	})
	b.begin("e1")
	sub := b.store.Subscribe(0)
	// Every frame is too old when its turn comes: the box cannot follow.
	stop := make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				b.ingest.announce("door", "e1", n, base+int64(n)*milli, 0)
			}
		}
	})
	ended := make(chan struct{})
	var ticks sync.WaitGroup
	ticks.Go(func() { b.answerEnds(ended) })
	t.Cleanup(func() {
		close(ended)
		ticks.Wait()
	})
	if e := b.event(sub, "load_changed"); e["before"] != "NORMAL" || e["level"] == "NORMAL" || e["message"] == "" {
		t.Errorf("event %v", e)
	}
	for {
		set := next(t, b.ingest.cameras)
		if len(set.GetCameras()) == 1 && set.GetCameras()[0].GetAnalysisRate() == 1 {
			break // ingest was told to send less
		}
	}
	b.eventually("the status says so", func(a pipeline.Analysis) bool { return a.Limited == 1 && a.Drops["stale"] > 0 })
	close(stop)
	flood.Wait()
	for b.event(sub, "load_changed")["level"] != "NORMAL" {
		continue
	}
	if l := b.pipe.Load(); l.Rate != 0 || l.Message() != "" {
		t.Errorf("load %+v", l)
	}
}

func TestIngestHardlyDecodesACameraThatIsPaused(t *testing.T) {
	b := start(t, pipeline.Analysing{Paused: true})
	analysed := camera(pipeline.Analysing{})
	analysed[0].Ingest.AnalysisRate = 5
	for _, c := range []struct {
		paused bool
		rate   float64
	}{{false, 5}, {true, 0.1}, {false, 5}} {
		analysed[0].Paused = c.paused
		b.pipe.SetCameras(slices.Clone(analysed))
		for next(t, b.ingest.cameras).GetCameras()[0].GetAnalysisRate() != c.rate {
			continue
		}
	}
}
