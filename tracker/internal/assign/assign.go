// Package assign finds best partial matchings between two small sets.
package assign

import "slices"

// edge is a pair that may be matched, with what the match is worth: the limit
// of its cost minus its cost, always positive.
type edge struct {
	row, col int32
	gain     float64
}

// Solver finds, among partial matchings, the one of greatest total gain:
// the same as least total cost when leaving a pair unmatched costs the limit.
// It keeps its memory between calls.
type Solver struct {
	Rows []int32 // column matched with each row, -1 if none; valid until Reset
	Cols []int32 // row matched with each column, likewise

	edges []edge

	parent []int32 // union-find over rows, then columns
	count  []int32 // edges of a component, at its root
	heads  []int32 // edges of a component, linked
	next   []int32

	rowAt, colAt []int32 // index within the component
	rows, cols   []int32
	cost         []float64
	u, v, dist   []float64
	way, owner   []int32
	done         []bool
}

// Reset prepares for a problem of the given size without any edge.
func (a *Solver) Reset(rows, cols int) {
	a.edges = a.edges[:0]
	a.Rows = fill(a.Rows, rows, -1)
	a.Cols = fill(a.Cols, cols, -1)
}

// Add offers a pair; gain must be positive.
func (a *Solver) Add(row, col int, gain float64) {
	a.edges = append(a.edges, edge{int32(row), int32(col), gain})
}

// Solve fills Rows and Cols. Pairs that share no row or column with
// another are settled at once; the rest falls into small groups.
func (a *Solver) Solve() {
	rows, cols := len(a.Rows), len(a.Cols)
	if len(a.edges) == 0 {
		return
	}
	a.parent = a.parent[:0]
	for i := range rows + cols {
		a.parent = append(a.parent, int32(i))
	}
	for i := range a.edges {
		e := &a.edges[i]
		x, y := a.find(e.row), a.find(e.col+int32(rows))
		if x != y {
			a.parent[y] = x
		}
	}
	a.heads = fill(a.heads, rows+cols, -1)
	a.count = fill(a.count, rows+cols, 0)
	a.next = fill(a.next, len(a.edges), -1)
	// Backwards, so that the list of a component runs in the order of the edges.
	for i := len(a.edges) - 1; i >= 0; i-- {
		root := a.find(a.edges[i].row)
		a.next[i] = a.heads[root]
		a.heads[root] = int32(i)
		a.count[root]++
	}
	a.rowAt = fill(a.rowAt, rows, -1)
	a.colAt = fill(a.colAt, cols, -1)
	for root, head := range a.heads {
		switch {
		case head < 0:
		case a.count[root] == 1:
			e := &a.edges[head]
			a.Rows[e.row], a.Cols[e.col] = e.col, e.row
		default:
			a.solveComponent(head)
		}
	}
}

func (a *Solver) find(x int32) int32 {
	for a.parent[x] != x {
		a.parent[x] = a.parent[a.parent[x]]
		x = a.parent[x]
	}
	return x
}

// solveComponent runs the Hungarian method on the edges linked from head.
func (a *Solver) solveComponent(head int32) {
	a.rows, a.cols = a.rows[:0], a.cols[:0]
	for i := head; i >= 0; i = a.next[i] {
		e := &a.edges[i]
		if a.rowAt[e.row] < 0 {
			a.rowAt[e.row] = int32(len(a.rows))
			a.rows = append(a.rows, e.row)
		}
		if a.colAt[e.col] < 0 {
			a.colAt[e.col] = int32(len(a.cols))
			a.cols = append(a.cols, e.col)
		}
	}
	// In the order of the problem, so that the order of the edges decides nothing.
	slices.Sort(a.rows)
	slices.Sort(a.cols)
	for i, r := range a.rows {
		a.rowAt[r] = int32(i)
	}
	for i, c := range a.cols {
		a.colAt[c] = int32(i)
	}
	n, m := len(a.rows), len(a.cols)
	flip := n > m
	if flip {
		n, m = m, n
	}
	a.cost = fill(a.cost, n*m, 0)
	for i := head; i >= 0; i = a.next[i] {
		e := &a.edges[i]
		r, c := int(a.rowAt[e.row]), int(a.colAt[e.col])
		if flip {
			r, c = c, r
		}
		a.cost[r*m+c] = -e.gain
	}
	a.hungarian(n, m)
	for c := 1; c <= m; c++ {
		r := int(a.owner[c])
		if r == 0 || a.cost[(r-1)*m+c-1] == 0 {
			continue
		}
		row, col := r-1, c-1
		if flip {
			row, col = col, row
		}
		a.Rows[a.rows[row]] = a.cols[col]
		a.Cols[a.cols[col]] = a.rows[row]
	}
}

// hungarian assigns each of n rows to one of m >= n columns at least cost, by
// shortest augmenting paths. owner[c] is the row, from 1, of column c, from 1.
func (a *Solver) hungarian(n, m int) {
	const far = 1e300
	a.u = fill(a.u, n+1, 0)
	a.v = fill(a.v, m+1, 0)
	a.owner = fill(a.owner, m+1, 0)
	a.way = fill(a.way, m+1, 0)
	for i := 1; i <= n; i++ {
		a.owner[0] = int32(i)
		j0 := 0
		a.dist = fill(a.dist, m+1, far)
		a.done = fill(a.done, m+1, false)
		for {
			a.done[j0] = true
			i0 := int(a.owner[j0])
			delta, j1 := far, 0
			line := a.cost[(i0-1)*m : i0*m]
			for j := 1; j <= m; j++ {
				if a.done[j] {
					continue
				}
				if d := line[j-1] - a.u[i0] - a.v[j]; d < a.dist[j] {
					a.dist[j], a.way[j] = d, int32(j0)
				}
				if a.dist[j] < delta {
					delta, j1 = a.dist[j], j
				}
			}
			for j := 0; j <= m; j++ {
				if a.done[j] {
					a.u[a.owner[j]] += delta
					a.v[j] -= delta
				} else {
					a.dist[j] -= delta
				}
			}
			j0 = j1
			if a.owner[j0] == 0 {
				break
			}
		}
		for j0 != 0 {
			j1 := int(a.way[j0])
			a.owner[j0] = a.owner[j1]
			j0 = j1
		}
	}
}

// fill returns a slice of n values v, in s's memory if it fits.
func fill[T any](s []T, n int, v T) []T {
	if cap(s) < n {
		s = make([]T, n, n+n/2)
	}
	s = s[:n]
	for i := range s {
		s[i] = v
	}
	return s
}
