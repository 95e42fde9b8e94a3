package analyze

import (
	"slices"
	"testing"
)

func TestT2NumbersOfAPlotAreRound(t *testing.T) {
	for highest, want := range map[float64][]float64{
		90.56: {0, 20, 40, 60, 80}, 2: {0, 0.5, 1, 1.5, 2}, 64: {0, 10, 20, 30, 40, 50, 60}, 18354.7: {0, 2000, 4000, 6000, 8000, 10000, 12000, 14000, 16000, 18000}, 0.5: {0, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5}, 0: nil,
	} {
		if got := ticks(highest); !slices.Equal(got, want) {
			t.Errorf("up to %v: got %v, want %v", highest, got, want)
		}
	}
}
