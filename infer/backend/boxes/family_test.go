package boxes

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker"
)

// Every family's outputs are built by hand for two objects in a 64×64 network, whose frame is
// 128×128: a box of class 2 and score 0.8 at 8,16–40,48 and one of class 1 and score 0.6 at 32,8–60,24
// (network pixels). What comes out is twice that.

const side = 64

var (
	truth = []tracker.Detection{
		{Box: tracker.Box{X1: 16, Y1: 32, X2: 80, Y2: 96}, Score: 0.8, Class: 2},
		{Box: tracker.Box{X1: 64, Y1: 16, X2: 120, Y2: 48}, Score: 0.6, Class: 1},
	}
	double = geometryOf(2./4, 2./4, 0, 0, 128, 128)
)

// thing is one object in network pixels.
type thing struct {
	cx, cy, w, h, score float32
	class               int
}

func things() []thing { return []thing{{24, 32, 32, 32, 0.8, 2}, {46, 16, 28, 16, 0.6, 1}} }

func (o thing) corners() []float32 {
	return []float32{o.cx - o.w/2, o.cy - o.h/2, o.cx + o.w/2, o.cy + o.h/2}
}

func ln(v float32) float32 { return float32(math.Log(float64(v))) }

// zeros makes a float head to be filled through set(row, column, value…).
type table struct {
	shape []int64
	v     []float32
}

func zeros(shape ...int64) table {
	n, _ := tensor.ElementCount(shape)
	return table{shape, make([]float32, n)}
}

func filled(v float32, shape ...int64) table {
	t := zeros(shape...)
	for i := range t.v {
		t.v[i] = v
	}
	return t
}

func (t table) set(row int, values ...float32) { copy(t.v[row*int(t.shape[len(t.shape)-1]):], values) }

func (t table) head(name string) tensor.Tensor {
	return floats(name, append([]int64{1}, t.shape...), t.v)
}

// cell finds the cell of a level a point lies in: the index among all cells, and the cell.
func cell(o thing, stride, before int) (int, float32, float32) {
	w := side / stride
	x, y := int(o.cx)/stride, int(o.cy)/stride
	return before + y*w + x, float32(x), float32(y)
}

func classes(n, hot int, v float32) []float32 {
	c := make([]float32, n)
	c[hot] = v
	return c
}

func ints(name string, v ...int64) tensor.Tensor {
	return tensor.Tensor{Name: name, DataType: tensor.Int64, Shape: []int64{1, int64(len(v))}, Data: tensor.AsBytes(v)}
}

func flat(parts ...[]float32) []float32 { return slices.Concat(parts...) }

// sides are the bins of the NanoDet family for a distance in strides.
func binned(distances ...float32) []float32 {
	var out []float32
	for _, d := range distances {
		lower := int(d)
		b := filled(-30, bins).v
		b[lower] = ln(1 - (d - float32(lower)) + 1e-9)
		if lower+1 < bins {
			b[lower+1] = ln(d - float32(lower) + 1e-9)
		}
		out = append(out, b...)
	}
	return out
}

// exports maps a family to its outputs, and to parameters where the shapes alone do not tell it.
func exports() map[string]struct {
	heads      []tensor.Tensor
	parameters []string
} {
	type export = struct {
		heads      []tensor.Tensor
		parameters []string
	}
	m := map[string]export{}

	yolox, decoded, nas, nasScores := zeros(84, 5+3), zeros(84, 5+3), zeros(84, 4), zeros(84, 3)
	v5, v8, plus := zeros(3*84, 5+3), zeros(4+3, 84), filled(0, 85, 3+4*bins)
	for _, o := range things() {
		i, x, y := cell(o, 8, 0)
		yolox.set(i, flat([]float32{o.cx/8 - x, o.cy/8 - y, ln(o.w / 8), ln(o.h / 8), 1}, classes(3, o.class, o.score))...)
		row := flat([]float32{o.cx, o.cy, o.w, o.h, 1}, classes(3, o.class, o.score))
		decoded.set(i, row...)
		v5.set(84+i, row...)
		nas.set(i, o.corners()...)
		nasScores.set(i, classes(3, o.class, o.score)...)
		for k, v := range flat([]float32{o.cx, o.cy, o.w, o.h}, classes(3, o.class, o.score)) {
			v8.v[k*84+i] = v
		}
		// The plus variant's centre is the cell's corner.
		k, px, py := cell(o, 8, 0)
		l, t, r, b := px*8-(o.cx-o.w/2), py*8-(o.cy-o.h/2), o.cx+o.w/2-px*8, o.cy+o.h/2-py*8
		plus.set(k, flat(classes(3, o.class, o.score), binned(l/8, t/8, r/8, b/8))...)
	}
	m["yolox"] = export{heads: []tensor.Tensor{yolox.head("output")}}
	m["yolox_decoded"] = export{[]tensor.Tensor{decoded.head("output")}, []string{"family=yolox_decoded"}}
	m["yolov5"] = export{heads: []tensor.Tensor{v5.head("output0")}}
	m["yolov8"] = export{heads: []tensor.Tensor{v8.head("output0")}}
	m["yolo_nas"] = export{heads: []tensor.Tensor{nasScores.head("913"), nas.head("904")}}
	m["nanodet_plus"] = export{heads: []tensor.Tensor{plus.head("output")}}

	rows6, rows7, nasRows, efficient, pp := zeros(300, 6), zeros(2, 7), zeros(2, 7), zeros(100, 7), zeros(3, 6)
	boxes4, scores, labels := zeros(300, 4), zeros(300), make([]int64, 300)
	norm, corner91, score91, class91 := zeros(300, 4), zeros(100, 4), zeros(100), zeros(100)
	logits, rf, soft := filled(-20, 300, 80), filled(-20, 300, 91), filled(-20, 100, 92)
	softBoxes, ultra := zeros(100, 4), zeros(300, 4+80)
	for i := range soft.v {
		if i%92 == 91 {
			soft.v[i] = 5
		}
	}
	coco := []float32{0, 2, 3} // ids of classes 1 and 2 in the sparse numbering
	logit := func(p float32) float32 { return ln(p / (1 - p)) }
	for i, o := range things() {
		c, unit := o.corners(), []float32{o.cx / side, o.cy / side, o.w / side, o.h / side}
		class := float32(o.class)
		rows6.set(i, flat(c, []float32{o.score, class})...)
		rows7.set(i, flat([]float32{0}, c, []float32{class, o.score})...)
		nasRows.set(i, flat([]float32{0}, c, []float32{o.score, class})...)
		efficient.set(i, 0, c[1], c[0], c[3], c[2], o.score, coco[o.class])
		pp.set(i, flat([]float32{class, o.score}, c)...)
		boxes4.set(i, c...)
		scores.v[i], labels[i] = o.score, int64(o.class)
		norm.set(i, unit...)
		softBoxes.set(i, unit...)
		corner91.set(i, c[1]/side, c[0]/side, c[3]/side, c[2]/side)
		score91.v[i], class91.v[i] = o.score, coco[o.class]
		logits.v[i*80+o.class] = logit(o.score)
		rf.v[i*91+int(coco[o.class])] = logit(o.score)
		soft.v[i*92+int(coco[o.class])] = 5 + logit(o.score)
		ultra.set(i, flat(unit, classes(80, o.class, o.score))...)
	}
	pp.set(2, 0, 0.9, 0, 0, 60, 60) // beyond the count: must not be read
	count := func(name string, n int32) tensor.Tensor {
		return tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{1}, Data: tensor.AsBytes([]int32{n})}
	}
	size := []string{"size=64"}
	m["yolo_end2end"] = export{heads: []tensor.Tensor{rows6.head("output0")}}
	m["yolov7_end2end"] = export{heads: []tensor.Tensor{floats("output", []int64{2, 7}, rows7.v)}}
	m["yolo_nas_flat"] = export{heads: []tensor.Tensor{floats("graph2_flat_predictions", []int64{2, 7}, nasRows.v)}}
	m["efficientdet"] = export{heads: []tensor.Tensor{efficient.head("detections")}}
	m["ppyoloe"] = export{heads: []tensor.Tensor{floats("multiclass_nms3_0.tmp_0", []int64{3, 6}, pp.v), count("multiclass_nms3_0.tmp_2", 2)}}
	m["rtdetr"] = export{heads: []tensor.Tensor{ints("labels", labels...), boxes4.head("boxes"), scores.head("scores")}}
	one := make([]int64, 2)
	for i, o := range things() {
		one[i] = int64(o.class) + 1
	}
	m["faster_rcnn"] = export{heads: []tensor.Tensor{
		floats("6379", []int64{2, 4}, boxes4.v[:8]),
		{Name: "6381", DataType: tensor.Int64, Shape: []int64{2}, Data: tensor.AsBytes(one)},
		floats("6383", []int64{2}, scores.v[:2]),
	}}
	m["detr_query"] = export{[]tensor.Tensor{logits.head("logits"), norm.head("pred_boxes")}, size}
	m["rfdetr"] = export{[]tensor.Tensor{norm.head("dets"), rf.head("labels")}, size}
	m["detr"] = export{[]tensor.Tensor{soft.head("logits"), softBoxes.head("pred_boxes")}, size}
	m["rtdetr_ultralytics"] = export{[]tensor.Tensor{ultra.head("output0")}, size}
	m["ssd"] = export{[]tensor.Tensor{
		corner91.head("detection_boxes:0"), class91.head("detection_classes:0"), score91.head("detection_scores:0"),
		floats("num_detections:0", []int64{1}, []float32{2}),
	}, size}
	whole := func(name string, t table) tensor.Tensor {
		v := make([]int32, len(t.v))
		for i := range v {
			v[i] = int32(t.v[i])
		}
		return tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{1, int64(len(v))}, Data: tensor.AsBytes(v)}
	}
	direct := zeros(100)
	pixels := zeros(100, 4)
	for i, o := range things() {
		direct.v[i] = float32(o.class)
		pixels.set(i, o.corners()...)
	}
	m["efficient_nms"] = export{heads: []tensor.Tensor{
		{Name: "num_dets", DataType: tensor.Int32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]int32{2})},
		pixels.head("det_boxes"), score91.head("det_scores"), whole("det_classes", direct),
	}}

	// Scores of PP-YOLOE lie class by class.
	raw, rawScores := zeros(84, 4), zeros(3, 84)
	for i, o := range things() {
		raw.set(i, o.corners()...)
		rawScores.v[o.class*84+i] = o.score
	}
	m["ppyoloe_raw"] = export{heads: []tensor.Tensor{rawScores.head("concat_14.tmp_0"), raw.head("tmp_17")}}

	var pico, picoSides []tensor.Tensor
	for level, stride := range []int{8, 16, 32, 64} {
		w := int64(side / stride)
		c, b := zeros(w*w, 3), zeros(w*w, 4*bins)
		if level == 0 {
			for _, o := range things() {
				i, x, y := cell(o, stride, 0)
				px, py := x*8+4, y*8+4
				c.set(i, classes(3, o.class, o.score)...)
				b.set(i, binned((px-o.cx+o.w/2)/8, (py-o.cy+o.h/2)/8, (o.cx+o.w/2-px)/8, (o.cy+o.h/2-py)/8)...)
			}
		}
		pico, picoSides = append(pico, c.head(fmt.Sprint("s", level))), append(picoSides, b.head(fmt.Sprint("d", level)))
	}
	m["picodet"] = export{heads: append(pico, picoSides...)}

	var grids, cls, box []tensor.Tensor
	for level, stride := range []int{8, 16, 32} {
		w := int64(side / stride)
		g := filled(-20, 3*(5+3), w, w)
		c, b := zeros(w*w, 3), zeros(w*w, 4*bins)
		if level == 0 {
			n := int(w * w)
			for _, o := range things() {
				i, x, y := cell(o, stride, 0)
				centre := float32(0.5 * (8 - 1))
				px, py := x*8+centre, y*8+centre
				c.set(i, classes(3, o.class, o.score)...)
				b.set(i, binned((px-o.cx+o.w/2)/8, (py-o.cy+o.h/2)/8, (o.cx+o.w/2-px)/8, (o.cy+o.h/2-py)/8)...)
				// Anchor 2 of the first level is 40×28.
				at := func(k int) *float32 { return &g.v[(2*8+k)*n+i] }
				*at(0) = logit((o.cx/8 - x + 0.5) / 2)
				*at(1) = logit((o.cy/8 - y + 0.5) / 2)
				*at(2) = logit(float32(math.Sqrt(float64(o.w/40))) / 2)
				*at(3) = logit(float32(math.Sqrt(float64(o.h/28))) / 2)
				*at(4) = 20
				*at(5 + o.class) = logit(o.score)
			}
		}
		grids, cls, box = append(grids, g.head(fmt.Sprint("p", level))), append(cls, c.head(fmt.Sprint("c", level))), append(box, b.head(fmt.Sprint("b", level)))
	}
	m["yolov7_raw"] = export{heads: grids}
	m["nanodet"] = export{heads: append(cls, box...)}

	fast := zeros(5+3, 4, 4)
	for _, o := range things() {
		i, x, y := cell(o, 16, 0)
		atanh := func(v float32) float32 { return float32(math.Atanh(float64(v))) }
		values := flat([]float32{1, atanh(o.cx/16 - x), atanh(o.cy/16 - y), logit(o.w / side), logit(o.h / side)},
			classes(3, o.class, float32(math.Pow(float64(o.score), 1/0.4))))
		for k, v := range values {
			fast.v[k*16+i] = v
		}
	}
	m["fastestdet"] = export{heads: []tensor.Tensor{fast.head("758")}}
	return m
}

func TestEveryFamilyIsRecognisedAndRead(t *testing.T) {
	all := exports()
	for _, f := range families() {
		if _, ok := all[f.name]; !ok {
			t.Errorf("family %s has no golden outputs", f.name)
		}
	}
	for name, e := range all {
		t.Run(name, func(t *testing.T) {
			heads := append(slices.Clone(e.heads), double)
			in := mustLoad(t, heads, append(e.parameters, "score_threshold=0.3")...)
			dets, err := run(t, in, heads)
			if err != nil {
				t.Fatal(err)
			}
			if i, ok := in.(*instance); !ok || i.current.family.name != name {
				t.Errorf("recognised as %s", i.current.family.name)
			}
			if len(dets) != len(truth) {
				t.Fatalf("got %v, want %v", dets, truth)
			}
			for i, w := range truth {
				d := dets[i]
				if d.Class != w.Class || math.Abs(d.Score-w.Score) > 0.005 || iou(d.Box, w.Box) < 0.97 {
					t.Errorf("got %v, want %v", d, w)
				}
			}
		})
	}
}

func TestHalfPrecisionIsRead(t *testing.T) {
	h := exports()["yolov8"].heads[0]
	half := tensor.Tensor{Name: h.Name, DataType: tensor.FP16, Shape: h.Shape}
	for _, v := range tensor.Float32s(h.Data) {
		x := tensor.Float32ToFP16(v)
		half.Data = append(half.Data, byte(x), byte(x>>8))
	}
	heads := []tensor.Tensor{half, double}
	dets, err := run(t, mustLoad(t, heads), heads)
	if err != nil || len(dets) != 2 || iou(dets[0].Box, truth[0].Box) < 0.97 {
		t.Errorf("got %v, %v", dets, err)
	}
}

func TestOutputsThatSayTooLittleAreRefused(t *testing.T) {
	for _, c := range []struct {
		name       string
		heads      []tensor.Tensor
		parameters []string
		want       string
	}{
		{"rows of seven under an unknown name", []tensor.Tensor{zeros(100, 7).head("out")}, nil, "fit no family of detectors: name one in parameters[family]"},
		{"rows of six under an unknown name", []tensor.Tensor{zeros(100, 6).head("out")}, nil, "fit no family"},
		{"queries of forty classes", []tensor.Tensor{zeros(300, 40).head("logits"), zeros(300, 4).head("pred_boxes")}, nil, "fit no family"},
		{"a classifier", []tensor.Tensor{zeros(1000).head("probabilities")}, nil, "probabilities FP32[1000] fit no family"},
		{"a grid whose size is no square", []tensor.Tensor{zeros(100, 85).head("output")}, nil, "parameters[size] (WIDTHxHEIGHT)"},
		{"a family that does not fit", []tensor.Tensor{zeros(84, 8).head("output")}, []string{"family=ssd"}, `do not fit the family "ssd"`},
		{"a family there is not", []tensor.Tensor{zeros(84, 8).head("output")}, []string{"family=yolo99"}, `parameters[family]: "yolo99" is not one of yolox`},
		{"no output at all", nil, nil, "list the detector's outputs"},
		{"a threshold that is none", []tensor.Tensor{zeros(84, 8).head("output")}, []string{"score_threshold=1.5"}, `parameters[score_threshold]: "1.5" is not a score`},
		{"every fault at once", []tensor.Tensor{zeros(84, 8).head("output")}, []string{"nms=maybe", "top_k=0", "class_map=mine"}, "parameters[class_map]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, configFor(t, append(c.heads, double), c.parameters...))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			for _, p := range c.parameters {
				if k, _, _ := strings.Cut(p, "="); c.name == "every fault at once" && !strings.Contains(err.Error(), k) {
					t.Errorf("%s is not mentioned: %v", k, err)
				}
			}
		})
	}
}

func TestARectangularNetworkNeedsItsSize(t *testing.T) {
	// 128×64: 8·16 + 4·8 + 2·4 cells.
	heads := []tensor.Tensor{zeros(168, 8).head("output"), double}
	tensor.Float32s(heads[0].Data)[8*(16+3)+4] = 1 // objectness of cell 3,1
	copy(tensor.Float32s(heads[0].Data)[8*(16+3)+5:], []float32{0.9})
	dets, err := run(t, mustLoad(t, heads, "size=128x64"), heads)
	if err != nil || len(dets) != 1 || math.Abs(dets[0].X1-2*(24-4)) > 1e-3 || math.Abs(dets[0].Y1-2*(8-4)) > 1e-3 {
		t.Errorf("got %v, %v", dets, err)
	}
}

func TestADetectorWhoseShapeChangesIsReadAnew(t *testing.T) {
	e := exports()
	small, double := e["yolox"].heads[0], double
	c := configFor(t, []tensor.Tensor{{Name: "output", DataType: tensor.FP32, Shape: []int64{1, -1, -1}}, double})
	in, err := load(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if dets, err := run(t, in, []tensor.Tensor{small, double}); err != nil || len(dets) != 2 {
		t.Fatalf("got %v, %v", dets, err)
	}
	large := zeros(336, 8) // 128×128
	large.set(0, 0, 0, 0, 0, 1, 0.9)
	if dets, err := run(t, in, []tensor.Tensor{large.head("output"), double}); err != nil || len(dets) != 1 {
		t.Errorf("got %v, %v", dets, err)
	}
	if _, err := run(t, in, []tensor.Tensor{zeros(100, 8).head("output"), double}); err == nil || !strings.Contains(err.Error(), "fit no family") {
		t.Errorf("outputs of a shape nobody knows: %v", err)
	}
	if dets, err := run(t, in, []tensor.Tensor{small, double}); err != nil || len(dets) != 2 {
		t.Errorf("got %v, %v", dets, err)
	}
}
