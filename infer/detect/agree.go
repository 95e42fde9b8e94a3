package detect

import (
	"errors"
	"fmt"
)

// Agreement tells how a variant of a detector (half floats, quantised, another size) does beside the one it was made from,
// on the same pictures. A box counts when one of them is sure of it, and is found when the other sees the same class, be
// it a little less surely, with half of the area in common.
type Agreement struct {
	Pictures int
	// Boxes are those that either is sure of; Found those of them that the other sees too.
	Boxes, Found int
	// IoU and Score are means over what was found: the overlap, and by how much the scores differ.
	IoU, Score float64
}

const (
	sure, nearlySure = 0.4, 0.25
	sameObject       = 0.5 // of the union
)

// Share is the part of the boxes that both see, 0 to 1.
func (a *Agreement) Share() float64 {
	if a.Boxes == 0 {
		return 0
	}
	return float64(a.Found) / float64(a.Boxes)
}

// What a variant must reach to be taken. Half precision cannot be told from the full; careful quantising stays within
// this; scores that have fallen apart do not.
const (
	leastBoxes = 10
	leastShare = 0.85
	leastIoU   = 0.85
	mostScore  = 0.1
)

// Check returns every reason not to take the variant.
func (a *Agreement) Check() error {
	if a.Boxes < leastBoxes {
		return fmt.Errorf("there is too little in the pictures to compare it with its reference (%d boxes, %d are needed): give pictures with more to see", a.Boxes, leastBoxes)
	}
	var faults []error
	if a.Share() < leastShare {
		faults = append(faults, fmt.Errorf("it agrees with its reference on %.0f %% of %d boxes; %.0f %% are asked for", 100*a.Share(), a.Boxes, 100*leastShare))
	}
	if a.Found > 0 && a.IoU < leastIoU {
		faults = append(faults, fmt.Errorf("its boxes overlap those of its reference by %.2f (IoU); %.2f is asked for", a.IoU, leastIoU))
	}
	if a.Found > 0 && a.Score > mostScore {
		faults = append(faults, fmt.Errorf("its scores differ by %.2f from those of its reference; %.2f is allowed", a.Score, mostScore))
	}
	return errors.Join(faults...)
}

// Add compares what both saw in one more picture, each best first.
func (a *Agreement) Add(reference, variant []Box) {
	a.Pictures++
	a.again(reference, variant)
	a.again(variant, reference)
}

// again looks in other for the boxes that one is sure of.
func (a *Agreement) again(one, other []Box) {
	used := make([]bool, len(other))
	for _, b := range one {
		if !(b.Score >= sure) {
			continue
		}
		a.Boxes++
		best, at := sameObject, -1
		for i, o := range other {
			if overlap := b.iou(o); !used[i] && o.Class == b.Class && o.Score >= nearlySure && overlap >= best {
				best, at = overlap, i
			}
		}
		if at < 0 {
			continue
		}
		used[at] = true
		n := float64(a.Found)
		a.IoU = (a.IoU*n + best) / (n + 1)
		a.Score = (a.Score*n + max(b.Score-other[at].Score, other[at].Score-b.Score)) / (n + 1)
		a.Found++
	}
}

// iou is the intersection over the union.
func (b Box) iou(o Box) float64 {
	w, h := min(b.X2, o.X2)-max(b.X1, o.X1), min(b.Y2, o.Y2)-max(b.Y1, o.Y1)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h / ((b.X2-b.X1)*(b.Y2-b.Y1) + (o.X2-o.X1)*(o.Y2-o.Y1) - w*h)
}
