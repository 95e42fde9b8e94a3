package demo_test

import (
	"runtime"
	"testing"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/appliance/demo/scene"
)

// The clip and its truth can be made again from the sources: what the renderer
// draws now is what the files beside the clip say.
func TestTheEmbeddedTruthIsTheRenderers(t *testing.T) {
	t.Parallel()
	truth, err := demo.Truth()
	if err != nil {
		t.Fatal(err)
	}
	s := scene.New(demo.Seed)
	buf := make([]byte, scene.Width*scene.Height*3/2)
	for n := 0; n < scene.Frames; n += 50 {
		want, got := s.Draw(n, buf), truth.Frame(int64(n))
		if len(got) != len(want) {
			t.Fatalf("frame %d: %d objects in the file, %d drawn", n, len(got), len(want))
		}
		slack := 0.11
		if runtime.GOARCH != "amd64" {
			slack = 1 // fused multiplications round differently
		}
		for i := range got {
			g, w := got[i], want[i]
			if g.ID != w.ID || g.Class != w.Class || !near(g.Full, w.Full, slack) || !near(g.Visible, w.Visible, slack) {
				t.Errorf("frame %d: the file has %+v, drawn is %+v: render the clip anew", n, g, w)
			}
		}
	}
}

func near(a, b scene.Box, by float64) bool {
	for _, d := range []float64{a.X0 - b.X0, a.Y0 - b.Y0, a.X1 - b.X1, a.Y1 - b.Y1} {
		if d > by || d < -by {
			return false
		}
	}
	return true
}

func TestIdentitiesGoOnOverTheLoop(t *testing.T) {
	t.Parallel()
	truth, err := demo.Truth()
	if err != nil {
		t.Fatal(err)
	}
	at := func(k int64) map[int64]bool {
		ids := map[int64]bool{}
		for _, o := range truth.Frame(k) {
			ids[truth.Identity(k, o)] = true
		}
		return ids
	}
	before, after := at(scene.Frames-1), at(scene.Frames)
	stay := 0
	for id := range before {
		if after[id] {
			stay++
		}
	}
	if stay < len(before)-2 {
		t.Errorf("%d of %d identities go on over the end of the loop", stay, len(before))
	}
	for id := range at(0) {
		if at(2 * scene.Frames)[id] {
			t.Errorf("identity %d is used again two loops later", id)
		}
	}
}
