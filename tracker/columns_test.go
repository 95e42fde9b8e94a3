package tracker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever reaches into a range must be among what is near it.
func TestNearMissesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var c columns
	for trial := range 2000 {
		dets := make([]observation, rng.IntN(40))
		var chosen []int32
		scale := []float64{1e-3, 1, 1000, 1e7}[rng.IntN(4)]
		for i := range dets {
			x := scale * (rng.Float64() - 0.5)
			dets[i].Box = Box{x, 0, x + scale*rng.Float64()/4 + 1e-6, 1}
			if rng.IntN(3) > 0 {
				chosen = append(chosen, int32(i))
			}
		}
		c.build(dets, chosen)
		x1 := scale * (2*rng.Float64() - 1)
		x2 := x1 + scale*rng.Float64()/3
		got := c.near(x1, x2)
		for j, d := range chosen {
			det := &dets[d]
			if det.X1 < x2 && det.X2 > x1 && !slices.Contains(got, int32(j)) {
				t.Fatalf("trial %d: %v is not near %v..%v", trial, det.Box, x1, x2)
			}
		}
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(got) {
			t.Fatalf("trial %d: a place comes twice: %v", trial, got)
		}
	}
}
