package boxes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

const (
	// rim is how near to its part's rim, in pixels of the network, a box counts as cut.
	rim = 3
	// partShare is the share of a cut box that a whole one must cover to replace it.
	partShare = 0.6
)

// join decodes the parts of one frame and answers what they see together. An
// object on the rim of a part is seen cut there and whole in the next part or
// in the whole picture: the cut box yields to any that covers most of it.
func (in *instance) join(j *backend.Job, r *infer.Response) error {
	t := j.Input(tile)
	if t == nil {
		return errors.New("input TILE is missing")
	}
	v := tensor.Float32s(t.Data)
	if len(v) != 4*max(1, j.Batch) {
		return fmt.Errorf("TILE has %d values, not %d", len(v), 4*max(1, j.Batch))
	}
	in.joined = in.joined[:0]
	var frame [6]float32
	for i := range max(1, j.Batch) {
		found, g, err := in.part(j, i)
		if err != nil {
			return err
		}
		in.toFrame(found, g)
		for _, c := range found {
			c.cut = cut(&c, v[4*i:][:4], g)
			in.joined = append(in.joined, c)
		}
		frame = g
	}
	limit := in.limit(in.current.family.nms)
	if limit == 0 {
		limit = commonIoU
	}
	in.write(j, r, merge(in.joined, float32(limit), in.nms == "agnostic", in.topK), frame)
	return nil
}

// cut tells whether a box touches a rim of its part that is not the frame's.
func cut(c *candidate, part []float32, g [6]float32) bool {
	dx, dy := rim/g[0], rim/g[1]
	return part[0] > 0 && c.x1 < part[0]+dx || part[1] > 0 && c.y1 < part[1]+dy ||
		part[2] < g[4] && c.x2 > part[2]-dx || part[3] < g[5] && c.y2 > part[3]-dy
}

// merge is suppress for boxes of several parts: whole boxes first, then cut
// ones that are not most of a box kept. Best first.
func merge(c []candidate, limit float32, agnostic bool, most int) []candidate {
	slices.SortStableFunc(c, func(a, b candidate) int {
		if a.cut != b.cut {
			if a.cut {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.score, a.score)
	})
	kept := c[:0]
	for _, x := range c {
		if !covered(kept, &x, limit, agnostic) && (!x.cut || !within(kept, &x, agnostic)) {
			kept = append(kept, x)
		}
	}
	slices.SortStableFunc(kept, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return kept[:min(len(kept), most)]
}

// within tells whether one of the kept covers most of x.
func within(kept []candidate, x *candidate, agnostic bool) bool {
	area := (x.x2 - x.x1) * (x.y2 - x.y1)
	for i := range kept {
		k := &kept[i]
		if (k.class == x.class || agnostic) && shared(k, x) > partShare*area {
			return true
		}
	}
	return false
}
