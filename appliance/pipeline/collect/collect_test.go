package collect_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/pipeline/collect"
)

var zero = time.Unix(0, 0)

func live(c *collect.Collector, names ...string) {
	for _, n := range names {
		c.Put(n, collect.Source{Live: true})
	}
}

func TestWithoutBatchingAFrameGoesAtOnceWhileThereIsRoom(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 2})
	live(c, "a", "b", "c")
	for i, n := range []string{"a", "b", "c"} {
		now := zero.Add(time.Duration(i) * time.Millisecond)
		c.Wait(now, n)
		turns, wake := c.Decide(now)
		if want := map[bool]int{true: 1, false: 0}[i < 2]; len(turns) != want || !wake.IsZero() {
			t.Fatalf("%s: turns %v, wake %v", n, turns, wake)
		}
	}
	c.Done("a", time.Millisecond)
	if turns, _ := c.Decide(zero.Add(time.Second)); !slices.Equal(turns, []string{"c"}) {
		t.Errorf("after an answer the turn went to %v, want c", turns)
	}
}

// serve runs a model that answers one frame after the other, each in `took`, for so long, and counts turns. Cameras
// that always have a frame are hungry, others send at their period.
func serve(c *collect.Collector, from time.Time, periods map[string]time.Duration, took, long time.Duration) (turns map[string]int, waits map[string][]time.Duration) {
	const tick = time.Millisecond
	turns, waits = map[string]int{}, map[string][]time.Duration{}
	type answer struct {
		name string
		at   time.Time
	}
	var queue []answer
	since, next := map[string]time.Time{}, map[string]time.Time{}
	for now := from; now.Before(from.Add(long)); now = now.Add(tick) {
		for len(queue) > 0 && !queue[0].at.After(now) {
			c.Done(queue[0].name, took)
			queue = queue[1:]
		}
		for n, p := range periods {
			if now.Before(next[n]) {
				continue
			}
			next[n] = now.Add(p)
			c.Arrived(now, n)
			if since[n].IsZero() {
				since[n] = now
			}
			c.Wait(now, n)
		}
		granted, _ := c.Decide(now)
		for _, n := range granted {
			turns[n]++
			waits[n] = append(waits[n], now.Sub(since[n]))
			since[n] = time.Time{}
			at := now.Add(took)
			if len(queue) > 0 {
				at = queue[len(queue)-1].at.Add(took)
			}
			queue = append(queue, answer{n, at})
		}
	}
	return turns, waits
}

func TestAFloodLeavesTheOthersTheirShareAndTheirLatency(t *testing.T) {
	periods := map[string]time.Duration{}
	for i := range 8 {
		periods[fmt.Sprint("quiet", i)] = 200 * time.Millisecond
	}
	run := func() (map[string]int, time.Duration) {
		c := collect.New(collect.Limits{Slots: 2})
		for n := range periods {
			live(c, n)
		}
		turns, waits := serve(c, zero, periods, 20*time.Millisecond, time.Minute)
		var all []time.Duration
		for n, w := range waits {
			if n != "flood" {
				all = append(all, w...)
			}
		}
		slices.Sort(all)
		return turns, all[len(all)*99/100]
	}
	_, without := run()
	periods["flood"] = time.Millisecond
	turns, with := run()
	for n, k := range turns {
		if n != "flood" && k < 295 {
			t.Errorf("%s had %d turns of the 300 it asked for", n, k)
		}
	}
	if turns["flood"] < 400 {
		t.Errorf("the flood had %d turns: what nobody else wants is its to take", turns["flood"])
	}
	if with > without+41*time.Millisecond { // what is at inference already cannot be taken back
		t.Errorf("p99 of the others' waiting went from %s to %s", without, with)
	}
}

func TestSharesFollowTheWeights(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 1})
	c.Put("low", collect.Source{Live: true, Weight: 0.5})
	c.Put("normal", collect.Source{Live: true})
	c.Put("high", collect.Source{Live: true, Weight: 2})
	hungry := map[string]time.Duration{"low": time.Millisecond, "normal": time.Millisecond, "high": time.Millisecond}
	turns, _ := serve(c, zero, hungry, 10*time.Millisecond, 70*time.Second)
	for n, want := range map[string]int{"low": 1000, "normal": 2000, "high": 4000} {
		if d := turns[n] - want; d < -20 || d > 20 {
			t.Errorf("%s had %d turns, want about %d", n, turns[n], want)
		}
	}
}

func TestACameraThatWasAwaySavesUpNothing(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 1})
	live(c, "busy", "away")
	serve(c, zero, map[string]time.Duration{"busy": time.Millisecond}, 10*time.Millisecond, 10*time.Second)
	c.Done("busy", 0)
	turns, _ := serve(c, zero.Add(10*time.Second), map[string]time.Duration{"busy": time.Millisecond, "away": time.Millisecond}, 10*time.Millisecond, 2*time.Second)
	if turns["busy"] < 90 {
		t.Errorf("back again, the other took %d turns of 200", turns["away"])
	}
}

// warm lets cameras be known by their rates.
func warm(c *collect.Collector, period time.Duration, names ...string) time.Time {
	now := zero
	for range 40 {
		for _, n := range names {
			c.Arrived(now, n)
			c.Wait(now, n)
		}
		c.Decide(now)
		for _, n := range names {
			c.Done(n, 10*time.Millisecond)
		}
		now = now.Add(period)
	}
	return now
}

func TestARoundIsGatheredUntilTheWindowOfTheFastestCameraIsOver(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 8, Batch: 8})
	live(c, "a", "b", "c")
	now := warm(c, 40*time.Millisecond, "a", "b", "c")
	c.Arrived(now, "a")
	c.Wait(now, "a")
	turns, wake := c.Decide(now)
	if len(turns) > 0 || wake.Sub(now) != 30*time.Millisecond {
		t.Fatalf("turns %v, window %s; want none and 40 ms less the 10 ms an answer takes", turns, wake.Sub(now))
	}
	c.Wait(now, "b")
	if turns, _ := c.Decide(now.Add(5 * time.Millisecond)); len(turns) > 0 {
		t.Fatalf("the round went without c: %v", turns)
	}
	c.Wait(now, "c")
	if turns, _ := c.Decide(now.Add(6 * time.Millisecond)); len(turns) != 3 {
		t.Errorf("with all there, %v went", turns)
	}
}

func TestTheWindowEndsARound(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 8, Batch: 8})
	live(c, "a", "b")
	now := warm(c, 40*time.Millisecond, "a", "b")
	c.Wait(now, "a")
	_, wake := c.Decide(now)
	if turns, _ := c.Decide(wake); !slices.Equal(turns, []string{"a"}) {
		t.Errorf("at the end of the window went %v", turns)
	}
}

func TestASilentCameraIsNotWaitedFor(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 8, Batch: 8})
	live(c, "a", "dead")
	now := warm(c, 40*time.Millisecond, "a", "dead").Add(collect.Silence)
	c.Arrived(now, "a")
	c.Wait(now, "a")
	if turns, wake := c.Decide(now); len(turns) != 1 {
		t.Errorf("turns %v, wake in %s: a camera that is silent holds up the others", turns, wake.Sub(now))
	}
}

func TestTheFirstRoundWaitsForAFullOne(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 8, Batch: 8})
	live(c, "a", "b")
	c.Arrived(zero, "b")
	c.Wait(zero, "a")
	if _, wake := c.Decide(zero); wake.Sub(zero) != collect.First {
		t.Errorf("the first window is %s", wake.Sub(zero))
	}
}

func TestRemovedCamerasLeaveNoTurnBehind(t *testing.T) {
	c := collect.New(collect.Limits{Slots: 1})
	live(c, "a", "b")
	c.Wait(zero, "a")
	c.Wait(zero, "b")
	first, _ := c.Decide(zero)
	c.Remove(first[0])
	if turns, _ := c.Decide(zero); len(turns) != 1 || c.InFlight() != 1 {
		t.Errorf("turns %v, %d in flight", turns, c.InFlight())
	}
	c.Done(first[0], 0) // its answer comes all the same
	if c.InFlight() != 1 {
		t.Errorf("%d in flight after the answer of a camera that is gone", c.InFlight())
	}
}

// TestWhateverHappensTheLimitHolds plays random orders.
func TestWhateverHappensTheLimitHolds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limits := collect.Limits{Slots: 1 + r.IntN(8), Batch: r.IntN(9)}
		c := collect.New(limits)
		now, flying, waiting := zero, map[string]int{}, map[string]bool{}
		total := 0
		for range 300 {
			now = now.Add(time.Duration(r.IntN(50)) * time.Millisecond)
			n := fmt.Sprint(r.IntN(6))
			switch r.IntN(8) {
			case 0:
				c.Put(n, collect.Source{Live: r.IntN(2) == 0, Weight: float64(r.IntN(3))})
			case 1:
				c.Remove(n)
				total -= flying[n]
				delete(flying, n)
				delete(waiting, n)
			case 2, 3, 4:
				c.Put(n, collect.Source{Live: true})
				c.Arrived(now, n)
				c.Wait(now, n)
				waiting[n] = true
			case 5:
				c.Leave(n)
				delete(waiting, n)
			default:
				if flying[n] > 0 {
					flying[n]--
					total--
				}
				c.Done(n, time.Duration(r.IntN(30))*time.Millisecond)
			}
			turns, wake := c.Decide(now)
			for _, n := range turns {
				if !waiting[n] {
					t.Fatalf("%s had a turn and did not wait", n)
				}
				delete(waiting, n)
				flying[n]++
				total++
			}
			if total > limits.Slots || c.InFlight() != total {
				t.Fatalf("%d in flight (%d counted), %d allowed", c.InFlight(), total, limits.Slots)
			}
			if len(waiting) > 0 && total < limits.Slots && wake.IsZero() {
				t.Fatalf("%d wait, %d of %d slots are taken, and nothing would wake them", len(waiting), total, limits.Slots)
			}
			if wake.Sub(now) > collect.First {
				t.Fatalf("a round is held for %s", wake.Sub(now))
			}
		}
	}
}
