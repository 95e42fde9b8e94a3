package boxes

import (
	"fmt"
	"math"
)

// candidate is a box in pixels of the network's input.
type candidate struct {
	x1, y1, x2, y2, score float32
	class                 int32
	cut                   bool // by the rim of a part of the frame
}

// decoder collects what the heads of one frame show. Its buffers are used again.
type decoder struct {
	thresholds []float32 // per class after mapping; the last one is for all others
	lowest     float32   // the smallest threshold
	classMap   []int32   // class as the detector says it to class as we say it, -1: none; nil: as it is
	found      []candidate
	best       []float32 // scratch: per anchor
	class      []int32   // scratch: per anchor
	bad        error     // first value that shows the family to be wrong
}

// scoreLimit is how far above 1 rounding may lift a probability.
const scoreLimit = 1.001

// emit keeps a box whose score reaches its class's threshold. Scores that are
// not numbers and boxes without area or with infinite sides are dropped.
func (d *decoder) emit(x1, y1, x2, y2, score float32, class int) {
	if !(score >= d.lowest) {
		return
	}
	if score > scoreLimit {
		if d.bad == nil && !math.IsInf(float64(score), 0) {
			d.bad = fmt.Errorf("a score of %g is no probability: the detector's outputs are read wrongly, set parameters[family]", score)
		}
		return
	}
	c := int32(class)
	if d.classMap != nil {
		if class < 0 || class >= len(d.classMap) || d.classMap[class] < 0 {
			return
		}
		c = d.classMap[class]
	}
	if c < 0 || score < d.thresholds[min(int(c), len(d.thresholds)-1)] {
		return
	}
	if !(x2 > x1) || !(y2 > y1) || x2-x1 > math.MaxFloat32 || y2-y1 > math.MaxFloat32 {
		return
	}
	d.found = append(d.found, candidate{x1: x1, y1: y1, x2: x2, y2: y2, score: min(score, 1), class: c})
}

func (d *decoder) emitCentre(cx, cy, w, h, score float32, class int) {
	d.emit(cx-w/2, cy-h/2, cx+w/2, cy+h/2, score, class)
}

// best finds the largest value; the first of equals. NaN never wins.
func largest(v []float32) (float32, int) {
	top, at := float32(math.Inf(-1)), -1
	for i, x := range v {
		if x > top {
			top, at = x, i
		}
	}
	return top, at
}

func exp(v float32) float32 { return float32(math.Exp(float64(v))) }

func sigmoid(v float32) float32 { return float32(1 / (1 + math.Exp(-float64(v)))) }

// logit is sigmoid's inverse: scores can be refused before the exponential.
func logit(p float32) float32 {
	switch {
	case p <= 0:
		return float32(math.Inf(-1))
	case p >= 1:
		return float32(math.Inf(1))
	}
	return float32(math.Log(float64(p) / (1 - float64(p))))
}

// YOLOX: cells of all levels, each dx, dy, log w, log h, objectness, classes.
func decodeYOLOX(d *decoder, p *plan, h []head) error {
	v, row := h[p.order[0]].f, p.classes+5
	for _, l := range p.levels {
		s := float32(l.stride)
		for y := range l.h {
			for x := range l.w {
				r := v[:row]
				v = v[row:]
				if !(r[4] >= d.lowest) {
					continue
				}
				c, k := largest(r[5:])
				if score := r[4] * c; score >= d.lowest {
					if r[2] > 20 || r[3] > 20 {
						return fmt.Errorf("a box of e^%g cells: the export has its boxes decoded already, set parameters[family] to yolox_decoded", max(r[2], r[3]))
					}
					d.emitCentre((r[0]+float32(x))*s, (r[1]+float32(y))*s, exp(r[2])*s, exp(r[3])*s, score, k)
				}
			}
		}
	}
	return nil
}

// YOLOv5, and YOLOX with decoding in the graph: rows of cx, cy, w, h, objectness, classes.
func decodeYOLOv5(d *decoder, p *plan, h []head) error {
	v, row := h[p.order[0]].f, p.classes+5
	for ; len(v) >= row; v = v[row:] {
		if r := v[:row]; r[4] >= d.lowest {
			c, k := largest(r[5:])
			d.emitCentre(r[0], r[1], r[2], r[3], r[4]*c, k)
		}
	}
	return nil
}

func decodeYOLOXDecoded(d *decoder, p *plan, h []head) error { return decodeYOLOv5(d, p, h) }

// YOLOv8 and its kin: one row per value, one column per anchor.
func decodeYOLOv8(d *decoder, p *plan, h []head) error {
	n := int(h[p.order[0]].shape[1])
	v := h[p.order[0]].f
	d.columns(v[4*n:], n, p.classes)
	for i := range n {
		if d.best[i] >= d.lowest {
			d.emitCentre(v[i], v[n+i], v[2*n+i], v[3*n+i], d.best[i], int(d.class[i]))
		}
	}
	return nil
}

// columns finds for each of n columns the largest of its rows.
func (d *decoder) columns(v []float32, n, rows int) {
	if cap(d.best) < n {
		d.best, d.class = make([]float32, n), make([]int32, n)
	}
	d.best, d.class = d.best[:n], d.class[:n]
	for i := range d.best {
		d.best[i] = d.lowest
		d.class[i] = -1
	}
	for c := range rows {
		best := d.best
		for i, x := range v[c*n:][:len(best)] {
			if x > best[i] || (x == best[i] && d.class[i] < 0) {
				best[i], d.class[i] = x, int32(c)
			}
		}
	}
	for i, c := range d.class {
		if c < 0 {
			d.best[i] = float32(math.Inf(-1))
		}
	}
}

// YOLOv10, YOLO26, exports with NMS inside: x1, y1, x2, y2, score, class.
func decodeEnd2End(d *decoder, p *plan, h []head) error {
	for v := h[p.order[0]].f; len(v) >= 6; v = v[6:] {
		d.emit(v[0], v[1], v[2], v[3], v[4], whole(v[5]))
	}
	return nil
}

// whole is a class number that came as a float; -1 if it is none.
func whole(v float32) int {
	if !(v >= 0 && v < 1<<20) {
		return -1
	}
	return int(v + 0.5)
}

// YOLOv7 end to end: batch, x1, y1, x2, y2, class, score.
func decodeYOLOv7End2End(d *decoder, p *plan, h []head) error {
	for v := h[p.order[0]].f; len(v) >= 7; v = v[7:] {
		d.emit(v[1], v[2], v[3], v[4], v[6], whole(v[5]))
	}
	return nil
}

// YOLO-NAS flat: batch, x1, y1, x2, y2, score, class (-1 pads).
func decodeNASFlat(d *decoder, p *plan, h []head) error {
	for v := h[p.order[0]].f; len(v) >= 7; v = v[7:] {
		d.emit(v[1], v[2], v[3], v[4], v[5], whole(v[6]))
	}
	return nil
}

// EfficientDet: image, y1, x1, y2, x2, score, class from 1.
func decodeEfficientDet(d *decoder, p *plan, h []head) error {
	for v := h[p.order[0]].f; len(v) >= 7; v = v[7:] {
		d.emit(v[2], v[1], v[4], v[3], v[5], whole(v[6]))
	}
	return nil
}

// anchorsYOLOv7 are those of the published weights, three per level, w and h in pixels.
func anchorsYOLOv7() []float32 {
	return []float32{12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401}
}

// YOLOv7 without its last layer: logits in grids of three anchors.
func decodeYOLOv7Raw(d *decoder, p *plan, h []head) error {
	anchors, least := anchorsYOLOv7(), logit(d.lowest)
	for i, l := range p.levels {
		v, n, s := h[p.order[i]].f, l.cells(), float32(l.stride)
		for a := range 3 {
			g := v[a*(p.classes+5)*n:][:(p.classes+5)*n]
			for cell := range n {
				if !(g[4*n+cell] >= least) {
					continue
				}
				top, class := float32(math.Inf(-1)), -1
				for c := range p.classes {
					if x := g[(5+c)*n+cell]; x > top {
						top, class = x, c
					}
				}
				x, y := float32(cell%l.w), float32(cell/l.w)
				w, hh := 2*sigmoid(g[2*n+cell]), 2*sigmoid(g[3*n+cell])
				d.emitCentre((2*sigmoid(g[cell])-0.5+x)*s, (2*sigmoid(g[n+cell])-0.5+y)*s,
					w*w*anchors[6*i+2*a], hh*hh*anchors[6*i+2*a+1], sigmoid(g[4*n+cell])*sigmoid(top), class)
			}
		}
	}
	return nil
}

// YOLO-NAS: corners, and class scores beside them.
func decodeYOLONAS(d *decoder, p *plan, h []head) error {
	b, s := h[p.order[0]].f, h[p.order[1]].f
	for ; len(b) >= 4; b, s = b[4:], s[p.classes:] {
		if c, k := largest(s[:p.classes]); c >= d.lowest {
			d.emit(b[0], b[1], b[2], b[3], c, k)
		}
	}
	return nil
}

// EfficientNMS: corners in pixels, only the first so many count.
func decodeEfficientNMS(d *decoder, p *plan, h []head) error {
	b, s, c := h[p.order[1]].f, h[p.order[2]].f, &h[p.order[3]]
	for i := range counted(&h[p.order[0]], len(s)) {
		d.emit(b[4*i], b[4*i+1], b[4*i+2], b[4*i+3], s[i], int(c.at(i)))
	}
	return nil
}

// SSD: y1, x1, y2, x2 of 0..1; classes from 1.
func decodeSSD(d *decoder, p *plan, h []head) error {
	b, s, c := h[p.order[1]].f, h[p.order[2]].f, &h[p.order[3]]
	w, hh := float32(p.width), float32(p.height)
	for i := range counted(&h[p.order[0]], len(s)) {
		d.emit(b[4*i+1]*w, b[4*i]*hh, b[4*i+3]*w, b[4*i+2]*hh, s[i], whole(float32(c.at(i))))
	}
	return nil
}

// counted reads how many rows are filled.
func counted(h *head, most int) int {
	n := h.at(0)
	if !(n >= 0) {
		return 0
	}
	return int(min(n, float64(most)))
}

// RT-DETR, D-FINE, Faster R-CNN: labels, corners, scores.
func decodeLabelled(d *decoder, p *plan, h []head) error {
	l, b, s := &h[p.order[0]], h[p.order[1]].f, h[p.order[2]].f
	for i, score := range s {
		if score >= d.lowest {
			d.emit(b[4*i], b[4*i+1], b[4*i+2], b[4*i+3], score, int(l.at(i)))
		}
	}
	return nil
}

// Transformers with a sigmoid per class: centres of 0..1, best class of each query.
func decodeSigmoidQueries(d *decoder, p *plan, h []head) error {
	l, b := h[p.order[0]].f, h[p.order[1]].f
	w, hh := float32(p.width), float32(p.height)
	for ; len(b) >= 4; b, l = b[4:], l[p.classes:] {
		c, k := largest(l[:p.classes])
		d.emitCentre(b[0]*w, b[1]*hh, b[2]*w, b[3]*hh, sigmoid(c), k)
	}
	return nil
}

// RF-DETR: the same, but a query may stand for several classes.
func decodeSigmoidTopK(d *decoder, p *plan, h []head) error {
	l, b := h[p.order[0]].f, h[p.order[1]].f
	w, hh := float32(p.width), float32(p.height)
	least := logit(d.lowest)
	for ; len(b) >= 4; b, l = b[4:], l[p.classes:] {
		for k, v := range l[:p.classes] {
			if v >= least {
				d.emitCentre(b[0]*w, b[1]*hh, b[2]*w, b[3]*hh, sigmoid(v), k)
			}
		}
	}
	return nil
}

// DETR: softmax over the classes, the last of which is nothing.
func decodeSoftmaxQueries(d *decoder, p *plan, h []head) error {
	l, b := h[p.order[0]].f, h[p.order[1]].f
	w, hh := float32(p.width), float32(p.height)
	for ; len(b) >= 4; b, l = b[4:], l[p.classes:] {
		c, k := largest(l[:p.classes-1])
		top, sum := max(c, l[p.classes-1]), float32(0)
		for _, v := range l[:p.classes] {
			sum += exp(v - top)
		}
		d.emitCentre(b[0]*w, b[1]*hh, b[2]*w, b[3]*hh, exp(c-top)/sum, k)
	}
	return nil
}

// RT-DETR by Ultralytics: centres of 0..1 and class scores in one row.
func decodeRTDETRUltralytics(d *decoder, p *plan, h []head) error {
	w, hh := float32(p.width), float32(p.height)
	for v := h[p.order[0]].f; len(v) >= p.classes+4; v = v[p.classes+4:] {
		c, k := largest(v[4 : p.classes+4])
		d.emitCentre(v[0]*w, v[1]*hh, v[2]*w, v[3]*hh, c, k)
	}
	return nil
}

// distance reads one side of the NanoDet family: the mean of its bins.
func distance(v []float32) float32 {
	top, _ := largest(v[:bins])
	var sum, mean float32
	for i, x := range v[:bins] {
		e := exp(x - top)
		sum += e
		mean += e * float32(i)
	}
	return mean / sum
}

// emitSides clips to the network's input, as the family's own code does.
func (d *decoder) emitSides(p *plan, v []float32, cx, cy, stride, score float32, class int) {
	w, h := float32(p.width), float32(p.height)
	d.emit(max(cx-distance(v)*stride, 0), max(cy-distance(v[bins:])*stride, 0),
		min(cx+distance(v[2*bins:])*stride, w), min(cy+distance(v[3*bins:])*stride, h), score, class)
}

// NanoDet of 2021: a pair of heads per level.
func decodeNanoDet(d *decoder, p *plan, h []head) error {
	d.emitCells(p, h, func(stride float32) float32 { return 0.5 * (stride - 1) })
	return nil
}

// PicoDet without its post-processing: the same of four levels, centres in the middle of the cell.
func decodePicoDet(d *decoder, p *plan, h []head) error {
	d.emitCells(p, h, func(stride float32) float32 { return 0.5 * stride })
	return nil
}

// emitCells reads a head of classes and one of sides per level; centre is where in its cell a box has
// its centre.
func (d *decoder) emitCells(p *plan, h []head, centre func(stride float32) float32) {
	for i, l := range p.levels {
		c, b, s := h[p.order[i]].f, h[p.order[len(p.levels)+i]].f, float32(l.stride)
		for cell := range l.cells() {
			if score, k := largest(c[cell*p.classes:][:p.classes]); score >= d.lowest {
				cx, cy := float32(cell%l.w)*s+centre(s), float32(cell/l.w)*s+centre(s)
				d.emitSides(p, b[cell*4*bins:], cx, cy, s, score, k)
			}
		}
	}
}

// NanoDet-plus: one head, classes and sides in one row, centres without the half.
func decodeNanoDetPlus(d *decoder, p *plan, h []head) error {
	v, row := h[p.order[0]].f, p.classes+4*bins
	for _, l := range p.levels {
		s := float32(l.stride)
		for cell := range l.cells() {
			if score, k := largest(v[:p.classes]); score >= d.lowest {
				d.emitSides(p, v[p.classes:], float32(cell%l.w)*s, float32(cell/l.w)*s, s, score, k)
			}
			v = v[row:]
		}
	}
	return nil
}

// FastestDet: one grid of objectness, offsets, size, classes.
func decodeFastestDet(d *decoder, p *plan, h []head) error {
	l, v := p.levels[0], h[p.order[0]].f
	n := l.cells()
	w, hh := float32(p.width), float32(p.height)
	for cell := range n {
		obj := v[cell]
		// objectness^0.6 · class^0.4 is at most objectness^0.6.
		if !(obj > 0) || math.Pow(float64(obj), 0.6) < float64(d.lowest) {
			continue
		}
		top, class := float32(math.Inf(-1)), -1
		for c := range p.classes {
			if x := v[(5+c)*n+cell]; x > top {
				top, class = x, c
			}
		}
		score := float32(math.Pow(float64(obj), 0.6) * math.Pow(float64(max(top, 0)), 0.4))
		cx := (float32(cell%l.w) + float32(math.Tanh(float64(v[n+cell])))) / float32(l.w)
		cy := (float32(cell/l.w) + float32(math.Tanh(float64(v[2*n+cell])))) / float32(l.h)
		d.emitCentre(cx*w, cy*hh, sigmoid(v[3*n+cell])*w, sigmoid(v[4*n+cell])*hh, score, class)
	}
	return nil
}

// PP-YOLOE with NMS: class, score, x1, y1, x2, y2.
func decodePPYOLOE(d *decoder, p *plan, h []head) error {
	v := h[p.order[0]].f
	for i := range counted(&h[p.order[1]], len(v)/6) {
		r := v[6*i:][:6]
		d.emit(r[2], r[3], r[4], r[5], r[1], whole(r[0]))
	}
	return nil
}

// PP-YOLOE without NMS: corners, and per class the scores of all of them.
func decodePPYOLOERaw(d *decoder, p *plan, h []head) error {
	boxes, scores := h[p.order[0]].f, h[p.order[1]].f
	n := len(boxes) / 4
	for i := range n {
		top, class := float32(math.Inf(-1)), -1
		for c := range p.classes {
			if s := scores[c*n+i]; s > top {
				top, class = s, c
			}
		}
		d.emit(boxes[4*i], boxes[4*i+1], boxes[4*i+2], boxes[4*i+3], top, class)
	}
	return nil
}
