package boxes

import (
	"cmp"
	"slices"
)

// suppress keeps the best of boxes that overlap by more than limit, class by
// class or across them, and at most most of them; best first. At most before
// candidates are looked at. Equal scores keep the order they were seen in.
func suppress(c []candidate, limit float64, agnostic bool, before, most int) []candidate {
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	c = c[:min(len(c), before)]
	if limit <= 0 {
		return c[:min(len(c), most)]
	}
	kept := c[:0]
	for _, x := range c {
		if len(kept) == most {
			break
		}
		if !covered(kept, &x, float32(limit), agnostic) {
			kept = append(kept, x)
		}
	}
	return kept
}

func covered(kept []candidate, x *candidate, limit float32, agnostic bool) bool {
	area := (x.x2 - x.x1) * (x.y2 - x.y1)
	for i := range kept {
		k := &kept[i]
		if k.class != x.class && !agnostic {
			continue
		}
		if both := shared(k, x); both > limit*(area+(k.x2-k.x1)*(k.y2-k.y1)-both) {
			return true
		}
	}
	return false
}

// shared is the area two boxes have in common.
func shared(a, b *candidate) float32 {
	w := min(a.x2, b.x2) - max(a.x1, b.x1)
	h := min(a.y2, b.y2) - max(a.y1, b.y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h
}
