package detect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Agreement tells how a variant of a detector (other numbers, another size) does beside the one it was made from, on the
// same pictures.
type Agreement struct {
	Pictures int
	// Reference and Variant are the boxes each saw with the threshold's score or more.
	Reference, Variant int
	// Matched are pairs of one class that overlap by half or more.
	Matched int
	// IoU and Score are means over the pairs: their overlap, and by how much their scores differ.
	IoU, Score float64
}

// F1 is the share of both sides' boxes that the other saw too: 1 is all of them.
func (a *Agreement) F1() float64 {
	if a.Reference+a.Variant == 0 {
		return 1
	}
	return 2 * float64(a.Matched) / float64(a.Reference+a.Variant)
}

// Limits is what a variant must reach to be taken.
type Limits struct {
	Pictures int     // at least so many were compared
	Boxes    int     // and the reference saw at least so many boxes in them
	F1       float64 // at least
	IoU      float64 // at least
	Score    float64 // at most
}

// DefaultLimits let through what half precision does to a detector, which cannot be seen in its boxes, and what careful
// quantisation does; they stop the variants whose scores have fallen apart.
func DefaultLimits() Limits { return Limits{Pictures: 4, Boxes: 10, F1: 0.9, IoU: 0.9, Score: 0.1} }

// Check returns every limit that the agreement misses.
func (a *Agreement) Check(l Limits) error {
	var faults []error
	miss := func(missed bool, format string, args ...any) {
		if missed {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	miss(a.Pictures < l.Pictures, "compared on %d pictures, at least %d are needed", a.Pictures, l.Pictures)
	miss(a.Reference < l.Boxes, "the reference sees %d objects in the pictures, at least %d are needed to judge: give pictures of what it detects", a.Reference, l.Boxes)
	miss(a.F1() < l.F1, "agrees with the reference on %.3f of the boxes (F1), at least %.3f are needed: %d boxes of the reference, %d of the variant, %d the same",
		a.F1(), l.F1, a.Reference, a.Variant, a.Matched)
	miss(a.Matched > 0 && a.IoU < l.IoU, "boxes of both overlap by %.3f (IoU), at least %.3f is needed", a.IoU, l.IoU)
	miss(a.Matched > 0 && a.Score > l.Score, "scores differ by %.3f, at most %.3f is allowed", a.Score, l.Score)
	return errors.Join(faults...)
}

// Add compares what both saw in one more picture; boxes below threshold are not looked at.
func (a *Agreement) Add(reference, variant []Box, threshold float64) {
	sure := func(all []Box) []Box {
		some := slices.DeleteFunc(slices.Clone(all), func(b Box) bool { return !(b.Score >= threshold) }) // a score that is no number is none
		slices.SortStableFunc(some, func(a, b Box) int { return cmp.Compare(b.Score, a.Score) })
		return some
	}
	r, v := sure(reference), sure(variant)
	a.Pictures++
	a.Reference, a.Variant = a.Reference+len(r), a.Variant+len(v)
	taken := make([]bool, len(v))
	for _, b := range r {
		best, at := 0.5, -1
		for i, c := range v {
			if o := overlap(b, c); !taken[i] && c.Class == b.Class && o >= best {
				best, at = o, i
			}
		}
		if at < 0 {
			continue
		}
		taken[at] = true
		n := float64(a.Matched)
		a.IoU = (a.IoU*n + best) / (n + 1)
		a.Score = (a.Score*n + max(b.Score-v[at].Score, v[at].Score-b.Score)) / (n + 1)
		a.Matched++
	}
}

// overlap is the intersection over the union of two boxes.
func overlap(a, b Box) float64 {
	w, h := min(a.X2, b.X2)-max(a.X1, b.X1), min(a.Y2, b.Y2)-max(a.Y1, b.Y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / ((a.X2-a.X1)*(a.Y2-a.Y1) + (b.X2-b.X1)*(b.Y2-b.Y1) - w*h)
}
