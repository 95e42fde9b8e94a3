package tracker

import (
	"cmp"
	"math"
	"slices"
)

// maxCoordinate bounds what is taken for a box: beyond it squares and sums
// lose the precision that association needs. No camera comes near.
const maxCoordinate = 1e7

// admit checks the caller's detections and fills t.dets with the valid ones,
// in the caller's order.
func (t *Tracker) admit(dets []Detection) {
	t.dets = t.dets[:0]
	for i := range dets {
		d := &dets[i]
		if !valid(d) {
			t.stats.Invalid++
			continue
		}
		group := d.Class
		if len(t.groups) > 0 {
			if g, ok := t.groups[d.Class]; ok {
				group = g
			}
		}
		t.dets = append(t.dets, observation{Box: d.Box, score: d.Score, class: d.Class, group: group, index: i})
	}
	if limit := t.cfg.MaxDetections; len(t.dets) > limit {
		t.keepBest(limit)
	}
}

// valid is written so that every comparison with NaN is false.
func valid(d *Detection) bool {
	return d.X1 >= -maxCoordinate && d.Y1 >= -maxCoordinate &&
		d.X2 <= maxCoordinate && d.Y2 <= maxCoordinate &&
		d.X2 > d.X1 && d.Y2 > d.Y1 &&
		!math.IsNaN(d.Score) && !math.IsInf(d.Score, 0)
}

// keepBest keeps the detections of highest score, the earlier of equals, in
// the caller's order.
func (t *Tracker) keepBest(limit int) {
	t.stats.Excess += int64(len(t.dets) - limit)
	t.order = t.order[:0]
	for i := range t.dets {
		t.order = append(t.order, int32(i))
	}
	slices.SortFunc(t.order, func(a, b int32) int {
		if c := cmp.Compare(t.dets[b].score, t.dets[a].score); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	kept := t.order[:limit]
	slices.Sort(kept)
	for to, from := range kept {
		t.dets[to] = t.dets[from]
	}
	t.dets = t.dets[:limit]
}
