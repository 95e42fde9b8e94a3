package boxes

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
)

func TestRowsThatAreNoBoxesAreDropped(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rows := zeros(300, 6)
	for i, r := range [][]float32{
		{0, 0, 10, 10, nan, 0},
		{0, 0, 10, 10, -inf, 0},
		{0, 0, 10, 10, -0.5, 0},
		{nan, 0, 10, 10, 0.9, 0},
		{0, nan, 10, 10, 0.9, 0},
		{0, 0, inf, 10, 0.9, 0},
		{-inf, 0, inf, 10, 0.9, 0},
		{10, 0, 0, 10, 0.9, 0},  // right of left
		{5, 5, 5, 10, 0.9, 0},   // no width
		{0, 0, 10, 10, 0.9, -1}, // padding
		{0, 0, 10, 10, 0.9, nan},
		{0, 0, 10, 10, 0.9, inf},
		{0, 0, 10, 10, inf, 0},
		{1, 2, 3, 4, 0.7, 5}, // the only good one
	} {
		rows.set(i, r...)
	}
	heads := []tensor.Tensor{rows.head("output0"), geometryOf(1, 1, 0, 0, 64, 64)}
	dets, err := run(t, mustLoad(t, heads), heads)
	want := tracker.Detection{Box: tracker.Box{X1: 1, Y1: 2, X2: 3, Y2: 4}, Score: float64(float32(0.7)), Class: 5}
	if err != nil || !slices.Equal(dets, []tracker.Detection{want}) {
		t.Errorf("got %v, %v", dets, err)
	}
}

func TestWhatShowsTheFamilyToBeWrongFails(t *testing.T) {
	logits, decoded := zeros(300, 6), exports()["yolox_decoded"].heads[0]
	logits.set(0, 0, 0, 10, 10, 7.5, 0)
	for _, c := range []struct {
		name string
		head tensor.Tensor
		want string
	}{
		{"a score of 7.5", logits.head("output0"), "is no probability"},
		{"boxes that are decoded already", decoded, "set parameters[family] to yolox_decoded"},
	} {
		heads := []tensor.Tensor{c.head, geometryOf(1, 1, 0, 0, 64, 64)}
		if _, err := run(t, mustLoad(t, heads), heads); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestRequestsThatDoNotFitFail(t *testing.T) {
	good := exports()["yolox"].heads[0]
	in := mustLoad(t, []tensor.Tensor{good, double})
	for name, heads := range map[string][]tensor.Tensor{
		"the output is missing":   {double},
		"too few bytes":           {{Name: "output", DataType: tensor.FP32, Shape: good.Shape, Data: good.Data[:100]}, double},
		"a type nobody reads":     {{Name: "output", DataType: tensor.Uint8, Shape: []int64{4}, Data: make([]byte, 4)}, double},
		"geometry of five values": {good, floats("GEOMETRY", []int64{5}, make([]float32, 5))},
		"geometry with scale 0":   {good, geometryOf(0, 1, 0, 0, 64, 64)},
		"geometry that is NaN":    {good, geometryOf(float32(math.NaN()), 1, 0, 0, 64, 64)},
	} {
		if _, err := run(t, in, heads); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
}

func TestAHundredThousandBoxesAreBounded(t *testing.T) {
	rows := zeros(100_000, 6)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 100_000 {
		x, y := rnd.Float32()*1000, rnd.Float32()*1000
		rows.set(i, x, y, x+20, y+20, 0.1+0.9*rnd.Float32(), float32(rnd.IntN(80)))
	}
	heads := []tensor.Tensor{rows.head("output0"), geometryOf(1, 1, 0, 0, 1000, 1000)}
	dets, err := run(t, mustLoad(t, heads, "nms=class", "top_k=500"), heads)
	if err != nil || len(dets) != 500 {
		t.Fatalf("%d boxes, %v", len(dets), err)
	}
	if !slices.IsSortedFunc(dets, func(a, b tracker.Detection) int { return int(math.Copysign(1, b.Score-a.Score)) }) {
		t.Error("the best do not come first")
	}
}

func TestClassesAreChosenAndMapped(t *testing.T) {
	rows := zeros(300, 6)
	for i := range 4 {
		rows.set(i, float32(10*i), 0, float32(10*i+9), 9, 0.5, float32(i))
	}
	for _, c := range []struct {
		name       string
		parameters []string
		want       []int
	}{
		{"all", nil, []int{0, 1, 2, 3}},
		{"only some", []string{"classes=1,3"}, []int{1, 3}},
		{"a threshold of its own", []string{"class_thresholds=2=0.9"}, []int{0, 1, 3}},
		{"counted from one", []string{"class_map=one_based"}, []int{0, 1, 2}},
		{"sparse numbers", []string{"class_map=coco91"}, []int{0, 1, 2}},
		{"the best two", []string{"top_k=2"}, []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			heads := []tensor.Tensor{rows.head("output0"), geometryOf(1, 1, 0, 0, 64, 64)}
			dets, err := run(t, mustLoad(t, heads, c.parameters...), heads)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, d := range dets {
				got = append(got, d.Class)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("classes %v, want %v", got, c.want)
			}
		})
	}
}

func TestTheSparseNumberingHasEightyClasses(t *testing.T) {
	table, err := classTable("coco91")
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	for _, c := range table {
		if c >= 0 {
			got = append(got, c)
		}
	}
	if len(got) != 80 || !slices.IsSorted(got) || table[1] != 0 || table[90] != 79 || table[12] != -1 || table[13] != 11 {
		t.Errorf("%d classes: %v", len(got), table)
	}
}

func TestBoxesAreClippedWhenAsked(t *testing.T) {
	rows := zeros(300, 6)
	rows.set(0, -5, -5, 70, 30, 0.9, 0)
	rows.set(1, 70, 0, 80, 10, 0.9, 1)
	heads := []tensor.Tensor{rows.head("output0"), geometryOf(1, 1, 0, 0, 64, 64)}
	dets, err := run(t, mustLoad(t, heads, "clip=true"), heads)
	if want := (tracker.Box{X2: 64, Y2: 30}); err != nil || len(dets) != 1 || dets[0].Box != want {
		t.Errorf("got %v, %v", dets, err)
	}
}

// suppressSlowly is the definition: take the best, drop what it covers, repeat.
func suppressSlowly(c []candidate, limit float64, agnostic bool, most int) []candidate {
	c = slices.Clone(c)
	var kept []candidate
	for len(c) > 0 && len(kept) < most {
		best := 0
		for i := range c {
			if c[i].score > c[best].score {
				best = i
			}
		}
		b := c[best]
		kept = append(kept, b)
		c = slices.DeleteFunc(slices.Delete(c, best, best+1), func(x candidate) bool {
			box := func(c candidate) tracker.Box {
				return tracker.Box{X1: float64(c.x1), Y1: float64(c.y1), X2: float64(c.x2), Y2: float64(c.y2)}
			}
			return (agnostic || x.class == b.class) && iou(box(x), box(b)) > limit
		})
	}
	return kept
}

func TestSuppressionAgreesWithItsDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		c := make([]candidate, rnd.IntN(60))
		for i := range c {
			x, y := float32(rnd.IntN(50)), float32(rnd.IntN(50))
			c[i] = candidate{x1: x, y1: y, x2: x + float32(1+rnd.IntN(40)), y2: y + float32(1+rnd.IntN(40)), score: float32(rnd.IntN(50)) / 50, class: int32(rnd.IntN(3))}
		}
		// No overlap of whole numbers is this one exactly, so rounding decides nothing.
		limit, agnostic, most := 0.4301, rnd.IntN(2) == 0, 1+rnd.IntN(40)
		want := suppressSlowly(c, limit, agnostic, most)
		if got := suppress(slices.Clone(c), limit, agnostic, len(c)+1, most); !slices.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
}

func FuzzHeads(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, uint8(0), uint8(84), uint8(8))
	f.Fuzz(func(t *testing.T, data []byte, which, rows, columns uint8) {
		n := int(rows) * int(columns)
		v := make([]float32, n)
		for i := range v {
			if len(data) > 3 {
				k := (4 * i) % (len(data) - 3)
				v[i] = math.Float32frombits(uint32(data[k]) | uint32(data[k+1])<<8 | uint32(data[k+2])<<16 | uint32(data[k+3])<<24)
			}
		}
		fam := families()[int(which)%len(families())]
		c := configFor(t, []tensor.Tensor{{Name: "output0", DataType: tensor.FP32, Shape: []int64{1, -1, -1}}, double}, "family="+fam.name, "size=64")
		in, err := load(t, c)
		if err != nil {
			t.Skip("not configurable")
		}
		dets, err := run(t, in, []tensor.Tensor{floats("output0", []int64{1, int64(rows), int64(columns)}, v), double})
		if err != nil {
			return
		}
		if len(dets) > n {
			t.Errorf("%d boxes of %d values", len(dets), n)
		}
		for _, d := range dets {
			if !(d.Score > 0 && d.Score <= 1) || !(d.Width() > 0) || !(d.Height() > 0) || d.Class < 0 {
				t.Errorf("box %v", d)
			}
		}
	})
}
