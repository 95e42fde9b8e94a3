package schedule

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// rig runs a scheduler whose batches take their time, and notes what ran.
type rig struct {
	Scheduler
	t    *testing.T
	took time.Duration
	mu   sync.Mutex
	ran  []string
}

func newRig(t *testing.T, cfg Config, took time.Duration) *rig {
	t.Helper()
	g := &rig{t: t, took: took}
	cfg.Instances = max(cfg.Instances, 1)
	cfg.Run = g.run
	cfg.Reject = func(j *Job, err *infer.Error) { g.note(name(j) + ": " + err.Message) }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.Scheduler = s
	return g
}

func (g *rig) run(_ int, b *Batch) {
	time.Sleep(g.took)
	var names []string
	for _, j := range b.Jobs {
		names = append(names, name(j))
	}
	g.note(fmt.Sprint(names))
	for _, j := range b.Jobs {
		g.Done(j)
	}
}

func (g *rig) note(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ran = append(g.ran, s)
}

func (g *rig) notes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

func (g *rig) put(name string, seq uint64, flags string) error {
	return g.Enqueue(&Job{
		Payload: &actor{name}, Batch: 1, Key: Key{ID: infer.CorrelationID{Num: seq}},
		Start: flags == "start", End: flags == "end",
	}, false)
}

func dynamicModel(delay time.Duration) *inference.ModelConfig {
	return &inference.ModelConfig{Name: "m", MaxBatchSize: 4, SchedulingChoice: &inference.ModelConfig_DynamicBatching{
		DynamicBatching: &inference.ModelDynamicBatching{PreferredBatchSize: []int32{4}, MaxQueueDelayMicroseconds: uint64(delay.Microseconds())},
	}}
}

func oldestModel() *inference.ModelConfig {
	return &inference.ModelConfig{Name: "m", MaxBatchSize: 4, SchedulingChoice: &inference.ModelConfig_SequenceBatching{
		SequenceBatching: &inference.ModelSequenceBatching{
			MaxSequenceIdleMicroseconds: 1000000,
			StrategyChoice: &inference.ModelSequenceBatching_Oldest{Oldest: &inference.ModelSequenceBatching_StrategyOldest{
				MaxCandidateSequences: 2, PreferredBatchSize: []int32{4},
			}},
		},
	}}
}

func TestS2DelayedBatchRunsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, Config{Model: dynamicModel(5 * time.Millisecond)}, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Run(ctx) })
		for _, n := range []string{"a", "b"} {
			if err := g.put(n, 0, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2500 * time.Microsecond)
		if got := g.notes(); len(got) != 0 {
			t.Errorf("ran before the delay was over: %v", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := fmt.Sprint(g.notes()); got != "[[a b]]" {
			t.Errorf("ran %s", got)
		}
		cancel()
		wg.Wait()
	})
}

func TestS3EveryTimeoutComesWhileTheInstanceIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := dynamicModel(0)
		model.GetDynamicBatching().DefaultQueuePolicy = &inference.ModelQueuePolicy{DefaultTimeoutMicroseconds: 5000}
		g := newRig(t, Config{Model: model}, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Run(ctx) })
		for _, n := range []string{"busy", "a", "b", "c"} {
			if err := g.put(n, 0, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
		if got := fmt.Sprint(g.notes()); got != "[a: Request timeout expired b: Request timeout expired c: Request timeout expired]" {
			t.Errorf("after every time-out: %s", got)
		}
		cancel()
		wg.Wait()
	})
}

func TestP19ADeadlineEndsTheWaitWhileTheInstanceIsBusy(t *testing.T) {
	for _, policy := range []*inference.ModelQueuePolicy{nil, {DefaultTimeoutMicroseconds: 1000, TimeoutAction: inference.ModelQueuePolicy_DELAY}} {
		synctest.Test(t, func(t *testing.T) {
			model := dynamicModel(0)
			model.GetDynamicBatching().DefaultQueuePolicy = policy
			g := newRig(t, Config{Model: model}, time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Run(ctx) })
			if err := g.put("busy", 0, ""); err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{"a", "b", "c"} {
				brief, end := context.WithTimeout(ctx, time.Duration(30-10*i)*time.Millisecond)
				defer end()
				if err := g.Enqueue(&Job{Payload: &actor{name}, Batch: 1, Context: brief}, false); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(50 * time.Millisecond)
			if got := fmt.Sprint(g.notes()); got != "[c: request cancelled b: request cancelled a: request cancelled]" {
				t.Errorf("after every deadline: %s", got)
			}
			cancel()
			wg.Wait()
		})
	}
}

func TestP19AClientThatGoesEndsTheWaitWhileTheInstanceIsBusy(t *testing.T) {
	sequences := &inference.ModelConfig{Name: "m", SchedulingChoice: &inference.ModelConfig_SequenceBatching{
		SequenceBatching: &inference.ModelSequenceBatching{MaxSequenceIdleMicroseconds: 1e9},
	}}
	for name, model := range map[string]*inference.ModelConfig{
		"default": {Name: "m"}, "dynamic": dynamicModel(time.Millisecond), "oldest": oldestModel(), "direct": sequences,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, Config{Model: model}, time.Hour)
				var wg sync.WaitGroup
				wg.Go(func() { _ = g.Run(t.Context()) })
				if err := g.put("busy", 1, "start"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				j := &Job{Payload: &actor{"gone"}, Batch: 1, Key: Key{ID: infer.CorrelationID{Num: 2}}, Start: true, Context: ctx}
				if err := g.Enqueue(j, true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if got := g.notes(); len(got) != 0 || g.Queued() != 1 {
					t.Errorf("%d wait and there was %v", g.Queued(), got)
				}
				cancel()
				time.Sleep(sweepEvery + time.Millisecond)
				if got := fmt.Sprint(g.notes()); got != "[gone: request cancelled]" || g.Queued() != 0 {
					t.Errorf("%d wait and there was %s", g.Queued(), got)
				}
				g.Stop()
				wg.Wait()
			})
		})
	}
}

func TestStopFinishesWhatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, Config{Model: oldestModel()}, 10*time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Run(t.Context()) })
		for i := range 4 {
			flags := ""
			if i == 0 {
				flags = "start"
			}
			if err := g.put(fmt.Sprint("a", i), 1, flags); err != nil {
				t.Fatal(err)
			}
		}
		g.Stop()
		if err := g.put("b", 2, "start"); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("a new sequence while stopping: %v", err)
		}
		if err := g.put("a4", 1, ""); err != nil {
			t.Errorf("a request of an open sequence while stopping: %v", err)
		}
		wg.Wait()
		if got := fmt.Sprint(g.notes()); got != "[[a0] [a1] [a2] [a3] [a4]]" {
			t.Errorf("ran %s", got)
		}
		if err := g.put("a5", 1, ""); infer.CodeOf(err) != infer.Unavailable {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestCancelledRunRejectsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, Config{Model: oldestModel()}, 10*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Run(ctx) })
		for seq := uint64(1); seq <= 3; seq++ {
			if err := g.put(fmt.Sprint("a", seq), seq, "start"); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		wg.Wait()
		got := g.notes()
		slices.Sort(got)
		stopping := "Server is stopping, scheduler for model has stopped accepting new inference requests"
		if want := []string{"[a1]", "a2: " + stopping, "a3: " + stopping}; !slices.Equal(got, want) {
			t.Errorf("ran %v", got)
		}
	})
}

func TestStartAndStopAtOnceTenTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			g := newRig(t, Config{Model: dynamicModel(time.Second), Instances: 3}, time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Run(ctx) })
			cancel()
			wg.Wait()
		}
	})
}

func TestS4IdleSequenceIsClosedByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, Config{Model: oldestModel()}, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Run(ctx) })
		if err := g.put("a", 1, "start"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		if n := len(g.Sequences()); n != 1 {
			t.Errorf("%d sequences before the idle time", n)
		}
		time.Sleep(200 * time.Millisecond)
		if n := len(g.Sequences()); n != 0 {
			t.Errorf("%d sequences after the idle time", n)
		}
		cancel()
		wg.Wait()
	})
}

func BenchmarkLoop(b *testing.B) {
	cfg := Config{Model: &inference.ModelConfig{Name: "m"}, Instances: 1, Reject: func(*Job, *infer.Error) {}}
	ended := make(chan struct{}, 1)
	cfg.Run = func(_ int, batch *Batch) { ended <- struct{}{} }
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	for _, inline := range []bool{true, false} {
		b.Run(fmt.Sprintf("inline=%v", inline), func(b *testing.B) {
			b.ReportAllocs()
			j := new(Job)
			for b.Loop() {
				*j = Job{Batch: 1}
				if err := s.Enqueue(j, inline); err != nil {
					b.Fatal(err)
				}
				<-ended
			}
		})
	}
	cancel()
	wg.Wait()
}
