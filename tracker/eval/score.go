package eval

import (
	"fmt"
	"math"

	"github.com/vedette/vedette/tracker/internal/assign"
)

// Figures are a sequence's scores. Ratios are in percent.
type Figures struct {
	Name string  `json:"name"`
	HOTA float64 `json:"HOTA"` // balance of detection and association
	DetA float64 `json:"DetA"`
	AssA float64 `json:"AssA"`
	LocA float64 `json:"LocA"`
	MOTA float64 `json:"MOTA"`
	MOTP float64 `json:"MOTP"`
	IDF1 float64 `json:"IDF1"`
	IDP  float64 `json:"IDP"`
	IDR  float64 `json:"IDR"`
	IDSW int     `json:"IDSW"` // identity switches
	Frag int     `json:"Frag"` // interruptions
	TP   int     `json:"TP"`
	FP   int     `json:"FP"`
	FN   int     `json:"FN"`
	MT   int     `json:"MT"` // objects followed for more than 80 % of their life
	PT   int     `json:"PT"`
	ML   int     `json:"ML"` // objects followed for less than 20 %
	GT   int     `json:"GT"` // objects annotated
}

// levels are HOTA's thresholds of overlap: 0.05, 0.10 … 0.95.
const levels = 19

// Result holds what a sequence's scores are computed from, so that sequences
// can be combined.
type Result struct {
	Name     string
	Switches []Switch // in the order of their frames
	Spans    []Span   // which track followed which object, by object and time

	level   [levels]levelSum
	tp, fn  int
	fp      int
	idsw    int
	frag    int
	mt, pt  int
	ml, ids int
	motp    float64
	idtp    int
	idfn    int
	idfp    int
}

// Switch is one identity switch: an annotated object that was followed by one
// track and is then followed by another.
type Switch struct {
	Frame    int   // from 1
	LastSeen int   // frame in which the old track still had the object
	Object   int64 // id in the annotation
	From, To int64 // ids in the result
}

// Span is an unbroken run of frames in which one track followed one object.
type Span struct {
	Object, Track int64
	First, Last   int // frames, from 1
}

type levelSum struct {
	tp, fn, fp int
	ass        float64 // association accuracy summed over true positives
	loc        float64
	assA       float64 // of this sequence, or the average over sequences
}

// Score compares a result with an annotation, after the preprocessing of the
// MOTChallenge: annotations of score 0 or of other classes than pedestrians
// are not asked for, and results on distractors do not count.
func Score(name string, gt, result []Row) (*Result, error) {
	return Annotate(gt).Score(name, result)
}

// Score compares one result with the annotation.
func (a *Annotation) Score(name string, result []Row) (*Result, error) {
	s, err := a.prepare(result)
	if err != nil {
		return nil, fmt.Errorf("score %s: %w", name, err)
	}
	r := &Result{Name: name}
	s.hota(r)
	s.clear(r)
	s.identity(r)
	return r, nil
}

// hota sums up the terms of HOTA (Luiten et al., IJCV 2020) at every level.
func (s *sequence) hota(r *Result) {
	ng, nr := len(s.gtIDs), len(s.resIDs)
	gtCount, resCount := s.counts()
	align := make([]float64, ng*nr)
	for f := range s.frames {
		m := &s.frames[f]
		rowSum, colSum := m.sums()
		for i, g := range m.gt {
			for j, t := range m.res {
				sim := m.sim[i*len(m.res)+j]
				if den := rowSum[i] + colSum[j] - sim; den > nearly {
					align[int(g)*nr+int(t)] += sim / den
				}
			}
		}
	}
	for g := range ng {
		for t := range nr {
			p := align[g*nr+t]
			align[g*nr+t] = p / (gtCount[g] + resCount[t] - p)
		}
	}
	var solver assign.Solver
	matches := make([][levels]float64, ng*nr)
	for f := range s.frames {
		m := &s.frames[f]
		solver.Reset(len(m.gt), len(m.res))
		for i, g := range m.gt {
			for j, t := range m.res {
				if score := align[int(g)*nr+int(t)] * m.sim[i*len(m.res)+j]; score > 0 {
					solver.Add(i, j, score)
				}
			}
		}
		solver.Solve()
		var tp [levels]int
		for i, g := range m.gt {
			j := solver.Rows[i]
			if j < 0 {
				continue
			}
			sim := m.sim[i*len(m.res)+int(j)]
			for a := range levels {
				if sim >= alpha(a)-nearly {
					tp[a]++
					r.level[a].loc += sim
					matches[int(g)*nr+int(m.res[j])][a]++
				}
			}
		}
		for a := range levels {
			r.level[a].tp += tp[a]
			r.level[a].fn += len(m.gt) - tp[a]
			r.level[a].fp += len(m.res) - tp[a]
		}
	}
	for a := range levels {
		l := &r.level[a]
		for g := range ng {
			for t := range nr {
				if n := matches[g*nr+t][a]; n > 0 {
					l.ass += n * n / max(1, gtCount[g]+resCount[t]-n)
				}
			}
		}
		l.assA = l.ass / max(1, float64(l.tp))
	}
}

func alpha(level int) float64 { return 0.05 + 0.05*float64(level) }

func (s *sequence) counts() (gt, res []float64) {
	gt, res = make([]float64, len(s.gtIDs)), make([]float64, len(s.resIDs))
	for f := range s.frames {
		for _, g := range s.frames[f].gt {
			gt[g]++
		}
		for _, t := range s.frames[f].res {
			res[t]++
		}
	}
	return gt, res
}

func (m *moment) sums() (row, col []float64) {
	row, col = make([]float64, len(m.gt)), make([]float64, len(m.res))
	for i := range m.gt {
		for j := range m.res {
			row[i] += m.sim[i*len(m.res)+j]
			col[j] += m.sim[i*len(m.res)+j]
		}
	}
	return row, col
}

// clear sums up the terms of CLEAR MOT (Bernardin and Stiefelhagen, 2008) at
// an overlap of one half.
func (s *sequence) clear(r *Result) {
	ng := len(s.gtIDs)
	last := filled(ng, int32(-1)) // the track that last followed each object
	now := filled(ng, int32(-1))  // the track that followed it one frame ago
	lastSeen := make([]int, ng)
	seen, followed, runs := make([]int, ng), make([]int, ng), make([]int, ng)
	spans := make([][]Span, ng)
	var solver assign.Solver
	for f := range s.frames {
		m := &s.frames[f]
		for _, g := range m.gt {
			seen[g]++
		}
		if len(m.gt) == 0 || len(m.res) == 0 {
			r.fp += len(m.res)
			r.fn += len(m.gt)
			continue
		}
		m.keepMatches(&solver, now)
		before := append([]int32(nil), now...)
		for g := range now {
			now[g] = -1
		}
		matched := 0
		for i, g := range m.gt {
			j := solver.Rows[i]
			if j < 0 {
				continue
			}
			matched++
			t := m.res[j]
			r.motp += m.sim[i*len(m.res)+int(j)]
			if last[g] >= 0 && last[g] != t {
				r.Switches = append(r.Switches, Switch{
					Frame: m.frameFrom, LastSeen: lastSeen[g],
					Object: s.gtIDs[g], From: s.resIDs[last[g]], To: s.resIDs[t],
				})
			}
			if before[g] < 0 {
				runs[g]++
			}
			if n := len(spans[g]); n > 0 && last[g] == t && lastSeen[g] == m.frameFrom-1 {
				spans[g][n-1].Last = m.frameFrom
			} else {
				spans[g] = append(spans[g], Span{s.gtIDs[g], s.resIDs[t], m.frameFrom, m.frameFrom})
			}
			last[g], now[g], lastSeen[g] = t, t, m.frameFrom
			followed[g]++
		}
		r.tp += matched
		r.fn += len(m.gt) - matched
		r.fp += len(m.res) - matched
	}
	r.idsw = len(r.Switches)
	r.ids = ng
	for g := range ng {
		r.Spans = append(r.Spans, spans[g]...)
		switch ratio := float64(followed[g]) / float64(seen[g]); {
		case ratio > 0.8:
			r.mt++
		case ratio >= 0.2:
			r.pt++
		default:
			r.ml++
		}
		r.frag += max(0, runs[g]-1)
	}
}

// keepMatches matches objects and tracks, preferring above all the pairs of
// the frame before.
func (m *moment) keepMatches(solver *assign.Solver, now []int32) {
	solver.Reset(len(m.gt), len(m.res))
	for i, g := range m.gt {
		for j, t := range m.res {
			sim := m.sim[i*len(m.res)+j]
			if sim < 0.5-nearly {
				continue
			}
			if now[g] == t {
				sim += 1000
			}
			solver.Add(i, j, sim)
		}
	}
	solver.Solve()
}

func filled[T any](n int, v T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// identity sums up the terms of IDF1 (Ristani et al., 2016): objects and
// tracks are matched once for the whole sequence.
func (s *sequence) identity(r *Result) {
	nr := len(s.resIDs)
	together := make([]int, len(s.gtIDs)*nr)
	for f := range s.frames {
		m := &s.frames[f]
		for i, g := range m.gt {
			for j, t := range m.res {
				if m.sim[i*len(m.res)+j] >= 0.5 {
					together[int(g)*nr+int(t)]++
				}
			}
		}
	}
	var solver assign.Solver
	solver.Reset(len(s.gtIDs), nr)
	for i, n := range together {
		if n > 0 {
			solver.Add(i/nr, i%nr, float64(n))
		}
	}
	solver.Solve()
	for g, t := range solver.Rows {
		if t >= 0 {
			r.idtp += together[g*nr+int(t)]
		}
	}
	r.idfn = s.gtBoxes - r.idtp
	r.idfp = s.resBoxes - r.idtp
}

// Combine sums sequences up into one result, as the challenge does.
func Combine(name string, results []*Result) *Result {
	sum := &Result{Name: name}
	for _, r := range results {
		for a := range levels {
			l, m := &sum.level[a], &r.level[a]
			l.tp, l.fn, l.fp = l.tp+m.tp, l.fn+m.fn, l.fp+m.fp
			l.ass, l.loc = l.ass+m.ass, l.loc+m.loc
		}
		sum.tp, sum.fn, sum.fp = sum.tp+r.tp, sum.fn+r.fn, sum.fp+r.fp
		sum.idsw, sum.frag = sum.idsw+r.idsw, sum.frag+r.frag
		sum.mt, sum.pt, sum.ml, sum.ids = sum.mt+r.mt, sum.pt+r.pt, sum.ml+r.ml, sum.ids+r.ids
		sum.motp += r.motp
		sum.idtp, sum.idfn, sum.idfp = sum.idtp+r.idtp, sum.idfn+r.idfn, sum.idfp+r.idfp
	}
	for a := range levels {
		l := &sum.level[a]
		l.assA = l.ass / max(1, float64(l.tp))
	}
	return sum
}

// Figures computes the scores.
func (r *Result) Figures() Figures {
	f := Figures{
		Name: r.Name, IDSW: r.idsw, Frag: r.frag, TP: r.tp, FP: r.fp, FN: r.fn,
		MT: r.mt, PT: r.pt, ML: r.ml, GT: r.ids,
	}
	for a := range levels {
		l := &r.level[a]
		det := float64(l.tp) / max(1, float64(l.tp+l.fn+l.fp))
		f.HOTA += 100 * math.Sqrt(det*l.assA) / levels
		f.DetA += 100 * det / levels
		f.AssA += 100 * l.assA / levels
		f.LocA += 100 * max(1e-10, l.loc) / max(1e-10, float64(l.tp)) / levels
	}
	f.MOTA = 100 * float64(r.tp-r.fp-r.idsw) / max(1, float64(r.tp+r.fn))
	f.MOTP = 100 * r.motp / max(1, float64(r.tp))
	f.IDP = 100 * float64(r.idtp) / max(1, float64(r.idtp+r.idfp))
	f.IDR = 100 * float64(r.idtp) / max(1, float64(r.idtp+r.idfn))
	f.IDF1 = 100 * float64(r.idtp) / max(1, float64(r.idtp)+0.5*float64(r.idfp+r.idfn))
	return f
}

// Level is a result's HOTA at one threshold of overlap, in percent.
type Level struct {
	Overlap          float64
	HOTA, DetA, AssA float64
}

// Levels returns the curve that HOTA, DetA and AssA are the means of.
func (r *Result) Levels() []Level {
	curve := make([]Level, levels)
	for a := range curve {
		l := &r.level[a]
		det := float64(l.tp) / max(1, float64(l.tp+l.fn+l.fp))
		curve[a] = Level{alpha(a), 100 * math.Sqrt(det*l.assA), 100 * det, 100 * l.assA}
	}
	return curve
}

// Thin keeps every k-th frame of a file, the first included, and numbers the
// kept ones from 1: what a camera of k times lower rate would have seen.
func Thin(rows []Row, k int) []Row {
	if k <= 1 {
		return rows
	}
	kept := make([]Row, 0, len(rows)/k+1)
	for _, r := range rows {
		if (r.Frame-1)%k == 0 {
			r.Frame = (r.Frame-1)/k + 1
			kept = append(kept, r)
		}
	}
	return kept
}
