package tracker

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Mode chooses the algorithm.
type Mode int8

// The modes of a tracker.
const (
	Default     Mode = iota // driven by elapsed time; what the product uses
	Conformance             // the published ByteTrack, frame by frame
)

// String is the mode's name in lower case, as ParseMode reads it.
func (m Mode) String() string {
	switch m {
	case Default:
		return "default"
	case Conformance:
		return "conformance"
	}
	return fmt.Sprintf("mode %d", int8(m))
}

// ParseMode reads "default" or "conformance".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "default", "":
		return Default, nil
	case "conformance":
		return Conformance, nil
	}
	return 0, fmt.Errorf("tracker mode %q is not default or conformance", s)
}

// Config is a tracker's settings. The zero value is the product's tracker.
type Config struct {
	Mode Mode

	// ClassGroups lists classes that may be one object: a detector that calls a
	// van now car and now truck needs {{2, 7}}. A class in no group is a group
	// of its own; nothing is ever matched across groups.
	ClassGroups [][]int

	// MaxDetections bounds the detections used of one frame: the ones of
	// highest score are kept, in their order. 0: 1000; negative: refused.
	MaxDetections int

	// ReportLost makes the default mode report lost tracks too, where they are
	// believed to be, until they are found or end.
	ReportLost bool

	// ByteTrack holds the settings of the conformance mode.
	ByteTrack ByteTrack

	// Tuning changes parameters of the default mode by their names. nil: the
	// set chosen by measurement, which is meant for every rate and scene.
	Tuning map[string]float64

	tuning tuning // resolved by New
}

// ByteTrack holds the settings of the published algorithm, by the names and
// with the values of its evaluation script. The zero value is that script's.
type ByteTrack struct {
	TrackThresh float64 // track_thresh; 0: 0.6
	MatchThresh float64 // match_thresh; 0: 0.9
	TrackBuffer int     // track_buffer, frames at 30 frames a second; 0: 30
	FrameRate   float64 // frame_rate; 0: 30
	MinBoxArea  float64 // min_box_area, square pixels; only larger boxes are reported; 0: all
	AspectRatio float64 // aspect_ratio_thresh; wider boxes are not reported; 0: off
	NoFuseScore bool    // fuse_score=false: similarity is not weighed by score (crowded scenes)
	PlainIoU    bool    // iou_plus_one=false: overlap without the extra pixel
}

// Set changes one setting by its name, as the parameter files and model
// configurations spell it.
func (c *Config) Set(name, value string) error {
	b := &c.ByteTrack
	switch name {
	case "mode":
		m, err := ParseMode(value)
		if err != nil {
			return err
		}
		c.Mode = m
		return nil
	case "max_detections":
		return setInt(&c.MaxDetections, name, value)
	case "track_thresh":
		return setFloat(&b.TrackThresh, name, value)
	case "match_thresh":
		return setFloat(&b.MatchThresh, name, value)
	case "track_buffer":
		return setInt(&b.TrackBuffer, name, value)
	case "frame_rate":
		return setFloat(&b.FrameRate, name, value)
	case "min_box_area":
		return setFloat(&b.MinBoxArea, name, value)
	case "aspect_ratio_thresh":
		return setFloat(&b.AspectRatio, name, value)
	case "fuse_score", "iou_plus_one", "report_lost":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("tracker setting %s: %q is not true or false", name, value)
		}
		switch name {
		case "fuse_score":
			b.NoFuseScore = !on
		case "iou_plus_one":
			b.PlainIoU = !on
		default:
			c.ReportLost = on
		}
		return nil
	case "class_groups":
		return c.setGroups(value)
	}
	if _, ok := new(tuning).byName()[name]; !ok {
		return fmt.Errorf("tracker setting %q is not known", name)
	}
	var f float64
	if err := setFloat(&f, name, value); err != nil {
		return err
	}
	if c.Tuning == nil {
		c.Tuning = map[string]float64{}
	}
	c.Tuning[name] = f
	return nil
}

// setGroups reads groups such as "2,7;0,1".
func (c *Config) setGroups(value string) error {
	var groups [][]int
	for part := range strings.SplitSeq(value, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		var group []int
		for word := range strings.SplitSeq(part, ",") {
			class, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil {
				return fmt.Errorf("tracker setting class_groups: %q is not a class number", word)
			}
			group = append(group, class)
		}
		groups = append(groups, group)
	}
	c.ClassGroups = groups
	return nil
}

func setFloat(p *float64, name, value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("tracker setting %s: %q is not a number", name, value)
	}
	*p = f
	return nil
}

func setInt(p *int, name, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("tracker setting %s: %q is not a whole number", name, value)
	}
	*p = n
	return nil
}

func (c Config) withDefaults() (Config, error) {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("tracker setting "+format, args...))
		}
	}
	check(c.Mode == Default || c.Mode == Conformance, "mode: %d is not known", int8(c.Mode))
	check(c.MaxDetections >= 0, "max_detections: %d is negative", c.MaxDetections)
	if c.MaxDetections == 0 {
		c.MaxDetections = 1000
	}
	seen := map[int]bool{}
	for _, group := range c.ClassGroups {
		for _, class := range group {
			check(!seen[class], "class_groups: class %d is listed twice", class)
			seen[class] = true
		}
	}
	b := &c.ByteTrack
	setDefault(&b.TrackThresh, 0.6)
	setDefault(&b.MatchThresh, 0.9)
	setDefault(&b.FrameRate, 30)
	setDefault(&b.TrackBuffer, 30)
	check(within(b.TrackThresh, 0, 1), "track_thresh: %v is not within 0 and 1", b.TrackThresh)
	check(within(b.MatchThresh, 0, 1), "match_thresh: %v is not within 0 and 1", b.MatchThresh)
	check(within(b.FrameRate, 0, 1e6), "frame_rate: %v is not a rate", b.FrameRate)
	check(b.TrackBuffer >= 0 && b.TrackBuffer <= 1e6, "track_buffer: %d is not within 0 and 1000000", b.TrackBuffer)
	check(within(b.MinBoxArea, 0, math.MaxFloat64), "min_box_area: %v is not an area", b.MinBoxArea)
	check(within(b.AspectRatio, 0, math.MaxFloat64), "aspect_ratio_thresh: %v is not a ratio", b.AspectRatio)
	p, err := measured().with(c.Tuning)
	if err != nil {
		faults = append(faults, err)
	}
	c.tuning = p
	return c, errors.Join(faults...)
}

func setDefault[T int | float64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// within is false for NaN.
func within(v, low, high float64) bool { return v >= low && v <= high }

// groupTable maps a class to its group. Classes in no group are not in it.
func (c Config) groupTable() map[int]int {
	table := map[int]int{}
	for _, group := range c.ClassGroups {
		for _, class := range group {
			table[class] = group[0]
		}
	}
	return table
}
