package perf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Number is a number on the command line that may be 0.
type Number int

// Count is a number on the command line that may not be 0.
type Count int

// UnmarshalText reads it.
func (n *Number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number from 0 to %d", text, math.MaxInt32)
	}
	*n = Number(v)
	return nil
}

// UnmarshalText reads it.
func (n *Count) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil || v == 0 {
		return fmt.Errorf("%q is not a number from 1 to %d", text, math.MaxInt32)
	}
	*n = Count(v)
	return nil
}

// Time is a span of time on the command line: with a unit, or in milliseconds as perf_analyzer has it.
type Time time.Duration

// UnmarshalText reads it.
func (m *Time) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		n, notNumber := strconv.ParseUint(string(text), 10, 32)
		if notNumber != nil {
			return err
		}
		d = time.Duration(n) * time.Millisecond
	}
	if d <= 0 {
		return fmt.Errorf("%s is not above 0", text)
	}
	*m = Time(d)
	return nil
}

// readIntervals reads microseconds, one a line.
func readIntervals(path string) ([]time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--request-intervals: %w", err)
	}
	var out []time.Duration
	for i, word := range strings.Fields(string(text)) {
		n, err := strconv.ParseUint(word, 10, 40)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("--request-intervals: %s: entry %d: %q is no number of microseconds", path, i+1, word)
		}
		out = append(out, time.Duration(n)*time.Microsecond)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--request-intervals: %s is empty", path)
	}
	return out, nil
}

// parseIDs reads FROM[:TO]; TO itself is not used.
func parseIDs(text string) (first, last uint64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, bounded := strings.Cut(text, ":")
	first, err = strconv.ParseUint(from, 10, 63)
	if err == nil && bounded {
		last, err = strconv.ParseUint(to, 10, 63)
		last--
	}
	if err != nil || first == 0 || bounded && last < first {
		return 0, 0, fmt.Errorf("--sequence-id-range %q is not FROM[:TO] of numbers above 0", text)
	}
	return first, last, nil
}

// parseParameters reads parameters written as NAME:VALUE:TYPE.
func parseParameters(list []string) (map[string]any, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	out := make(map[string]any, len(list))
	for _, text := range list {
		name, rest, _ := strings.Cut(text, ":")
		at := strings.LastIndexByte(rest, ':')
		if name == "" || at < 0 {
			return nil, fmt.Errorf("--request-parameter %q is not NAME:VALUE:TYPE", text)
		}
		var v any
		var err error
		switch value := rest[:at]; rest[at+1:] {
		case "bool":
			v, err = strconv.ParseBool(value)
		case "int":
			v, err = strconv.ParseInt(value, 10, 64)
		case "uint":
			v, err = strconv.ParseUint(value, 10, 64)
		case "float", "double":
			v, err = strconv.ParseFloat(value, 64)
		case "string":
			v = value
		default:
			err = errors.New("the type is none of bool, int, uint, float and string")
		}
		if err != nil {
			return nil, fmt.Errorf("--request-parameter %q: %w", text, err)
		}
		out[name] = v
	}
	return out, nil
}

// maxConcurrency bounds the requests under way.
const maxConcurrency = 1 << 16

// bounds reads FROM[:TO[:STEP]], of whole numbers if they are of concurrency. TO may be 0: without end, or as good as.
func bounds(text string, concurrency bool) (from, to, step float64, err error) {
	v := []float64{0, 0, 1}
	parts := strings.Split(text, ":")
	for i, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || i > 2 || !(n > 0 || n == 0 && i == 1) || concurrency && n != math.Trunc(n) {
			return 0, 0, 0, fmt.Errorf("%q is not FROM:TO:STEP of numbers above 0", text)
		}
		if concurrency && n > maxConcurrency {
			return 0, 0, 0, fmt.Errorf("%q: at most %d requests can be under way", text, maxConcurrency)
		}
		v[i] = n
	}
	if from, to, step = v[0], v[1], v[2]; len(parts) == 1 {
		return from, from, step, nil
	}
	if to > 0 {
		return from, to, step, nil
	}
	if to = from + maxSteps*step; concurrency {
		to = min(to, maxConcurrency)
	}
	return from, to, step, nil
}

// maxSteps bounds what is measured one after the other.
const maxSteps = 1000

// span lists the loads of a range.
func span(text string, concurrency bool) ([]float64, error) {
	from, to, step, err := bounds(text, concurrency)
	if err != nil {
		return nil, err
	}
	if (to-from)/step > maxSteps {
		return nil, fmt.Errorf("%q has more than a thousand steps: make them larger", text)
	}
	var out []float64
	for x := from; x <= to+step/1e6; x += step {
		out = append(out, x)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q ends before it begins", text)
	}
	return out, nil
}

// ParseShapes reads dimensions written as NAME:D,D.
func ParseShapes(list []string) (map[string][]int64, error) {
	out := make(map[string][]int64, len(list))
	for _, text := range list {
		at := strings.LastIndexByte(text, ':')
		if at <= 0 {
			return nil, fmt.Errorf("--shape %q is not NAME:D,D", text)
		}
		var dims []int64
		for d := range strings.SplitSeq(text[at+1:], ",") {
			n, err := strconv.ParseInt(d, 10, 64)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--shape %q: %q is not a dimension", text, d)
			}
			dims = append(dims, n)
		}
		out[text[:at]] = dims
	}
	return out, nil
}

// ParseValues reads numbers written as NAME:V,V.
func ParseValues(list []string) (map[string][]float64, error) {
	out := make(map[string][]float64, len(list))
	for _, text := range list {
		at := strings.LastIndexByte(text, ':')
		if at <= 0 {
			return nil, fmt.Errorf("--value %q is not NAME:V,V", text)
		}
		for v := range strings.SplitSeq(text[at+1:], ",") {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return nil, fmt.Errorf("--value %q: %q is not a number", text, v)
			}
			out[text[:at]] = append(out[text[:at]], n)
		}
	}
	return out, nil
}
