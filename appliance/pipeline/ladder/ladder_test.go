package ladder_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/pipeline/ladder"
)

var zero = time.Unix(1000, 0)

// plant is a box that can do so many frames a second, shared fairly among its cameras.
type plant struct {
	t        *testing.T
	ladder   *ladder.Ladder
	now      time.Time
	can      float64
	noise    func() float64 // multiplies what it can
	cameras  []ladder.Camera
	decision ladder.Decision
	steps    []ladder.Decision
}

func newPlant(t *testing.T, can float64, cameras ...ladder.Camera) *plant {
	t.Helper()
	for i := range cameras {
		cameras[i].Since = zero.Add(time.Duration(i) * time.Hour)
	}
	return &plant{t: t, ladder: ladder.New(ladder.Config{}), now: zero, can: can, cameras: cameras, noise: func() float64 { return 1 }}
}

func wanting(n int, fps float64) []ladder.Camera {
	list := make([]ladder.Camera, n)
	for i := range list {
		list[i] = ladder.Camera{Name: fmt.Sprint("cam", i), Wanted: fps}
	}
	return list
}

// run lets time pass, a second at a time.
func (p *plant) run(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(time.Second) {
		offers := make([]float64, len(p.cameras))
		for i, c := range p.cameras {
			if slices.Contains(p.decision.Shed, c.Name) {
				continue
			}
			offers[i] = c.Wanted
			if p.decision.Rate > 0 {
				offers[i] = min(offers[i], p.decision.Rate)
			}
		}
		share := fair(offers, p.can*p.noise())
		for i := range p.cameras {
			p.cameras[i].Analysed = min(offers[i], share)
			p.cameras[i].Lost = offers[i] - p.cameras[i].Analysed
		}
		d, changed := p.ladder.Look(p.now, p.cameras)
		if changed != (d.Level != p.decision.Level || d.Rate != p.decision.Rate || !slices.Equal(d.Shed, p.decision.Shed)) {
			p.t.Fatalf("changed = %v from %+v to %+v", changed, p.decision, d)
		}
		if changed {
			p.steps = append(p.steps, d)
		}
		p.decision = d
	}
}

// fair is the limit at which the offers add up to the total.
func fair(offers []float64, total float64) float64 {
	low, high := 0.0, 1e6
	for range 40 {
		mid := (low + high) / 2
		sum := 0.0
		for _, o := range offers {
			sum += min(o, mid)
		}
		if sum > total {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

func (p *plant) lost() (share float64) {
	analysed, lost := 0.0, 0.0
	for _, c := range p.cameras {
		analysed += c.Analysed
		lost += c.Lost
	}
	return lost / (analysed + lost)
}

func TestWhatFitsIsLeftAlone(t *testing.T) {
	p := newPlant(t, 81, wanting(16, 5)...)
	p.run(time.Hour)
	if len(p.steps) > 0 {
		t.Errorf("the ladder moved: %+v", p.steps)
	}
}

func TestAMomentOfOverloadChangesNothing(t *testing.T) {
	p := newPlant(t, 100, wanting(16, 5)...)
	p.run(10 * time.Second)
	p.can = 40
	p.run(2 * time.Second)
	p.can = 100
	p.run(time.Minute)
	if len(p.steps) > 0 {
		t.Errorf("the ladder moved: %+v", p.steps)
	}
}

func TestRatesAreLoweredFairlyUntilItFits(t *testing.T) {
	cameras := append(wanting(4, 2), ladder.Camera{Name: "hungry", Wanted: 25}, ladder.Camera{Name: "starving", Wanted: 25})
	p := newPlant(t, 30, cameras...)
	p.run(20 * time.Second)
	if p.decision.Level != ladder.Reduced || p.lost() > 0.1 {
		t.Fatalf("%+v, %.2f lost", p.decision, p.lost())
	}
	// Those that ask for little keep it; the others share the rest.
	if p.decision.Rate < 8 || p.decision.Rate > 12.5 { // a tenth may be lost
		t.Errorf("the rate is %.1f; 30 less 4 times 2 is 22 for two", p.decision.Rate)
	}
	for _, c := range p.cameras[:4] {
		if c.Analysed < 2 {
			t.Errorf("%s asks for 2 frames a second and has %.2f", c.Name, c.Analysed)
		}
	}
}

func TestStaleThenTheLowestPriorityIsShed(t *testing.T) {
	cameras := wanting(8, 5)
	for i := range cameras {
		cameras[i].Priority = 1
	}
	cameras[2].Priority, cameras[5].Priority = 0, 2
	p := newPlant(t, 5.5, cameras...)
	p.run(2 * time.Minute)
	var levels []ladder.Level
	for _, s := range p.steps {
		if len(levels) == 0 || levels[len(levels)-1] != s.Level {
			levels = append(levels, s.Level)
		}
	}
	if len(levels) < 2 || levels[0] != ladder.Stale && levels[1] != ladder.Stale || !slices.Contains(levels, ladder.Shedding) {
		t.Fatalf("levels %v: rates, then staleness, then shedding", levels)
	}
	if got := p.decision.Shed; len(got) < 2 || got[0] != "cam2" || got[1] != "cam7" {
		t.Errorf("shed %v: first the lowest priority (cam2), then the one registered last (cam7)", got)
	}
	if slices.Contains(p.decision.Shed, "cam5") || p.decision.Rate != 1 {
		t.Errorf("%+v: the highest priority goes last, and the rate stays at its lowest", p.decision)
	}
	if len(p.decision.Shed) > 3 {
		t.Errorf("%d cameras were shed, 5 of 8 fit", len(p.decision.Shed))
	}
}

func TestTheLastCameraIsNeverShed(t *testing.T) {
	p := newPlant(t, 0.1, wanting(3, 5)...)
	p.run(5 * time.Minute)
	if len(p.decision.Shed) != 2 {
		t.Errorf("shed %v of 3", p.decision.Shed)
	}
}

func TestItComesBackUpWhenThereIsRoom(t *testing.T) {
	p := newPlant(t, 5, wanting(8, 5)...)
	p.run(5 * time.Minute)
	if p.decision.Level != ladder.Shedding {
		t.Fatalf("%+v", p.decision)
	}
	p.can = 1000
	p.run(45 * time.Minute) // each try beyond what the box is known to do may wait up to five minutes
	if p.decision.Level != ladder.Normal || p.decision.Rate != 0 || len(p.decision.Shed) > 0 {
		t.Errorf("after the load went: %+v", p.decision)
	}
}

func TestItComesBackUpSoonWhenCamerasGo(t *testing.T) {
	p := newPlant(t, 30, wanting(12, 5)...)
	p.run(10 * time.Minute)
	if p.decision.Level != ladder.Reduced {
		t.Fatalf("%+v", p.decision)
	}
	p.cameras = p.cameras[:4]
	p.run(2 * time.Minute)
	if p.decision.Level != ladder.Normal {
		t.Errorf("two minutes after two thirds of the cameras went: %+v", p.decision)
	}
}

func TestAShedCameraThatIsRemovedIsForgotten(t *testing.T) {
	p := newPlant(t, 4, wanting(6, 5)...)
	p.run(2 * time.Minute)
	gone := p.decision.Shed[0]
	p.cameras = slices.DeleteFunc(p.cameras, func(c ladder.Camera) bool { return c.Name == gone })
	p.run(time.Second)
	if slices.Contains(p.decision.Shed, gone) {
		t.Errorf("%s is gone and still shed: %v", gone, p.decision.Shed)
	}
}

// TestItDoesNotFlap overloads boxes of all sizes for two hours, with noise, and counts how often the direction turns.
func TestItDoesNotFlap(t *testing.T) {
	for _, can := range []float64{3, 7.5, 12, 20, 33, 50, 70, 79} {
		r := rand.New(rand.NewPCG(7, uint64(can)))
		p := newPlant(t, can, wanting(16, 5)...)
		p.noise = func() float64 { return 1 + 0.05*r.NormFloat64() }
		p.run(10 * time.Minute)
		settled := len(p.steps)
		p.run(2 * time.Hour)
		turns, up := 0, false
		load := func(d ladder.Decision) float64 {
			rate := d.Rate
			if rate == 0 {
				rate = math.Inf(1)
			}
			return min(rate, 5) * float64(16-len(d.Shed))
		}
		for i := settled; i < len(p.steps); i++ {
			if now := i > 0 && load(p.steps[i]) > load(p.steps[i-1]); now != up {
				turns, up = turns+1, now
			}
		}
		// A try every five minutes, and back.
		if turns > 50 {
			t.Errorf("a box of %.1f frames a second turned %d times in two hours", can, turns)
		}
	}
}

// TestLimitsHoldWhateverIsCounted feeds noise.
func TestLimitsHoldWhateverIsCounted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		l, now := ladder.New(ladder.Config{}), zero
		for range 500 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			list := make([]ladder.Camera, r.IntN(6))
			for i := range list {
				list[i] = ladder.Camera{Name: fmt.Sprint(i), Wanted: float64(r.IntN(30)), Analysed: r.Float64() * 30, Lost: r.Float64() * 30, Priority: r.IntN(3)}
			}
			d, _ := l.Look(now, list)
			if d.Rate != 0 && d.Rate < 1 || (d.Level == ladder.Normal) != (d.Rate == 0) || (d.Level == ladder.Shedding) != (len(d.Shed) > 0) {
				t.Fatalf("%+v", d)
			}
			if len(d.Shed) > 0 && len(d.Shed) >= len(list) {
				t.Fatalf("all %d cameras are shed", len(list))
			}
		}
	}
}
