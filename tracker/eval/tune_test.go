//go:build tune

package eval_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
)

// heldOut are the sequences the parameters were not searched on.
const heldOut = "dancetrack0007,dancetrack0025,dancetrack0063,dancetrack0097," +
	"KITTI-0003,KITTI-0011,KITTI-0012,vtest"

// TestTune measures the default tracker against the published one on every
// sequence, and searches its parameters if asked to:
//
//	go test -tags tune -run '^TestTune$' -v -timeout 0 ./tracker/eval -args -- -n 500
func TestTune(t *testing.T) {
	flags := flag.NewFlagSet("tune", flag.ContinueOnError)
	set := flags.String("set", "", "name=value,... in place of the measured parameters")
	trials := flags.Int("n", 0, "trials of a search")
	seed := flags.Uint64("seed", 1, "seed of the search")
	scale := flags.Float64("scale", 0.12, "size of a step, part of a parameter's range")
	prune := flags.Float64("prune", 0, "first set back to the measured value what costs no more than this")
	workers := flags.Int("workers", runtime.GOMAXPROCS(0), "sequences at a time")
	holdout := flags.String("holdout", heldOut, "sequences not searched on, by parts of their names")
	fps := flags.Float64("fps", 0, "rate told to the tracker for every sequence in place of its own")
	if err := flags.Parse(flag.Args()); err != nil {
		t.Fatal(err)
	}
	tasks := loadTasks(t, filepath.Join(sharedData(t), "mot"))
	for i := range tasks {
		if *fps > 0 {
			tasks[i].fps = *fps
		}
	}
	searched, held := apart(tasks, *holdout)
	s := &search{
		t: t, tasks: searched, workers: *workers, best: tracker.Parameters(),
		reference: measureTasks(t, searched, tracker.Config{Mode: tracker.Conformance}, *workers),
	}
	for kv := range strings.SplitSeq(*set, ",") {
		if name, value, ok := strings.Cut(kv, "="); ok {
			var v float64
			if _, err := fmt.Sscan(value, &v); err != nil {
				t.Fatalf("%s: %v", kv, err)
			}
			s.best[name] = v
		}
	}
	s.start()
	if len(held) > 0 {
		fmt.Println("held out:")
		show(measureTasks(t, held, tracker.Config{Tuning: s.best}, *workers),
			measureTasks(t, held, tracker.Config{Mode: tracker.Conformance}, *workers))
	}
	rng := rand.New(rand.NewPCG(*seed, 7))
	if *prune > 0 {
		s.prune(rng, *prune)
	}
	for trial := range *trials {
		s.try(rng, trial, *scale)
	}
}

// goal is what a view is weighed by: the gain in HOTA beyond which more
// counts less, and its weight.
type goal struct{ target, weight float64 }

func goals() map[string]goal {
	return map[string]goal{
		"mot17/1": {0.7, 1}, "mot17/1~": {0.7, 2}, "mot17/1r": {0.7, 0.5}, "mot17/1r~": {0.7, 0.5},
		"mot17/2": {0.7, 0.3}, "mot17/2+": {0.7, 0.3}, "mot17/2r~": {0.7, 0.3},
		"mot17/3": {2.5, 0.4}, "mot17/3+": {2.5, 0.6}, "mot17/3r": {2.5, 0.2}, "mot17/3+r~": {2.5, 0.2},
		"mot17/6": {5.4, 0.3}, "mot17/6+": {5.4, 0.6}, "mot17/6+r": {5.4, 0.3}, "mot17/6+~": {5.4, 0.6},
		"dance/1": {12.6, 0.6}, "dance/1~": {12.6, 0.4}, "dance/1r": {12.6, 0.5},
		"dance/2": {12, 0.2}, "dance/2+": {12, 0.3},
		"dance/4": {11.8, 0.3}, "dance/4+": {11.8, 0.5}, "dance/4+r": {11.8, 0.3},
		"car/1": {5.5, 1.2}, "car/1~": {5.5, 1.2}, "car/1r": {5.5, 0.6}, "car/2": {5.5, 0.2}, "car/2+": {5.5, 0.2},
		"ped/1": {5.5, 0.2}, "ped/1r": {5.5, 0.2},
	}
}

// knob is a parameter the search may turn, within a range.
type knob struct {
	name      string
	low, high float64
	ratio     bool // steps are ratios, not differences
	whole     bool
}

func knobs() []knob {
	return []knob{
		{"high", 0.3, 0.75, false, false},
		{"low", 0.05, 0.3, false, false},
		{"fresh", 0.45, 0.85, false, false},
		{"fresh_iou", 0.3, 1, false, false},
		{"noise_pos", 0.03, 1.5, true, false},
		{"noise_vel", 0.1, 6, true, false},
		{"noise_size", 0.03, 6, true, false},
		{"noise_grow", 0.02, 3, true, false},
		{"measure", 0.005, 0.3, true, false},
		{"start_vel", 0.2, 12, true, false},
		{"mix", 0, 1, false, false},
		{"damp", 0.1, 4, true, false},
		{"common", 0, 1, false, false},
		{"carry", 0, 1, false, false},
		{"agree", 0.05, 10, true, false},
		{"doubt", 0, 2, false, false},
		{"height", 0, 6, false, false},
		{"observed", 0, 0.7, false, false},
		{"fuse", 0, 2, false, false},
		{"first", -0.2, 0.4, false, false},
		{"second", 0.1, 0.7, false, false},
		{"third", 0, 0.5, false, false},
		{"tentative", 0, 0.5, false, false},
		{"wide", 0, 0.8, false, false},
		{"lost_ms", 500, 6000, true, false},
		{"confirm", 1, 3, false, true},
		{"duplicate", 0.6, 1, false, false},
	}
}

func (k knob) turn(rng *rand.Rand, v, scale float64) float64 {
	switch {
	case k.whole:
		v = math.Round(k.low + rng.Float64()*(k.high-k.low))
	case k.ratio:
		v = max(v, k.low) * math.Exp(rng.NormFloat64()*scale*math.Log(k.high/k.low))
	default:
		v += rng.NormFloat64() * scale * (k.high - k.low)
	}
	return min(k.high, max(k.low, v))
}

// search climbs: it turns a few knobs at a time and keeps what is better.
type search struct {
	t         *testing.T
	tasks     []task
	workers   int
	reference []figure
	best      map[string]float64
	score     float64
}

func (s *search) measure(p map[string]float64) ([]figure, float64) {
	figures := measureTasks(s.t, s.tasks, tracker.Config{Tuning: p}, s.workers)
	return figures, objective(figures, s.reference)
}

func (s *search) start() {
	figures, score := s.measure(s.best)
	s.score = score
	show(figures, s.reference)
	fmt.Printf("objective %.3f\n", score)
}

// prune sets parameters back one by one: fewer differences learn less by heart.
func (s *search) prune(rng *rand.Rand, cost float64) {
	start, all := tracker.Parameters(), knobs()
	for _, i := range rng.Perm(len(all)) {
		name := all[i].name
		if s.best[name] == start[name] {
			continue
		}
		next := maps.Clone(s.best)
		next[name] = start[name]
		_, score := s.measure(next)
		fmt.Printf("%s %.4g to %.4g: %+.3f\n", name, s.best[name], start[name], score-s.score)
		if score > s.score-cost {
			s.best, s.score = next, score
		}
	}
	s.print()
}

func (s *search) try(rng *rand.Rand, trial int, scale float64) {
	next := maps.Clone(s.best)
	scale *= math.Exp(rng.NormFloat64() * 0.7)
	all := knobs()
	for range 1 + rng.IntN(3) {
		k := all[rng.IntN(len(all))]
		next[k.name] = k.turn(rng, next[k.name], scale)
	}
	figures, score := s.measure(next)
	if score <= s.score {
		return
	}
	s.best, s.score = next, score
	fmt.Printf("trial %d objective %.3f:", trial, score)
	for i, r := range figures {
		fmt.Printf(" %s %+.2f", r.key, r.f.HOTA-s.reference[i].f.HOTA)
	}
	fmt.Println()
	s.print()
}

// print shows the parameters that differ from the measured ones.
func (s *search) print() {
	start := tracker.Parameters()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.best)) {
		if v := s.best[name]; v != start[name] {
			parts = append(parts, fmt.Sprintf("%s=%.4g", name, v))
		}
	}
	fmt.Println("   ", strings.Join(parts, ","))
}

// objective weighs what was gained over the reference, in HOTA above all.
func objective(figures, reference []figure) float64 {
	sum, weights := 0.0, goals()
	for i, r := range figures {
		g, ref := weights[r.key], reference[i].f
		gain := r.f.HOTA - ref.HOTA - g.target
		if gain > 0 {
			gain *= 0.6 // so that no set is left behind
		}
		gain += 0.15 * (r.f.IDF1 - ref.IDF1)
		switches := 3.0
		if strings.HasPrefix(r.key, "mot17/6") || strings.HasPrefix(r.key, "dance/4") {
			switches = 8 // where the goal is to halve them
		}
		gain -= switches * max(0.4, float64(r.f.IDSW)/float64(max(1, ref.IDSW)))
		sum += g.weight * gain
	}
	return sum
}

func show(figures, reference []figure) {
	for i, r := range figures {
		ref := reference[i].f
		fmt.Printf("%-10s HOTA %6.2f (%+6.2f) DetA %6.2f AssA %6.2f IDF1 %6.2f (%+6.2f) MOTA %6.2f IDs %5d (x%4.2f) FP %d FN %d\n",
			r.key, r.f.HOTA, r.f.HOTA-ref.HOTA, r.f.DetA, r.f.AssA, r.f.IDF1, r.f.IDF1-ref.IDF1, r.f.MOTA,
			r.f.IDSW, float64(r.f.IDSW)/float64(max(1, ref.IDSW)), r.f.FP, r.f.FN)
	}
}
