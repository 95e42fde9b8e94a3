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
)

// resizing is a scheduler whose batches note where they run.
func resizing(t *testing.T, model *inference.ModelConfig) *rig {
	t.Helper()
	g := newRig(t, Config{Model: model, Ended: true}, time.Millisecond)
	l, _ := g.Scheduler.(*loop)
	l.cfg.Run = func(instance int, b *Batch) {
		time.Sleep(g.took)
		for _, e := range b.Ended {
			g.note(fmt.Sprintf("%s ended on %d", e.Sequence.Key, instance))
		}
		for _, j := range b.Jobs {
			if j.Null {
				continue
			}
			g.note(fmt.Sprintf("%s on %d", name(j), instance))
			g.Done(j)
		}
	}
	l.cfg.Gone = func(instance int) { g.note(fmt.Sprintf("%d is gone", instance)) }
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return g
}

func (g *rig) expect(what string, want ...string) {
	g.t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.ran)
	if !slices.Equal(g.ran, want) {
		g.t.Errorf("%s: %q, want %q", what, g.ran, want)
	}
	g.ran = nil
}

func (g *rig) must(name string, seq uint64, flags string) {
	g.t.Helper()
	if err := g.put(name, seq, flags); err != nil {
		g.t.Fatal(err)
	}
}

func TestR6RequestsGoToTheInstancesThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := resizing(t, &inference.ModelConfig{Name: "m"})
		g.must("a", 0, "")
		g.must("b", 0, "")
		g.Resize(1, nil)
		time.Sleep(1500 * time.Microsecond)
		g.expect("one was added while the other worked", "a on 0", "b on 1")
		for _, n := range []string{"c", "d"} {
			g.must(n, 0, "")
		}
		g.Resize(0, []int{0})
		time.Sleep(1500 * time.Microsecond)
		if got := g.notes(); len(got) != 3 || !slices.Contains(got, "0 is gone") {
			t.Errorf("one leaves when its batch is done: %q", got)
		}
		g.ran = nil
		for _, n := range []string{"e", "f"} {
			g.must(n, 0, "")
		}
		time.Sleep(2500 * time.Microsecond)
		g.expect("the other has the rest", "e on 1", "f on 1")
		g.Resize(2, []int{1, 0})
		g.expect("an idle one leaves at once, and nobody twice", "1 is gone")
		for _, n := range []string{"g", "h"} {
			g.must(n, 0, "")
		}
		time.Sleep(2 * time.Millisecond)
		if got := g.notes(); len(got) != 2 || slices.ContainsFunc(got, func(s string) bool { return s[len(s)-1] < '2' }) {
			t.Errorf("two new ones: %q", got)
		}
	})
}

func TestR6SequencesStayWithAnInstanceThatLeaves(t *testing.T) {
	for kind, model := range map[string]*inference.ModelConfig{
		"oldest": oldestModel(),
		"direct": {Name: "m", MaxBatchSize: 2, SchedulingChoice: &inference.ModelConfig_SequenceBatching{
			SequenceBatching: &inference.ModelSequenceBatching{MaxSequenceIdleMicroseconds: 1000000},
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := resizing(t, model)
				for seq := range uint64(3) {
					g.must(fmt.Sprintf("start%d", seq+1), seq+1, "start")
				}
				time.Sleep(2 * time.Millisecond)
				g.expect("two slots", "start1 on 0", "start2 on 0")
				g.Resize(1, []int{0})
				time.Sleep(2 * time.Millisecond)
				g.expect("the backlog moves to the new one", "start3 on 1")
				g.must("more", 1, "")
				g.must("end", 2, "end")
				g.must("start4", 4, "start")
				g.must("start5", 5, "start")
				time.Sleep(4 * time.Millisecond)
				g.expect("nobody moves to the one that leaves", "2 ended on 0", "end on 0", "more on 0", "start4 on 1")
				time.Sleep(2 * time.Second)
				got := g.notes()
				if !slices.Contains(got, "1 ended on 0") || !slices.Contains(got, "0 is gone") || !slices.Contains(got, "start5 on 1") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}
