package eval

import (
	"cmp"
	"math"
	"slices"
)

// DetectFigures are a detector's scores, in percent; -1 where nothing of that
// size is annotated.
type DetectFigures struct {
	Name   string  `json:"name"`
	AP     float64 `json:"AP"` // mean over overlaps 0.50, 0.55 … 0.95
	AP50   float64 `json:"AP50"`
	AP75   float64 `json:"AP75"`
	Small  float64 `json:"APs"` // below 32 x 32 pixels
	Medium float64 `json:"APm"`
	Large  float64 `json:"APl"` // from 96 x 96 pixels on
	AR     float64 `json:"AR100"`
	Boxes  int     `json:"boxes"` // annotated and scored
	Dets   int     `json:"detections"`
	// Alarms are the detections an hour on pictures that show nothing, at AlarmRate; -1 where none is such a picture.
	Alarms float64 `json:"alarms_per_hour"`
}

// AlarmRate is how many pictures a second an hour of false alarms is reckoned with: what a camera is analysed at.
const AlarmRate = 5

const (
	overlaps      = 10  // thresholds of overlap
	recallSteps   = 101 // points of the precision-recall curve
	detsPerFrame  = 100
	smallArea     = 32 * 32
	mediumArea    = 96 * 96
	unboundedArea = 1e10
)

// Picture is what one frame shows and what was detected in it. Frames that are
// compared must come in pairs of the same length.
type Picture struct {
	GT, Dets []Row
	Empty    bool // nothing is annotated here, of whatever class
}

// Pictures pairs an annotation with detections, frame by frame, over the
// frames of the annotation.
func Pictures(gt, dets []Row) []Picture {
	g, d := byFrame(gt), byFrame(dets)
	pictures := make([]Picture, len(g))
	for i := range g {
		pictures[i].GT, pictures[i].Empty = g[i], len(g[i]) == 0
		if i < len(d) {
			pictures[i].Dets = d[i]
		}
	}
	return pictures
}

// Detect computes average precision as COCO defines it. Annotations that
// MOTChallenge does not score are neither asked for nor counted as wrong.
// Classes are not compared: give it one class at a time. On pictures that show nothing, detections of at least the score
// alarm are false alarms.
func Detect(name string, pictures []Picture, alarm float64) DetectFigures {
	all := evaluateArea(pictures, 0, unboundedArea)
	f := DetectFigures{
		Name: name, AP: all.mean(), AP50: all.precision(0), AP75: all.precision(5), AR: all.meanRecall(),
		Small:  evaluateArea(pictures, 0, smallArea).mean(),
		Medium: evaluateArea(pictures, smallArea, mediumArea).mean(),
		Large:  evaluateArea(pictures, mediumArea, unboundedArea).mean(),
		Boxes:  all.wanted,
		Alarms: alarms(pictures, alarm),
	}
	for i := range pictures {
		f.Dets += len(pictures[i].Dets)
	}
	return f
}

// alarms is how many detections of at least score there are an hour on pictures that show nothing; -1 without such.
func alarms(pictures []Picture, score float64) float64 {
	n, empty := 0, 0
	for i := range pictures {
		if !pictures[i].Empty {
			continue
		}
		empty++
		for _, d := range pictures[i].Dets {
			if d.Score >= score {
				n++
			}
		}
	}
	if empty == 0 {
		return -1
	}
	return float64(n) / float64(empty) * AlarmRate * 3600
}

// judged is a detection after matching at every overlap.
type judged struct {
	score   float64
	hit     [overlaps]bool
	ignored [overlaps]bool
}

type areaResult struct {
	wanted int
	dets   []judged
}

func evaluateArea(pictures []Picture, low, high float64) *areaResult {
	r := new(areaResult)
	for i := range pictures {
		r.match(&pictures[i], low, high)
	}
	slices.SortStableFunc(r.dets, func(a, b judged) int { return cmp.Compare(b.score, a.score) })
	return r
}

func (r *areaResult) match(p *Picture, low, high float64) {
	type truth struct {
		row     *Row
		ignored bool
	}
	outside := func(row *Row) bool {
		area := row.Box.Width() * row.Box.Height()
		return area < low || area > high
	}
	gts := make([]truth, 0, len(p.GT))
	for i := range p.GT {
		row := &p.GT[i]
		unscored := row.Score == 0 || (row.Class != classPedestrian && row.Class != classNone)
		t := truth{row, unscored || outside(row)}
		gts = append(gts, t)
		if !t.ignored {
			r.wanted++
		}
	}
	slices.SortStableFunc(gts, func(a, b truth) int { return boolRank(a.ignored) - boolRank(b.ignored) })
	order := make([]*Row, len(p.Dets))
	for i := range p.Dets {
		order[i] = &p.Dets[i]
	}
	slices.SortStableFunc(order, func(a, b *Row) int { return cmp.Compare(b.Score, a.Score) })
	order = order[:min(len(order), detsPerFrame)]
	dets := make([]judged, len(order))
	for t := range overlaps {
		used := make([]bool, len(gts))
		for d, det := range order {
			dets[d].score = det.Score
			least, at := min(0.5+0.05*float64(t), 1-1e-10), -1
			for g := range gts {
				if used[g] {
					continue
				}
				if at >= 0 && !gts[at].ignored && gts[g].ignored {
					break
				}
				if iou := IoU(gts[g].row.Box, det.Box); iou >= least {
					least, at = iou, g
				}
			}
			if at >= 0 {
				used[at] = true
				dets[d].hit[t] = true
				dets[d].ignored[t] = gts[at].ignored
			} else {
				dets[d].ignored[t] = outside(det)
			}
		}
	}
	r.dets = append(r.dets, dets...)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// curve returns the precision at every recall step and the recall reached.
func (r *areaResult) curve(t int) (precision [recallSteps]float64, recall float64) {
	var precisions, recalls []float64
	tp, fp := 0.0, 0.0
	for i := range r.dets {
		d := &r.dets[i]
		switch {
		case d.ignored[t]:
			continue
		case d.hit[t]:
			tp++
		default:
			fp++
		}
		precisions = append(precisions, tp/(tp+fp))
		recalls = append(recalls, tp/float64(r.wanted))
	}
	for i := len(precisions) - 2; i >= 0; i-- {
		precisions[i] = max(precisions[i], precisions[i+1])
	}
	at := 0
	for step := range recallSteps {
		want := float64(step) / (recallSteps - 1)
		for at < len(recalls) && recalls[at] < want-1e-12 {
			at++
		}
		if at < len(recalls) {
			precision[step] = precisions[at]
		}
	}
	if n := len(recalls); n > 0 {
		recall = recalls[n-1]
	}
	return precision, recall
}

func (r *areaResult) precision(t int) float64 {
	if r.wanted == 0 {
		return -1
	}
	curve, _ := r.curve(t)
	sum := 0.0
	for _, p := range curve {
		sum += p
	}
	return 100 * sum / recallSteps
}

func (r *areaResult) mean() float64 {
	if r.wanted == 0 {
		return -1
	}
	sum := 0.0
	for t := range overlaps {
		sum += r.precision(t)
	}
	return sum / overlaps
}

func (r *areaResult) meanRecall() float64 {
	if r.wanted == 0 {
		return -1
	}
	sum := 0.0
	for t := range overlaps {
		_, recall := r.curve(t)
		sum += recall
	}
	return math.Min(100, 100*sum/overlaps)
}
