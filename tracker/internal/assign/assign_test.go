package assign_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vedette/vedette/tracker/internal/assign"
)

// best tries every partial matching.
func best(gain [][]float64, row int, used []bool) float64 {
	if row == len(gain) {
		return 0
	}
	top := best(gain, row+1, used)
	for c, g := range gain[row] {
		if g > 0 && !used[c] {
			used[c] = true
			top = max(top, g+best(gain, row+1, used))
			used[c] = false
		}
	}
	return top
}

func TestSolverFindsTheBestOfAllMatchings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s assign.Solver // one solver for all: its memory must not matter
	for trial := range 3000 {
		rows, cols := rng.IntN(7), rng.IntN(7)
		density := rng.Float64()
		gain := make([][]float64, rows)
		s.Reset(rows, cols)
		for i := range gain {
			gain[i] = make([]float64, cols)
			for j := range gain[i] {
				if rng.Float64() < density {
					gain[i][j] = math.Ceil(rng.Float64()*20) / 20
					s.Add(i, j, gain[i][j])
				}
			}
		}
		s.Solve()
		got := total(t, &s, gain)
		if want := best(gain, 0, make([]bool, cols)); math.Abs(got-want) > 1e-9 {
			t.Fatalf("trial %d: gain %v, the best is %v\n%v", trial, got, want, gain)
		}
	}
}

// total checks that rows and columns agree and sums the gains up.
func total(t *testing.T, s *assign.Solver, gain [][]float64) float64 {
	t.Helper()
	sum, matched := 0.0, 0
	for i, j := range s.Rows {
		if j < 0 {
			continue
		}
		if s.Cols[j] != int32(i) || gain[i][j] == 0 {
			t.Fatalf("row %d is matched with column %d, which is matched with row %d at gain %v", i, j, s.Cols[j], gain[i][j])
		}
		sum += gain[i][j]
		matched++
	}
	for _, i := range s.Cols {
		if i >= 0 {
			matched--
		}
	}
	if matched != 0 {
		t.Fatalf("rows %v and columns %v disagree", s.Rows, s.Cols)
	}
	return sum
}

func TestSolverKeepsItsMemory(t *testing.T) {
	var s assign.Solver
	solve := func() {
		s.Reset(40, 50)
		for i := range 40 {
			for j := range 50 {
				if (i*7+j*3)%11 < 4 {
					s.Add(i, j, float64((i*13+j*5)%17+1))
				}
			}
		}
		s.Solve()
	}
	solve()
	if n := testing.AllocsPerRun(20, solve); n != 0 {
		t.Errorf("%v allocations a solution, want none", n)
	}
}
