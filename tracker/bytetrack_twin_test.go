package tracker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// twin is the published algorithm written as it reads, slow and obvious: full
// matrices, full cost tables, matchings tried one by one, lists of everything
// that was ever removed.
type twin struct {
	cfg                    ByteTrack
	frame, maxLost         int
	lastID                 int64
	tracked, lost, removed []*twinTrack
}

type twinTrack struct {
	id            int64
	mean          [8]float64
	cov           [8][8]float64
	state         string
	activated     bool
	frame, start  int
	score         float64
	x, y, w, h    float64 // of a detection not yet activated
	fromDetection bool
}

func (t *twinTrack) tlbr() [4]float64 {
	if t.fromDetection {
		return [4]float64{t.x, t.y, t.x + t.w, t.y + t.h}
	}
	w := t.mean[2] * t.mean[3]
	x, y := t.mean[0]-w/2, t.mean[1]-t.mean[3]/2
	return [4]float64{x, y, x + w, y + t.mean[3]}
}

func (t *twinTrack) xyah() [4]float64 {
	return [4]float64{t.x + t.w/2, t.y + t.h/2, t.w / t.h, t.h}
}

func (t *twinTrack) initiate() {
	z := t.xyah()
	copy(t.mean[:4], z[:])
	h := z[3]
	for i, s := range [8]float64{h / 10, h / 10, 1e-2, h / 10, h / 16, h / 16, 1e-5, h / 16} {
		t.cov[i][i] = s * s
	}
	t.fromDetection = false
}

func (t *twinTrack) predict() {
	if t.state != "tracked" {
		t.mean[7] = 0
	}
	h := t.mean[3]
	var f [8][8]float64
	for i := range 8 {
		f[i][i] = 1
		if i < 4 {
			f[i][i+4] = 1
		}
	}
	var mean [8]float64
	for i := range 8 {
		for k := range 8 {
			mean[i] += f[i][k] * t.mean[k]
		}
	}
	cov := multiply(multiply(f, t.cov), transpose(f))
	for i, s := range [8]float64{h / 20, h / 20, 1e-2, h / 20, h / 160, h / 160, 1e-5, h / 160} {
		cov[i][i] += s * s
	}
	t.mean, t.cov = mean, cov
}

func (t *twinTrack) update(d *twinTrack, frame int) {
	h := t.mean[3]
	// S is diagonal but is inverted as if it were not.
	var s [4][4]float64
	for i := range 4 {
		for j := range 4 {
			s[i][j] = t.cov[i][j]
		}
	}
	for i, r := range [4]float64{h / 20, h / 20, 1e-1, h / 20} {
		s[i][i] += r * r
	}
	inv := invert(s)
	var k [8][4]float64
	for i := range 8 {
		for j := range 4 {
			for l := range 4 {
				k[i][j] += t.cov[i][l] * inv[l][j]
			}
		}
	}
	z := d.xyah()
	mean := t.mean
	for i := range 8 {
		for j := range 4 {
			mean[i] += k[i][j] * (z[j] - t.mean[j])
		}
	}
	cov := t.cov
	for i := range 8 {
		for j := range 8 {
			for l := range 4 {
				for m := range 4 {
					cov[i][j] -= k[i][l] * s[l][m] * k[j][m]
				}
			}
		}
	}
	t.mean, t.cov = mean, cov
	t.state, t.activated, t.score, t.frame = "tracked", true, d.score, frame
}

func multiply(a, b [8][8]float64) (c [8][8]float64) {
	for i := range 8 {
		for j := range 8 {
			for k := range 8 {
				c[i][j] += a[i][k] * b[k][j]
			}
		}
	}
	return c
}

func transpose(a [8][8]float64) (b [8][8]float64) {
	for i := range 8 {
		for j := range 8 {
			b[j][i] = a[i][j]
		}
	}
	return b
}

// invert is Gauss and Jordan's.
func invert(a [4][4]float64) (b [4][4]float64) {
	for i := range 4 {
		b[i][i] = 1
	}
	for i := range 4 {
		p := a[i][i]
		for j := range 4 {
			a[i][j] /= p
			b[i][j] /= p
		}
		for k := range 4 {
			if f := a[k][i]; k != i {
				for j := range 4 {
					a[k][j] -= f * a[i][j]
					b[k][j] -= f * b[i][j]
				}
			}
		}
	}
	return b
}

func (t *twin) distance(a, b *twinTrack) float64 {
	one := 1.0
	if t.cfg.PlainIoU {
		one = 0
	}
	p, q := a.tlbr(), b.tlbr()
	w := math.Min(p[2], q[2]) - math.Max(p[0], q[0]) + one
	h := math.Min(p[3], q[3]) - math.Max(p[1], q[1]) + one
	if w <= 0 || h <= 0 {
		return 1
	}
	area := func(b [4]float64) float64 { return (b[2] - b[0] + one) * (b[3] - b[1] + one) }
	return 1 - w*h/(area(p)+area(q)-w*h)
}

// match tries all matchings of the pairs that cost less than the limit.
func (t *twin) match(a, b []*twinTrack, limit float64, fuse bool) (pairs [][2]int, restA, restB []*twinTrack) {
	cost := make([][]float64, len(a))
	for i := range a {
		cost[i] = make([]float64, len(b))
		for j := range b {
			cost[i][j] = t.distance(a[i], b[j])
			if fuse {
				cost[i][j] = 1 - (1-cost[i][j])*b[j].score
			}
		}
	}
	least := 0.0
	var best, now []int
	used := make([]bool, len(b))
	var try func(i int, sum float64)
	try = func(i int, sum float64) {
		if i == len(a) {
			if best == nil || sum < least {
				least, best = sum, append([]int{}, now...)
			}
			return
		}
		for j := range b {
			if !used[j] && cost[i][j] < limit {
				used[j] = true
				now = append(now, j)
				try(i+1, sum+cost[i][j]-limit)
				now = now[:len(now)-1]
				used[j] = false
			}
		}
		now = append(now, -1)
		try(i+1, sum)
		now = now[:len(now)-1]
	}
	try(0, 0)
	taken := make([]bool, len(b))
	for i := range a {
		if j := best[i]; j >= 0 {
			pairs = append(pairs, [2]int{i, j})
			taken[j] = true
		} else {
			restA = append(restA, a[i])
		}
	}
	for j := range b {
		if !taken[j] {
			restB = append(restB, b[j])
		}
	}
	return pairs, restA, restB
}

func (t *twin) step(dets []Detection) []*twinTrack {
	t.frame++
	fuse := !t.cfg.NoFuseScore
	var high, low []*twinTrack
	for _, d := range dets {
		n := &twinTrack{x: d.X1, y: d.Y1, w: d.X2 - d.X1, h: d.Y2 - d.Y1, score: d.Score, fromDetection: true}
		if d.Score > t.cfg.TrackThresh {
			high = append(high, n)
		} else if d.Score > 0.1 && d.Score < t.cfg.TrackThresh {
			low = append(low, n)
		}
	}
	var confirmed, unconfirmed []*twinTrack
	for _, o := range t.tracked {
		if o.activated {
			confirmed = append(confirmed, o)
		} else {
			unconfirmed = append(unconfirmed, o)
		}
	}
	var activated, found, newlyLost, newlyRemoved []*twinTrack
	take := func(o, d *twinTrack) {
		if o.state == "tracked" {
			activated = append(activated, o)
		} else {
			found = append(found, o)
		}
		o.update(d, t.frame)
	}
	pool := union(confirmed, t.lost)
	for _, o := range pool {
		o.predict()
	}
	pairs, left, high2 := t.match(pool, high, t.cfg.MatchThresh, fuse)
	var stillTracked []*twinTrack
	for _, o := range left {
		if o.state == "tracked" {
			stillTracked = append(stillTracked, o)
		}
	}
	for _, p := range pairs {
		take(pool[p[0]], high[p[1]])
	}
	pairs, left, _ = t.match(stillTracked, low, 0.5, false)
	for _, p := range pairs {
		take(stillTracked[p[0]], low[p[1]])
	}
	for _, o := range left {
		o.state = "lost"
		newlyLost = append(newlyLost, o)
	}
	pairs, left, high3 := t.match(unconfirmed, high2, 0.7, fuse)
	for _, p := range pairs {
		take(unconfirmed[p[0]], high2[p[1]])
	}
	for _, o := range left {
		o.state = "removed"
		newlyRemoved = append(newlyRemoved, o)
	}
	for _, d := range high3 {
		if d.score >= t.cfg.TrackThresh+0.1 {
			t.lastID++
			d.id, d.state, d.frame, d.start = t.lastID, "tracked", t.frame, t.frame
			d.activated = t.frame == 1
			d.initiate()
			activated = append(activated, d)
		}
	}
	for _, o := range t.lost {
		if t.frame-o.frame > t.maxLost {
			o.state = "removed"
			newlyRemoved = append(newlyRemoved, o)
		}
	}
	var now []*twinTrack
	for _, o := range t.tracked {
		if o.state == "tracked" {
			now = append(now, o)
		}
	}
	t.tracked = union(union(now, activated), found)
	t.lost = append(minus(t.lost, t.tracked), newlyLost...)
	t.lost = minus(t.lost, t.removed)
	t.removed = append(t.removed, newlyRemoved...)
	t.duplicates()
	var out []*twinTrack
	for _, o := range t.tracked {
		if o.activated {
			out = append(out, o)
		}
	}
	return out
}

func (t *twin) duplicates() {
	var dropA, dropB []*twinTrack
	for _, a := range t.tracked {
		for _, b := range t.lost {
			if t.distance(a, b) < 0.15 {
				if a.frame-a.start > b.frame-b.start {
					dropB = append(dropB, b)
				} else {
					dropA = append(dropA, a)
				}
			}
		}
	}
	t.tracked, t.lost = minus(t.tracked, dropA), minus(t.lost, dropB)
}

func union(a, b []*twinTrack) []*twinTrack {
	return append(append([]*twinTrack{}, a...), minus(b, a)...)
}

func minus(a, b []*twinTrack) []*twinTrack {
	drop := map[int64]bool{}
	for _, o := range b {
		drop[o.id] = true
	}
	var out []*twinTrack
	for _, o := range a {
		if !drop[o.id] {
			drop[o.id] = true
			out = append(out, o)
		}
	}
	return out
}

// generated makes a scene of a few objects that cross, hide and come back.
func generated(rng *rand.Rand, frames, objects int) [][]Detection {
	type walker struct{ x, y, vx, vy, w, h float64 }
	walkers := make([]walker, objects)
	for i := range walkers {
		h := 40 + 60*rng.Float64()
		walkers[i] = walker{
			300 * rng.Float64(), 200 * rng.Float64(), 16 * (rng.Float64() - 0.5), 8 * (rng.Float64() - 0.5),
			h * (0.3 + 0.3*rng.Float64()), h,
		}
	}
	hidden := make([]int, objects)
	out := make([][]Detection, frames)
	for f := range out {
		for i := range walkers {
			w := &walkers[i]
			w.x, w.y = w.x+w.vx, w.y+w.vy
			if w.x < 0 || w.x > 300 {
				w.vx = -w.vx
			}
			if w.y < 0 || w.y > 200 {
				w.vy = -w.vy
			}
			if hidden[i] > 0 {
				hidden[i]--
				continue
			}
			if rng.Float64() < 0.05 {
				hidden[i] = rng.IntN(12)
			}
			n := func() float64 { return rng.NormFloat64() * w.h / 50 }
			d := Detection{Box: Box{w.x + n(), w.y + n(), w.x + w.w + n(), w.y + w.h + n()}, Score: 1 - 0.95*rng.Float64()*rng.Float64()}
			out[f] = append(out[f], d)
			if rng.Float64() < 0.05 {
				d.X1 += 9
				d.X2 += 11
				d.Score *= 0.9
				out[f] = append(out[f], d)
			}
		}
	}
	return out
}

func TestConformanceEqualsItsSlowTwin(t *testing.T) {
	seen := map[string]int{}
	for trial := range 60 {
		rng := rand.New(rand.NewPCG(uint64(trial), 3))
		cfg := ByteTrack{
			TrackThresh: []float64{0.4, 0.6}[rng.IntN(2)], MatchThresh: []float64{0.7, 0.9}[rng.IntN(2)],
			TrackBuffer: 1 + rng.IntN(10), FrameRate: 30, NoFuseScore: rng.IntN(2) == 0, PlainIoU: rng.IntN(2) == 0,
		}
		fast, err := New(Config{Mode: Conformance, ByteTrack: cfg})
		if err != nil {
			t.Fatal(err)
		}
		slow := &twin{cfg: cfg, maxLost: cfg.TrackBuffer}
		for f, dets := range generated(rng, 120, 1+rng.IntN(6)) {
			got, want := fast.Update(time.Duration(f)*time.Second/30, dets), slow.step(dets)
			if diff := compareTwin(got, want); diff != "" {
				t.Fatalf("trial %d frame %d: %s", trial, f+1, diff)
			}
		}
		for _, o := range append(slow.tracked, slow.lost...) {
			seen[o.state]++
		}
		seen["removed"] += len(slow.removed)
	}
	if seen["tracked"] == 0 || seen["lost"] == 0 || seen["removed"] < 50 {
		t.Errorf("the scenes do not reach every state: %v", seen)
	}
}

func compareTwin(got []Track, want []*twinTrack) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d tracks, want %d", len(got), len(want))
	}
	for i := range got {
		b, w := got[i].Box, want[i].tlbr()
		off := max(math.Abs(b.X1-w[0]), math.Abs(b.Y1-w[1]), math.Abs(b.X2-w[2]), math.Abs(b.Y2-w[3]))
		if got[i].ID != want[i].id || off > 1e-6 || got[i].Score != want[i].score {
			return fmt.Sprintf("track %d is %+v, want id %d at %v", i, got[i], want[i].id, w)
		}
	}
	return ""
}
