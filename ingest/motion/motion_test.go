package motion_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/motion"
)

// scene draws small pictures: a gradient, noise, light and a box.
type scene struct {
	rng   *rand.Rand
	noise int
	light int
	box   [4]int // x0, y0, x1, y1
}

func (s *scene) draw() []byte {
	luma := make([]byte, motion.Cells)
	for i := range luma {
		x, y := i%motion.Width, i/motion.Width
		v := 60 + x + y + s.light
		if s.noise > 0 {
			v += s.rng.IntN(2*s.noise+1) - s.noise
		}
		if x >= s.box[0] && x < s.box[2] && y >= s.box[1] && y < s.box[3] {
			v = 200
		}
		luma[i] = byte(max(0, min(v, 255)))
	}
	return luma
}

// counts are the verdicts over some time at five frames a second.
func counts(g *motion.Gate, s *scene, at *time.Time, d time.Duration, step func(n int)) (open, recheck, closed int) {
	for n := range int(d / (200 * time.Millisecond)) {
		if step != nil {
			step(n)
		}
		switch g.Look(s.draw(), *at) {
		case motion.Open:
			open++
		case motion.Recheck:
			recheck++
		default:
			closed++
		}
		*at = at.Add(200 * time.Millisecond)
	}
	return open, recheck, closed
}

func TestAStillSceneIsHeldBackButNeverForLong(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 3}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{}, nil)
	if open, recheck, closed := counts(g, s, &at, 2*time.Second, nil); open != 10 {
		t.Errorf("while it learns: %d, %d, %d", open, recheck, closed)
	}
	if open, recheck, closed := counts(g, s, &at, time.Minute, nil); open > 1 || recheck < 5 || recheck > 7 || closed < 290 {
		t.Errorf("a minute of nothing: %d open, %d rechecks, %d closed", open, recheck, closed)
	}
}

func TestWhatMovesWhileTheSceneIsLearntDoesNotBelongToIt(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 3}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{}, nil)
	// Through the picture from the first on, and out of it after four seconds.
	walk := func(n int) { s.box = [4]int{4 + 3*n, 10, 10 + 3*n, 24} }
	if open, recheck, closed := counts(g, s, &at, 4*time.Second, walk); open != 20 {
		t.Errorf("while somebody walks: %d, %d, %d", open, recheck, closed)
	}
	s.box = [4]int{}
	if open, _, closed := counts(g, s, &at, 20*time.Second, nil); open > 11 {
		t.Errorf("of the 20 s after, in which nothing moves, 2 s are held: %d open, %d closed", open, closed)
	}
	// And where the other had stood in the first picture, another is seen at once.
	s.box = [4]int{4, 10, 10, 24}
	if v := g.Look(s.draw(), at); v != motion.Open {
		t.Errorf("verdict %d on somebody where the first had been", v)
	}
}

func TestMotionOpensAtOnceAndHolds(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 3}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{Hold: 3 * time.Second}, nil)
	counts(g, s, &at, 20*time.Second, nil)
	walk := func(n int) { s.box = [4]int{10 + n, 10, 13 + n, 16} }
	if open, recheck, closed := counts(g, s, &at, 4*time.Second, walk); open != 20 {
		t.Errorf("while somebody walks: %d, %d, %d", open, recheck, closed)
	}
	s.box = [4]int{}
	if open, _, _ := counts(g, s, &at, 3*time.Second, nil); open < 14 {
		t.Errorf("%d of 15 pass in the time after", open)
	}
	if open, _, closed := counts(g, s, &at, 20*time.Second, nil); closed < 80 {
		t.Errorf("still open long after: %d open, %d closed", open, closed)
	}
}

func TestWhatHappensBehindAMaskIsNoChangeOfLight(t *testing.T) {
	// A mask over more than half of the picture, behind which everything flickers.
	ignored := make([]bool, motion.Cells)
	for i := range ignored {
		ignored[i] = i%motion.Width < motion.Width*2/3
	}
	rng, at := rand.New(rand.NewPCG(1, 2)), time.Unix(1000, 0)
	s := &scene{rng: rng, noise: 2}
	g := motion.New(ingest.Gate{}, ignored)
	look := func(seconds int) (open int) {
		for range seconds * 5 {
			luma, flicker := s.draw(), byte(rng.IntN(80))
			for i := range luma {
				if ignored[i] {
					luma[i] += flicker
				}
			}
			if g.Look(luma, at) == motion.Open {
				open++
			}
			at = at.Add(200 * time.Millisecond)
		}
		return open
	}
	look(20)
	if open := look(60); open > 0 {
		t.Errorf("%d of 300 pass while nothing moves that may be seen", open)
	}
	s.box = [4]int{50, 10, 58, 20}
	if open := look(2); open != 10 {
		t.Errorf("%d of 10 pass when something moves beside the mask", open)
	}
}

func TestWhatStaysBecomesBackground(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 2}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{}, nil)
	counts(g, s, &at, 20*time.Second, nil)
	s.box = [4]int{20, 10, 30, 20}
	if open, _, _ := counts(g, s, &at, 5*time.Second, nil); open != 25 {
		t.Errorf("%d of 25 pass after a car has come", open)
	}
	counts(g, s, &at, 2*time.Minute, nil)
	if open, _, closed := counts(g, s, &at, 20*time.Second, nil); open > 0 {
		t.Errorf("a parked car keeps it open: %d open, %d closed", open, closed)
	}
}

func TestLightIsNoMotionAndMotionInChangingLightIs(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 2}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{}, nil)
	counts(g, s, &at, 20*time.Second, nil)
	for _, light := range []int{40, -20, 0} {
		s.light = light
		if open, _, closed := counts(g, s, &at, 5*time.Second, nil); open > 0 {
			t.Errorf("light by %d opens it: %d open, %d closed", light, open, closed)
		}
	}
	fade := func(n int) { s.light = n / 2 }
	if open, _, closed := counts(g, s, &at, 20*time.Second, fade); open > 0 {
		t.Errorf("dawn opens it: %d open, %d closed", open, closed)
	}
	both := func(n int) { s.light = 50 - 3*n; s.box = [4]int{10 + n, 10, 16 + n, 20} }
	if open, _, _ := counts(g, s, &at, 3*time.Second, both); open < 14 {
		t.Errorf("%d of 15 pass while somebody walks in changing light", open)
	}
}

func TestAnotherSceneIsShownOnceAndLearnt(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 2}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{}, nil)
	counts(g, s, &at, 15*time.Second, nil)
	turned := make([]byte, motion.Cells)
	for i := range turned {
		turned[i] = byte(40 + 150*(i/8%2) + i%5*9)
	}
	if v := g.Look(turned, at); v != motion.Recheck {
		t.Errorf("the camera was turned: verdict %d", v)
	}
	for range 10 {
		at = at.Add(200 * time.Millisecond)
		if v := g.Look(turned, at); v != motion.Closed {
			t.Errorf("the new scene is still: verdict %d", v)
		}
	}
}

func TestIgnoredAreasDoNotCount(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 2}, time.Unix(1000, 0)
	ignored := make([]bool, motion.Cells)
	for i := range ignored {
		ignored[i] = i%motion.Width < 20
	}
	g := motion.New(ingest.Gate{}, ignored)
	counts(g, s, &at, 15*time.Second, nil)
	if open, _, _ := counts(g, s, &at, 3*time.Second, func(n int) { s.box = [4]int{n, 5, n + 4, 15} }); open > 0 {
		t.Errorf("%d frames pass for motion in the ignored part", open)
	}
	if open, _, _ := counts(g, s, &at, 3*time.Second, func(n int) { s.box = [4]int{30 + n, 5, 34 + n, 15} }); open != 15 {
		t.Errorf("%d of 15 frames pass for motion outside", open)
	}
}

func TestAGapOrAStepOfTimeIsLearntAnew(t *testing.T) {
	for name, step := range map[string]time.Duration{"forward": time.Hour, "backward": -time.Hour} {
		s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 2}, time.Unix(100_000, 0)
		g := motion.New(ingest.Gate{}, nil)
		counts(g, s, &at, 15*time.Second, nil)
		at = at.Add(step)
		if open, _, _ := counts(g, s, &at, 2*time.Second, nil); open != 10 {
			t.Errorf("%s: %d of 10 pass while it learns again", name, open)
		}
	}
}

func TestALookAheadLearnsOnlyFromWhatIsStill(t *testing.T) {
	s, at := &scene{rng: rand.New(rand.NewPCG(1, 2)), noise: 3}, time.Unix(1000, 0)
	g := motion.New(ingest.Gate{Recheck: time.Hour}, nil)
	if g.Ahead(s.draw(), at) != motion.Open {
		t.Error("still before anything is known")
	}
	counts(g, s, &at, 10*time.Second, nil)
	// Dusk, seen in keyframes alone.
	for range 60 {
		at = at.Add(2 * time.Second)
		if s.light--; g.Ahead(s.draw(), at) != motion.Closed {
			t.Fatalf("light by %d is something that moves", s.light)
		}
	}
	ahead := at.Add(2 * time.Second)
	s.box = [4]int{10, 10, 20, 20}
	for range 3 {
		if g.Ahead(s.draw(), ahead) != motion.Open {
			t.Error("a box is nothing that moves")
		}
	}
	if s.box = [4]int{}; g.Ahead(s.draw(), at.Add(time.Hour)) != motion.Open {
		t.Error("a scene is known that was not seen for an hour")
	}
	// The frames before are looked at as if nobody had looked ahead.
	if v := g.Look(s.draw(), at.Add(200*time.Millisecond)); v != motion.Closed {
		t.Errorf("verdict %d on the frame after the last that was still", v)
	}
	s.box = [4]int{4, 10, 8, 20}
	if v := g.Look(s.draw(), at.Add(400*time.Millisecond)); v != motion.Open {
		t.Errorf("verdict %d on the first with the box", v)
	}
	h, at := motion.New(ingest.Gate{}, nil), time.Unix(1000, 0)
	s.box = [4]int{}
	counts(h, s, &at, 11*time.Second, nil) // the last of which opens it were learnt two seconds in
	for due := at.Add(time.Second); due.Before(at.Add(5 * time.Second)); due = due.Add(time.Second) {
		want := motion.Closed
		if due.Sub(time.Unix(1002, 0)) >= motion.DefaultRecheck {
			want = motion.Recheck
		}
		if v := h.Ahead(s.draw(), due); v != want {
			t.Errorf("verdict %d, %v after the last frame that passed", v, due.Sub(time.Unix(1002, 0)))
		}
	}
}
