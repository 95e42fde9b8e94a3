package tracker

import "slices"

// columns sorts detections into upright strips of the picture, so that a track
// is compared with its neighbours and not with everyone.
type columns struct {
	left, perPixel float64
	widest         float64
	start          [strips + 2]int32
	items          []int32 // places in the chosen list, strip by strip
}

const strips = 64

// build sorts the chosen detections. The list must not change until the last
// call of near.
func (c *columns) build(dets []observation, chosen []int32) {
	if len(chosen) == 0 {
		c.items = c.items[:0]
		return
	}
	first := &dets[chosen[0]]
	left, right := first.X1, first.X1
	c.widest = 0
	for _, d := range chosen {
		det := &dets[d]
		left, right = min(left, det.X1), max(right, det.X1)
		c.widest = max(c.widest, det.X2-det.X1)
	}
	c.left = left
	c.perPixel = strips / max(right-left, 1)
	c.start = [strips + 2]int32{}
	for _, d := range chosen {
		c.start[c.strip(dets[d].X1)+1]++
	}
	for i := 1; i < len(c.start); i++ {
		c.start[i] += c.start[i-1]
	}
	c.items = refill(c.items, len(chosen), 0)
	for j, d := range slices.Backward(chosen) {
		s := c.strip(dets[d].X1)
		// The strip fills from its end; start[s+1] is moved back to its begin.
		c.start[s+1]--
		c.items[c.start[s+1]] = int32(j)
	}
	// Now start[s+1] is where strip s begins.
}

// near returns the places of all detections that may reach into x1..x2, and
// some more.
func (c *columns) near(x1, x2 float64) []int32 {
	if len(c.items) == 0 || x2 < c.left {
		return nil
	}
	from, to := c.strip(x1-c.widest), c.strip(x2)
	end := int32(len(c.items))
	if to+2 < len(c.start) {
		end = c.start[to+2]
	}
	return c.items[c.start[from+1]:end]
}

func (c *columns) strip(x float64) int {
	return int(min(max((x-c.left)*c.perPixel, 0), strips))
}
