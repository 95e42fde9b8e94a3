package eval

import (
	"fmt"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/internal/assign"
)

// The classes of MOTChallenge annotations that matter to scoring.
const (
	classPedestrian = 1
	classNone       = -1 // files of before 2016 name no classes
)

// distractor tells the classes whose boxes are neither asked for nor counted
// as wrong: persons on vehicles, static persons, distractors, reflections.
func distractor(class int) bool {
	return class == 2 || class == 7 || class == 8 || class == 12
}

// nearly absorbs rounding where a similarity is compared with a threshold, as
// the challenge's evaluator does.
const nearly = 2.220446049250313e-16

// moment is one frame after preprocessing. Ids are indices from 0.
type moment struct {
	gt, res   []int32
	sim       []float64 // len(gt) x len(res)
	gtBoxes   []tracker.Box
	resBoxes  []tracker.Box
	frameFrom int // frame number in the files
}

// sequence is a pair of annotation and result, preprocessed.
type sequence struct {
	frames   []moment
	gtIDs    []int64 // index to id in the file
	resIDs   []int64
	gtBoxes  int
	resBoxes int
}

// Annotation is a sequence's truth, ready to score many results.
type Annotation struct {
	frames [][]Row
}

// Annotate sorts annotated rows into frames.
func Annotate(gt []Row) *Annotation {
	return &Annotation{frames: byFrame(gt)}
}

// prepare applies the challenge's preprocessing: results that fall on a
// distractor are taken out, annotations that are not scored too.
func (a *Annotation) prepare(result []Row) (*sequence, error) {
	gtFrames, resFrames := a.frames, byFrame(result)
	n := max(len(gtFrames), len(resFrames))
	s := &sequence{frames: make([]moment, n)}
	gtIndex, resIndex := map[int64]int32{}, map[int64]int32{}
	var solver assign.Solver
	for f := range n {
		var g, r []Row
		if f < len(gtFrames) {
			g = gtFrames[f]
		}
		if f < len(resFrames) {
			r = resFrames[f]
		}
		if err := unique(g); err != nil {
			return nil, fmt.Errorf("annotation: frame %d: %w", f+1, err)
		}
		if err := unique(r); err != nil {
			return nil, fmt.Errorf("result: frame %d: %w", f+1, err)
		}
		r = withoutDistracted(&solver, g, r)
		m := &s.frames[f]
		m.frameFrom = f + 1
		for _, row := range g {
			if row.Score == 0 || (row.Class != classPedestrian && row.Class != classNone) {
				continue
			}
			m.gt = append(m.gt, number(gtIndex, &s.gtIDs, row.ID))
			m.gtBoxes = append(m.gtBoxes, row.Box)
		}
		for _, row := range r {
			m.res = append(m.res, number(resIndex, &s.resIDs, row.ID))
			m.resBoxes = append(m.resBoxes, row.Box)
		}
		m.sim = similarities(m.gtBoxes, m.resBoxes)
		s.gtBoxes += len(m.gt)
		s.resBoxes += len(m.res)
	}
	return s, nil
}

func unique(rows []Row) error {
	seen := make(map[int64]bool, len(rows))
	for i := range rows {
		if seen[rows[i].ID] {
			return fmt.Errorf("id %d appears twice", rows[i].ID)
		}
		seen[rows[i].ID] = true
	}
	return nil
}

func number(index map[int64]int32, ids *[]int64, id int64) int32 {
	n, ok := index[id]
	if !ok {
		n = int32(len(*ids))
		index[id] = n
		*ids = append(*ids, id)
	}
	return n
}

// withoutDistracted takes out the results matched with a distractor when
// results are matched with all annotations, scored or not.
func withoutDistracted(solver *assign.Solver, g, r []Row) []Row {
	some := false
	for i := range g {
		some = some || distractor(g[i].Class)
	}
	if !some {
		return r
	}
	solver.Reset(len(g), len(r))
	for i := range g {
		for j := range r {
			if sim := IoU(g[i].Box, r[j].Box); sim >= 0.5-nearly {
				solver.Add(i, j, sim)
			}
		}
	}
	solver.Solve()
	kept := make([]Row, 0, len(r))
	for j := range r {
		if i := solver.Cols[j]; i < 0 || !distractor(g[i].Class) {
			kept = append(kept, r[j])
		}
	}
	return kept
}

func similarities(a, b []tracker.Box) []float64 {
	sim := make([]float64, 0, len(a)*len(b))
	for i := range a {
		for j := range b {
			sim = append(sim, IoU(a[i], b[j]))
		}
	}
	return sim
}

// IoU is the area two boxes share over the area they cover together.
func IoU(a, b tracker.Box) float64 {
	w := min(a.X2, b.X2) - max(a.X1, b.X1)
	h := min(a.Y2, b.Y2) - max(a.Y1, b.Y1)
	if !(w > 0 && h > 0) {
		return 0
	}
	both := w * h
	return both / (a.Width()*a.Height() + b.Width()*b.Height() - both)
}
