//go:build tune

package eval_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// view is one way to look at a sequence: a lower rate from another first
// frame, backwards in time, with shaken detections. Many views make a search
// less likely to learn accidents of one.
type view struct {
	every, offset int
	back          bool
	noise         uint64 // seed of small changes to the detections; 0: none
}

// String is the view's name; views of one name are measured together.
func (v view) String() string {
	s := fmt.Sprint(v.every)
	if v.offset > 0 {
		s += "+"
	}
	if v.back {
		s += "r"
	}
	if v.noise > 0 {
		s += "~"
	}
	return s
}

func (v view) of(rows []eval.Row) []eval.Row {
	last := 0
	for _, r := range rows {
		last = max(last, r.Frame)
	}
	var out []eval.Row
	for _, r := range rows {
		if v.back {
			r.Frame = last + 1 - r.Frame
		}
		if r.Frame -= v.offset; r.Frame >= 1 {
			out = append(out, r)
		}
	}
	if v.noise > 0 && len(rows) > 0 && rows[0].ID < 0 {
		out = v.shake(out)
	}
	return eval.Thin(out, v.every)
}

// shake loses some detections and moves the rest a little.
func (v view) shake(rows []eval.Row) []eval.Row {
	rng := rand.New(rand.NewPCG(v.noise, 1))
	out := rows[:0]
	for _, r := range rows {
		x, y := 0.01*r.Box.Width()*rng.NormFloat64(), 0.01*r.Box.Height()*rng.NormFloat64()
		w, h := 0.01*r.Box.Width()*rng.NormFloat64(), 0.01*r.Box.Height()*rng.NormFloat64()
		r.Box.X1 += x - w
		r.Box.X2 += x + w
		r.Box.Y1 += y - h
		r.Box.Y2 += y + h
		r.Score = min(1, r.Score+0.01*rng.NormFloat64())
		if rng.Float64() > 0.015 {
			out = append(out, r)
		}
	}
	return out
}

// tuneSet is a set of sequences with the views it is measured in.
type tuneSet struct {
	name, pattern, det string
	views              []view
}

func tuneSets() []tuneSet {
	return []tuneSet{
		{"mot17", "MOT17*", "det.txt", []view{
			{1, 0, false, 0},
			{3, 0, false, 0},
			{6, 0, false, 0},
			{1, 0, true, 0},
			{3, 1, false, 0},
			{3, 2, false, 0},
			{6, 2, false, 0},
			{6, 4, false, 0},
			{6, 3, true, 0},
			{3, 0, true, 0},
			{2, 0, false, 0},
			{2, 1, false, 0},
			{1, 0, false, 1},
			{1, 0, false, 2},
			{1, 0, false, 3},
			{1, 0, true, 4},
			{2, 0, true, 5},
			{3, 1, true, 6},
			{6, 1, false, 7},
			{6, 5, false, 8},
		}},
		{"dance", "dancetrack*", "det.txt", []view{
			{1, 0, false, 0},
			{2, 0, false, 0},
			{4, 0, false, 0},
			{1, 0, true, 0},
			{2, 1, false, 0},
			{4, 1, false, 0},
			{4, 2, false, 0},
			{4, 3, true, 0},
			{1, 0, false, 1},
		}},
		{"car", "KITTI-*-Car", "det.txt", []view{
			{1, 0, false, 0}, {1, 0, false, 1}, {1, 0, false, 2}, {1, 0, true, 0}, {2, 0, false, 0}, {2, 1, false, 0},
		}},
		{"ped", "KITTI-*-Pedestrian", "det.txt", []view{{1, 0, false, 0}, {1, 0, true, 0}}},
		{"vtest", "vtest*", "det_yolox_0.45.txt", []view{
			{1, 0, false, 0},
			{2, 0, false, 0},
			{3, 0, false, 0},
			{1, 0, false, 1},
			{1, 0, true, 2},
			{2, 1, false, 3},
			{3, 1, false, 4},
		}},
	}
}

// task is one sequence in one view.
type task struct {
	key, name string
	fps       float64
	dets      []eval.Row
	gt        *eval.Annotation
}

func loadTasks(t *testing.T, root string) []task {
	t.Helper()
	var tasks []task
	for _, s := range tuneSets() {
		dirs, err := filepath.Glob(filepath.Join(root, s.pattern))
		if err != nil || len(dirs) == 0 {
			t.Fatalf("no sequences %s: %v", s.pattern, err)
		}
		for _, dir := range dirs {
			info, err := eval.ReadInfoFile(filepath.Join(dir, "seqinfo.ini"))
			if err != nil {
				t.Fatal(err)
			}
			dets, gt := sameEnd(rows(t, dir, s.det), rows(t, dir, "gt.txt"))
			for _, v := range s.views {
				tasks = append(tasks, task{
					s.name + "/" + v.String(), filepath.Base(dir), info.FrameRate / float64(v.every),
					v.of(dets), eval.Annotate(v.of(gt)),
				})
			}
		}
	}
	return tasks
}

// sameEnd makes both files end with the same frame, by rows that count for
// nothing.
func sameEnd(dets, gt []eval.Row) (d, g []eval.Row) {
	last := 0
	for _, r := range gt {
		last = max(last, r.Frame)
	}
	for _, r := range dets {
		if r.Frame <= last {
			d = append(d, r)
		}
	}
	return append(d, eval.Row{Frame: last, ID: -1}), append(gt, eval.Row{Frame: last, ID: -7, Class: 99})
}

// figure is the figures of one set in one view.
type figure struct {
	key string
	f   eval.Figures
}

func measureTasks(t *testing.T, tasks []task, cfg tracker.Config, workers int) []figure {
	t.Helper()
	results := make([]*eval.Result, len(tasks))
	errs := make([]error, len(tasks))
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				rows, err := eval.Follow(cfg, tasks[i].fps, tasks[i].dets)
				if err == nil {
					results[i], err = tasks[i].gt.Score(tasks[i].name, rows)
				}
				errs[i] = err
			}
		})
	}
	for i := range tasks {
		next <- i
	}
	close(next)
	wg.Wait()
	groups := map[string][]*eval.Result{}
	var order []string
	for i, task := range tasks {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if groups[task.key] == nil {
			order = append(order, task.key)
		}
		groups[task.key] = append(groups[task.key], results[i])
	}
	var out []figure
	for _, key := range order {
		out = append(out, figure{key, eval.Combine(key, groups[key]).Figures()})
	}
	return out
}

// apart splits tasks into those searched on and those held out.
func apart(tasks []task, holdout string) (searched, held []task) {
	for _, t := range tasks {
		out := false
		for h := range strings.SplitSeq(holdout, ",") {
			out = out || (h != "" && strings.Contains(t.name, h))
		}
		if out {
			held = append(held, t)
		} else {
			searched = append(searched, t)
		}
	}
	return searched, held
}
