package boxes

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vedette/vedette/infer/tensor"
)

// head is one output of a detector, the batch dimension taken off.
type head struct {
	name  string
	typ   tensor.DataType
	shape []int64
	f     []float32 // values of float heads
	data  []byte    // values as they came
}

// at reads value i of a head of whole numbers, or of floats that stand for them.
func (h *head) at(i int) float64 {
	switch h.typ {
	case tensor.Int64:
		return float64(tensor.View[int64](h.data[8*i:])[0])
	case tensor.Int32:
		return float64(tensor.View[int32](h.data[4*i:])[0])
	default:
		return float64(h.f[i])
	}
}

func (h *head) float() bool { return h.typ == tensor.FP32 || h.typ == tensor.FP16 }

func (h *head) is(t tensor.DataType, rank int) bool { return h.typ == t && len(h.shape) == rank }

// count is the number of elements.
func (h *head) count() int {
	n, err := tensor.ElementCount(h.shape)
	if err != nil {
		return 0
	}
	return int(n)
}

// plan is how the heads at hand are to be read.
type plan struct {
	family *family
	// order is, for every role of the family, the head that plays it.
	order []int
	// classes is how many the detector tells apart; 0 where labels are numbers.
	classes int
	// width, height of the network's input in pixels; 0: from GEOMETRY.
	width, height int
	// levels of families with a grid, in the order of their cells.
	levels []level
}

// level is a grid of cells that each look at stride×stride pixels.
type level struct{ w, h, stride int }

func (l level) cells() int { return l.w * l.h }

// family is one way detectors are exported.
type family struct {
	name string
	// fits finds the roles among the heads and sets what follows from the
	// shapes; nil says it is none of this family. named tells that the
	// configuration names the family, so that names of heads need not agree.
	fits func(h []head, size [2]int, named bool) *plan
	// decode emits what it sees, in pixels of the network's input.
	decode func(d *decoder, p *plan, h []head) error
	// nms is the overlap above which a box yields; 0: the export did it.
	nms float64
	// classMap is the numbering of the labels.
	classMap string
}

// families is the table, in the order in which they are tried. At most one of
// those that may be guessed fits any set of heads.
func families() []*family {
	return []*family{
		{name: "yolox", fits: fitsYOLOX, decode: decodeYOLOX, nms: 0.45},
		{name: "yolox_decoded", fits: named(fitsYOLOX), decode: decodeYOLOXDecoded, nms: 0.45},
		{name: "yolov5", fits: fitsYOLOv5, decode: decodeYOLOv5, nms: 0.45},
		{name: "yolov8", fits: fitsYOLOv8, decode: decodeYOLOv8, nms: 0.45},
		{name: "yolo_end2end", fits: fitsEnd2End, decode: decodeEnd2End},
		{name: "yolov7_end2end", fits: fitsSeven("output"), decode: decodeYOLOv7End2End},
		{name: "yolo_nas_flat", fits: fitsSeven("graph2_flat_predictions"), decode: decodeNASFlat},
		{name: "efficientdet", fits: fitsSeven("detections"), decode: decodeEfficientDet, classMap: "coco91"},
		{name: "yolov7_raw", fits: fitsYOLOv7Raw, decode: decodeYOLOv7Raw, nms: 0.45},
		{name: "yolo_nas", fits: fitsYOLONAS, decode: decodeYOLONAS, nms: 0.45},
		{name: "efficient_nms", fits: fitsCounted("num_dets", "det_boxes", "det_scores", "det_classes"), decode: decodeEfficientNMS},
		{
			name: "ssd", decode: decodeSSD, classMap: "coco91",
			fits: fitsCounted("num_detections", "detection_boxes", "detection_scores", "detection_classes"),
		},
		{name: "rtdetr", fits: fitsRTDETR, decode: decodeLabelled},
		{name: "faster_rcnn", fits: fitsFasterRCNN, decode: decodeLabelled, classMap: "one_based"},
		{name: "detr_query", fits: fitsQueries("logits", "pred_boxes", 80), decode: decodeSigmoidQueries},
		{name: "rfdetr", fits: fitsRFDETR, decode: decodeSigmoidTopK, classMap: "coco91"},
		{name: "detr", fits: fitsQueries("logits", "pred_boxes", 92), decode: decodeSoftmaxQueries, classMap: "coco91"},
		{name: "rtdetr_ultralytics", fits: fitsRTDETRUltralytics, decode: decodeRTDETRUltralytics},
		{name: "nanodet", fits: fitsSides(8, 16, 32), decode: decodeNanoDet, nms: 0.6},
		{name: "picodet", fits: fitsSides(8, 16, 32, 64), decode: decodePicoDet, nms: 0.6},
		{name: "nanodet_plus", fits: fitsNanoDetPlus, decode: decodeNanoDetPlus, nms: 0.6},
		{name: "fastestdet", fits: fitsFastestDet, decode: decodeFastestDet, nms: 0.45},
		{name: "ppyoloe", fits: fitsPPYOLOE, decode: decodePPYOLOE},
		{name: "ppyoloe_raw", fits: fitsPPYOLOERaw, decode: decodePPYOLOERaw, nms: 0.7},
	}
}

// named makes a family that is never guessed.
func named(fits func([]head, [2]int, bool) *plan) func([]head, [2]int, bool) *plan {
	return func(h []head, size [2]int, named bool) *plan {
		if !named {
			return nil
		}
		return fits(h, size, true)
	}
}

// recognise finds the family of the heads; name, if not empty, is what the
// configuration says. The text of its error is for whoever wrote the
// configuration.
func recognise(h []head, name string, size [2]int) (*plan, error) {
	var fit []*plan
	var known []string
	for _, f := range families() {
		known = append(known, f.name)
		if name != "" && f.name != name {
			continue
		}
		if p := f.fits(h, size, name != ""); p != nil {
			p.family = f
			fit = append(fit, p)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case name != "" && !slices.Contains(known, name):
		return nil, fmt.Errorf("parameters[family]: %q is not one of %s", name, strings.Join(known, ", "))
	case name != "":
		return nil, fmt.Errorf("the detector's outputs %s do not fit the family %q%s", describe(h), name, sizeHint(size))
	case len(fit) == 0:
		return nil, fmt.Errorf("the detector's outputs %s fit no family of detectors: name one in parameters[family]%s; known are %s",
			describe(h), sizeHint(size), strings.Join(known, ", "))
	}
	names := make([]string, len(fit))
	for i, p := range fit {
		names[i] = p.family.name
	}
	return nil, fmt.Errorf("the detector's outputs %s fit several families: name one of %s in parameters[family]",
		describe(h), strings.Join(names, ", "))
}

func sizeHint(size [2]int) string {
	if size[0] != 0 {
		return ""
	}
	return ", and parameters[size] (WIDTHxHEIGHT) if the network's input is not square"
}

func describe(h []head) string {
	words := make([]string, len(h))
	for i := range h {
		words[i] = fmt.Sprintf("%s %s%s", h[i].name, h[i].typ, tensor.FormatShape(h[i].shape))
	}
	return strings.Join(words, ", ")
}

// grids lays levels of these strides over the network's input. Without a size
// it must be square, and n, the number of cells, tells its side.
func grids(n int, size [2]int, strides ...int) []level {
	lay := func(w, h int) []level {
		levels, sum := make([]level, len(strides)), 0
		for i, s := range strides {
			levels[i] = level{w: (w + s - 1) / s, h: (h + s - 1) / s, stride: s}
			sum += levels[i].cells()
		}
		if sum != n {
			return nil
		}
		return levels
	}
	if size[0] != 0 {
		return lay(size[0], size[1])
	}
	// The finest level has at least n·3/4 of the cells of three or four levels.
	side := int(math.Sqrt(float64(n))) * strides[0]
	for s := side / 32 * 32; s > 0 && s >= side*3/4; s -= 32 {
		if l := lay(s, s); l != nil {
			return l
		}
	}
	return nil
}

func (p *plan) sized(l []level) *plan {
	if l == nil {
		return nil
	}
	p.levels = l
	p.width, p.height = l[0].w*l[0].stride, l[0].h*l[0].stride
	return p
}

func one(h []head) bool { return len(h) == 1 && h[0].float() }

func fitsYOLOX(h []head, size [2]int, _ bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] < 6 {
		return nil
	}
	return (&plan{order: []int{0}, classes: int(h[0].shape[1]) - 5}).sized(grids(int(h[0].shape[0]), size, 8, 16, 32))
}

func fitsYOLOv5(h []head, size [2]int, _ bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] < 6 || h[0].shape[0]%3 != 0 {
		return nil
	}
	return (&plan{order: []int{0}, classes: int(h[0].shape[1]) - 5}).sized(grids(int(h[0].shape[0]/3), size, 8, 16, 32))
}

func fitsYOLOv8(h []head, size [2]int, _ bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[0] < 5 || h[0].shape[0] >= h[0].shape[1] {
		return nil
	}
	return (&plan{order: []int{0}, classes: int(h[0].shape[0]) - 4}).sized(grids(int(h[0].shape[1]), size, 8, 16, 32))
}

func fitsEnd2End(h []head, _ [2]int, named bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] != 6 || (!named && h[0].name != "output0") {
		return nil
	}
	return &plan{order: []int{0}}
}

// fitsSeven: rows of seven say too little, the name must.
func fitsSeven(name string) func(h []head, size [2]int, named bool) *plan {
	return func(h []head, _ [2]int, named bool) *plan {
		if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] != 7 {
			return nil
		}
		if !named && strings.TrimSuffix(h[0].name, ":0") != name {
			return nil
		}
		return &plan{order: []int{0}}
	}
}

// fitsYOLOv7Raw: three grids [3·(5+C), h, w], each half as fine as the one before.
func fitsYOLOv7Raw(h []head, _ [2]int, _ bool) *plan {
	if len(h) != 3 {
		return nil
	}
	p := &plan{order: []int{0, 1, 2}}
	for i := range h {
		if len(h[i].shape) != 3 || !h[i].float() || h[i].shape[0]%3 != 0 || h[i].shape[0] != h[0].shape[0] || h[i].shape[0] < 18 {
			return nil
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return int(h[b].shape[1] - h[a].shape[1]) })
	p.classes = int(h[0].shape[0]/3) - 5
	fine := h[p.order[0]].shape
	for i, k := range p.order {
		l := level{w: int(h[k].shape[2]), h: int(h[k].shape[1]), stride: 8 << i}
		if l.w<<i != int(fine[2]) || l.h<<i != int(fine[1]) {
			return nil
		}
		p.levels = append(p.levels, l)
	}
	return p.sized(p.levels)
}

func fitsYOLONAS(h []head, size [2]int, _ bool) *plan {
	if len(h) != 2 || !h[0].float() || !h[1].float() || len(h[0].shape) != 2 || len(h[1].shape) != 2 || h[0].shape[0] != h[1].shape[0] {
		return nil
	}
	p := &plan{order: []int{0, 1}}
	if h[0].shape[1] != 4 {
		p.order = []int{1, 0}
	}
	if h[p.order[0]].shape[1] != 4 || h[p.order[1]].shape[1] == 4 {
		return nil
	}
	p.classes = int(h[p.order[1]].shape[1])
	return p.sized(grids(int(h[0].shape[0]), size, 8, 16, 32))
}

// roles finds heads by name, in the order given; nil if one is missing.
func roles(h []head, names ...string) []int {
	if len(h) != len(names) {
		return nil
	}
	var order []int
	for _, n := range names {
		i := slices.IndexFunc(h, func(h head) bool { return strings.TrimSuffix(h.name, ":0") == n })
		if i < 0 {
			return nil
		}
		order = append(order, i)
	}
	return order
}

// fitsCounted: count, boxes [n,4], scores [n], classes [n].
func fitsCounted(names ...string) func(h []head, size [2]int, named bool) *plan {
	return func(h []head, _ [2]int, _ bool) *plan {
		o := roles(h, names...)
		if o == nil || len(h[o[1]].shape) != 2 || h[o[1]].shape[1] != 4 || h[o[0]].count() != 1 ||
			h[o[2]].count()*4 != h[o[1]].count() || h[o[3]].count() != h[o[2]].count() || !h[o[1]].float() || !h[o[2]].float() {
			return nil
		}
		return &plan{order: o}
	}
}

func fitsRTDETR(h []head, _ [2]int, named bool) *plan {
	o := roles(h, "labels", "boxes", "scores")
	// Others use these names too, with another numbering; only the public exports' 300 are sure.
	if o == nil || !labelled(h, o) || (!named && h[o[0]].shape[0] != 300) {
		return nil
	}
	return &plan{order: o}
}

// labelled: labels [n] whole numbers, boxes [n,4], scores [n].
func labelled(h []head, o []int) bool {
	l, b, s := &h[o[0]], &h[o[1]], &h[o[2]]
	return l.is(tensor.Int64, 1) && b.float() && len(b.shape) == 2 && b.shape[1] == 4 && s.float() && len(s.shape) == 1 &&
		l.shape[0] == b.shape[0] && s.shape[0] == b.shape[0]
}

// fitsFasterRCNN: the same by shape alone; its names are numbers.
func fitsFasterRCNN(h []head, _ [2]int, named bool) *plan {
	if len(h) != 3 || (!named && roles(h, "labels", "boxes", "scores") != nil) {
		return nil
	}
	find := func(ok func(*head) bool) int {
		return slices.IndexFunc(h, func(h head) bool { return ok(&h) })
	}
	o := []int{
		find(func(h *head) bool { return h.is(tensor.Int64, 1) }),
		find(func(h *head) bool { return h.float() && len(h.shape) == 2 }),
		find(func(h *head) bool { return h.float() && len(h.shape) == 1 }),
	}
	if slices.Contains(o, -1) || !labelled(h, o) {
		return nil
	}
	return &plan{order: o}
}

// fitsQueries: logits [q,k] and boxes [q,4]. Their activation cannot be seen, so
// only the k of the public exports is taken without a name.
func fitsQueries(logits, boxes string, k int64) func(h []head, size [2]int, named bool) *plan {
	return func(h []head, _ [2]int, named bool) *plan {
		o := roles(h, logits, boxes)
		if o == nil || !queries(h, o) || (!named && h[o[0]].shape[1] != k) {
			return nil
		}
		return &plan{order: o, classes: int(h[o[0]].shape[1])}
	}
}

func queries(h []head, o []int) bool {
	l, b := &h[o[0]], &h[o[1]]
	return l.float() && b.float() && len(l.shape) == 2 && len(b.shape) == 2 && b.shape[1] == 4 && l.shape[0] == b.shape[0]
}

func fitsRFDETR(h []head, size [2]int, named bool) *plan {
	if o := roles(h, "labels", "dets"); o != nil && queries(h, o) {
		return &plan{order: o, classes: int(h[o[0]].shape[1])}
	}
	return fitsQueries("logits", "pred_boxes", 91)(h, size, named)
}

func fitsRTDETRUltralytics(h []head, size [2]int, named bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] < 5 || (!named && (h[0].shape[0] != 300 || h[0].shape[1] < 8)) {
		return nil
	}
	if !named && (fitsYOLOX(h, size, false) != nil || fitsYOLOv5(h, size, false) != nil) {
		return nil
	}
	return &plan{order: []int{0}, classes: int(h[0].shape[1]) - 4}
}

const bins = 8 // of a side's distance in the NanoDet family

// fitsSides: for every stride a head of classes and one of binned sides.
func fitsSides(strides ...int) func(h []head, size [2]int, named bool) *plan {
	return func(h []head, size [2]int, _ bool) *plan { return sides(h, size, strides) }
}

func sides(h []head, size [2]int, strides []int) *plan {
	if len(h) != 2*len(strides) {
		return nil
	}
	var cls, box []int
	n := 0
	for i := range h {
		rows, columns := rowsOf(&h[i])
		switch columns {
		case 0:
			return nil
		case 4 * bins:
			box = append(box, i)
		default:
			cls = append(cls, i)
			n += rows
		}
	}
	if len(cls) != len(box) {
		return nil
	}
	finest := func(a, b int) int { return h[b].count() - h[a].count() }
	slices.SortFunc(cls, finest)
	slices.SortFunc(box, finest)
	_, classes := rowsOf(&h[cls[0]])
	p := (&plan{order: append(cls, box...), classes: classes}).sized(grids(n, size, strides...))
	if p == nil {
		return nil
	}
	for i := range strides {
		rows, columns := rowsOf(&h[cls[i]])
		if sided, _ := rowsOf(&h[box[i]]); sided != rows || columns != classes || rows != p.levels[i].cells() {
			return nil
		}
	}
	return p
}

// rowsOf reads a head as rows and columns; 0, 0 if it is none. A single row may
// have lost its dimension.
func rowsOf(h *head) (rows, columns int) {
	switch {
	case !h.float():
	case len(h.shape) == 2:
		return int(h.shape[0]), int(h.shape[1])
	case len(h.shape) == 1:
		return 1, int(h.shape[0])
	}
	return 0, 0
}

func fitsNanoDetPlus(h []head, size [2]int, _ bool) *plan {
	if !one(h) || len(h[0].shape) != 2 || h[0].shape[1] <= 4*bins {
		return nil
	}
	return (&plan{order: []int{0}, classes: int(h[0].shape[1]) - 4*bins}).sized(grids(int(h[0].shape[0]), size, 8, 16, 32, 64))
}

func fitsFastestDet(h []head, _ [2]int, _ bool) *plan {
	if !one(h) || len(h[0].shape) != 3 || h[0].shape[0] < 6 || h[0].shape[1] < 1 || h[0].shape[2] < 1 {
		return nil
	}
	l := []level{{w: int(h[0].shape[2]), h: int(h[0].shape[1]), stride: 16}}
	return (&plan{order: []int{0}, classes: int(h[0].shape[0]) - 5}).sized(l)
}

// fitsPPYOLOE: rows [n,6] and how many of them count.
func fitsPPYOLOE(h []head, _ [2]int, _ bool) *plan {
	if len(h) != 2 {
		return nil
	}
	o := []int{0, 1}
	if len(h[0].shape) != 2 {
		o = []int{1, 0}
	}
	rows, n := &h[o[0]], &h[o[1]]
	if !rows.float() || len(rows.shape) != 2 || rows.shape[1] != 6 || n.float() || n.count() != 1 {
		return nil
	}
	return &plan{order: o}
}

// fitsPPYOLOERaw: boxes [n,4] and, the other way round, scores [classes,n].
func fitsPPYOLOERaw(h []head, size [2]int, _ bool) *plan {
	if len(h) != 2 || !h[0].float() || !h[1].float() || len(h[0].shape) != 2 || len(h[1].shape) != 2 {
		return nil
	}
	o := []int{0, 1}
	if h[0].shape[1] != 4 {
		o = []int{1, 0}
	}
	b, s := h[o[0]].shape, h[o[1]].shape
	if b[1] != 4 || s[1] != b[0] || s[0] >= s[1] {
		return nil
	}
	return (&plan{order: o, classes: int(s[0])}).sized(grids(int(b[0]), size, 8, 16, 32))
}
