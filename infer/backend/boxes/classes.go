package boxes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// gapsOfCOCO are the ids of 1..90 that the data set never used.
func gapsOfCOCO() []int { return []int{12, 26, 29, 30, 45, 66, 68, 69, 71, 83} }

// classTable turns the numbering a detector has into ours.
func classTable(name string) ([]int32, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "one_based":
		t := make([]int32, 1025)
		for i := range t {
			t[i] = int32(i) - 1
		}
		return t, nil
	case "coco91":
		t := make([]int32, 91)
		for _, gap := range gapsOfCOCO() {
			t[gap] = -1
		}
		t[0] = -1
		next := int32(0)
		for i := 1; i < len(t); i++ {
			if t[i] == 0 {
				t[i] = next
				next++
			}
		}
		return t, nil
	}
	return nil, fmt.Errorf("parameters[class_map]: %q is not one of none, one_based, coco91", name)
}

// thresholds reads score_threshold, class_thresholds ("0=0.3,2=0.5") and classes ("0,2,5",
// the ones wanted). The last element of the answer holds for all classes beyond.
func thresholds(all, perClass, wanted string) ([]float32, error) {
	var faults []error
	base, err := threshold(all)
	if err != nil {
		faults = append(faults, fmt.Errorf("parameters[score_threshold]: %w", err))
	}
	special := map[int]float32{}
	highest := -1
	for _, word := range words(perClass) {
		k, v, ok := strings.Cut(word, "=")
		class, errClass := strconv.Atoi(strings.TrimSpace(k))
		t, errValue := threshold(v)
		if !ok || errClass != nil || errValue != nil || class < 0 || class > maxClass {
			faults = append(faults, fmt.Errorf("parameters[class_thresholds]: %q is not CLASS=SCORE", word))
			continue
		}
		special[class] = t
		highest = max(highest, class)
	}
	only := map[int]bool{}
	for _, word := range words(wanted) {
		class, err := strconv.Atoi(word)
		if err != nil || class < 0 || class > maxClass {
			faults = append(faults, fmt.Errorf("parameters[classes]: %q is not a class number", word))
			continue
		}
		only[class] = true
		highest = max(highest, class)
	}
	t := make([]float32, highest+2)
	for i := range t {
		t[i] = base
		if s, ok := special[i]; ok {
			t[i] = s
		}
		if len(only) > 0 && !only[i] {
			t[i] = never
		}
	}
	return t, errors.Join(faults...)
}

const (
	never    = 2 // no score reaches it
	maxClass = 100_000
)

func threshold(s string) (float32, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 32)
	if err != nil || !(v > 0 && v <= 1) {
		return never, fmt.Errorf("%q is not a score above 0 and up to 1", s)
	}
	return float32(v), nil
}

func words(s string) []string {
	var out []string
	for w := range strings.SplitSeq(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
