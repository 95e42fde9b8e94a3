package tracker

import (
	"fmt"
	"maps"
	"slices"
)

// tuning holds the parameters of the default tracker. All times are in
// milliseconds or seconds, never in frames: one set serves every rate.
type tuning struct {
	// Detections.
	high     float64 // from this score on a detection is trusted
	low      float64 // below this score it is not looked at
	fresh    float64 // a new track needs this score
	freshIoU float64 // and no more overlap than this with a matched detection

	// Motion.
	noisePos  float64 // process noise: lengths of the box per square root of a second
	noiseVel  float64 // lengths per second, per square root of a second
	noiseSize float64 // the same two for width and height
	noiseGrow float64
	measure   float64 // measurement noise, lengths
	startVel  float64 // uncertainty of a new track's speed, lengths per second
	mix       float64 // which length: 0 the coordinate's own side, 1 the height
	damp      float64 // seconds after which an unseen object's speed has fallen to a third
	common    float64 // share of the motion common to all objects given to every prediction
	carry     float64 // share of it expected again at the next frame
	agree     float64 // how much objects must agree on it: weight of their spread

	// Similarity.
	doubt    float64 // boxes grow by this many standard deviations of the prediction
	height   float64 // power of the vertical overlap
	observed float64 // weight of overlap with the last observation
	fuse     float64 // power of the score

	// Limits: least similarity of a match.
	first     float64
	second    float64
	third     float64
	tentative float64
	wide      float64 // growth of boxes in the third round, part of their size

	// Life.
	lostMs    float64
	gapMs     float64 // without any frame for so long, every track ends
	confirm   float64 // matches until a track is reported, the first included
	duplicate float64 // overlap from which a lost track is the same as a followed one
}

// measured is the set chosen by measurement; README.md tells how.
func measured() tuning {
	return tuning{
		high: 0.63, low: 0.09, fresh: 0.643, freshIoU: 0.52,
		noisePos: 0.286, noiseVel: 0.84, noiseSize: 0.264, noiseGrow: 0.246,
		measure: 0.133, startVel: 2.36, mix: 0.107, damp: 1.65,
		common: 0.88, carry: 0.455, agree: 2.52,
		doubt: 0.138, height: 3, observed: 0.078, fuse: 1.286,
		first: 0.05, second: 0.528, third: 0.197, tentative: 0.25, wide: 0.278,
		lostMs: 1560, gapMs: 10000, confirm: 2, duplicate: 0.865,
	}
}

// setting is a parameter by its place, with the range it may take.
type setting struct {
	at        *float64
	low, high float64
}

// byName lists the parameters by the names they are set with.
func (p *tuning) byName() map[string]setting {
	return map[string]setting{
		"high":       {&p.high, 0, 1},
		"low":        {&p.low, 0, 1},
		"fresh":      {&p.fresh, 0, 1},
		"fresh_iou":  {&p.freshIoU, 0, 1},
		"noise_pos":  {&p.noisePos, 0.0001, 100},
		"noise_vel":  {&p.noiseVel, 0.0001, 100},
		"noise_size": {&p.noiseSize, 0.0001, 100},
		"noise_grow": {&p.noiseGrow, 0.0001, 100},
		"measure":    {&p.measure, 0.0001, 100},
		"start_vel":  {&p.startVel, 0.0001, 100},
		"mix":        {&p.mix, 0, 1},
		"damp":       {&p.damp, 0, 100},
		"common":     {&p.common, 0, 1},
		"carry":      {&p.carry, 0, 1},
		"agree":      {&p.agree, 0, 100},
		"doubt":      {&p.doubt, 0, 100},
		"height":     {&p.height, 0, 10},
		"observed":   {&p.observed, 0, 1},
		"fuse":       {&p.fuse, 0, 10},
		"first":      {&p.first, -1, 1},
		"second":     {&p.second, 0, 1},
		"third":      {&p.third, 0, 1},
		"tentative":  {&p.tentative, 0, 1},
		"wide":       {&p.wide, 0, 100},
		"lost_ms":    {&p.lostMs, 0, 1e+07},
		"gap_ms":     {&p.gapMs, 1, 1e+07},
		"confirm":    {&p.confirm, 1, 100},
		"duplicate":  {&p.duplicate, 0, 1},
	}
}

// with applies changes by name.
func (p tuning) with(changes map[string]float64) (tuning, error) {
	known := p.byName()
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		s, ok := known[name]
		if !ok {
			return tuning{}, fmt.Errorf("tracker setting %q is not known", name)
		}
		if v := changes[name]; !within(v, s.low, s.high) {
			return tuning{}, fmt.Errorf("tracker setting %s: %v is not within %v and %v", name, v, s.low, s.high)
		}
		*s.at = changes[name]
	}
	return p, nil
}

// Parameters returns the default mode's parameters by name, as Config.Tuning
// takes them.
func Parameters() map[string]float64 {
	p := measured()
	all := map[string]float64{}
	for name, s := range p.byName() {
		all[name] = *s.at
	}
	return all
}
