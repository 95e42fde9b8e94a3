package perf

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
}

// columns are those of tables and CSV.
func columns() []string {
	return []string{
		"concurrency", "rate", "inferences/s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "mean ms",
		"queue ms", "input ms", "infer ms", "output ms", "requests", "answers", "errors", "late", "stable",
	}
}

func (r *Result) row() []string {
	l, s := r.Latency, r.Server
	return []string{
		strconv.Itoa(r.Concurrency), strconv.FormatFloat(r.Rate, 'f', -1, 64), strconv.FormatFloat(r.Throughput, 'f', 1, 64),
		millis(l.P50), millis(l.P90), millis(l.P95), millis(l.P99), millis(l.Mean),
		millis(s.Queue), millis(s.ComputeInput), millis(s.ComputeInfer), millis(s.ComputeOutput),
		strconv.Itoa(r.Requests), strconv.Itoa(max(r.Answers, r.Requests)), strconv.Itoa(r.Errors), strconv.Itoa(r.Behind), strconv.FormatBool(r.Stable),
	}
}

// WriteTable prints results for people.
func WriteTable(w io.Writer, results []*Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells []string) {
		for _, c := range cells {
			_, _ = fmt.Fprint(t, c, "\t")
		}
		_, _ = fmt.Fprintln(t)
	}
	line(columns())
	for _, r := range results {
		line(r.row())
	}
	return t.Flush()
}

// WriteCSV prints results for spreadsheets.
func WriteCSV(w io.Writer, results []*Result) error {
	c := csv.NewWriter(w)
	if err := c.Write(columns()); err != nil {
		return err
	}
	for _, r := range results {
		if err := c.Write(r.row()); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// WriteJSON prints results for programs; durations are nanoseconds.
func WriteJSON(w io.Writer, results []*Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}

// WriteRequests prints every request that was kept, in the form of perf_analyzer's export: times are nanoseconds.
func WriteRequests(w io.Writer, results []*Result) error {
	type request struct {
		Timestamp int64   `json:"timestamp"`
		Sequence  uint64  `json:"sequence_id,omitempty"`
		Answers   []int64 `json:"response_timestamps"`
	}
	type experiment struct {
		Experiment struct {
			Mode  string  `json:"mode"`
			Value float64 `json:"value"`
		} `json:"experiment"`
		Requests []request `json:"requests"`
		Bounds   []int64   `json:"window_boundaries"`
	}
	var all struct {
		Experiments []experiment `json:"experiments"`
		Version     string       `json:"version"`
	}
	all.Version = "1.0"
	for _, r := range results {
		e := experiment{Requests: []request{}, Bounds: []int64{}}
		e.Experiment.Mode, e.Experiment.Value = "concurrency", float64(r.Concurrency)
		if r.Rate > 0 {
			e.Experiment.Mode, e.Experiment.Value = "request_rate", r.Rate
		}
		for _, s := range r.Sent {
			one := request{Timestamp: s.Begin.UnixNano(), Sequence: s.Sequence, Answers: []int64{}}
			for _, t := range s.Answers {
				one.Answers = append(one.Answers, t.UnixNano())
			}
			e.Requests = append(e.Requests, one)
		}
		for _, t := range r.Bounds {
			e.Bounds = append(e.Bounds, t.UnixNano())
		}
		all.Experiments = append(all.Experiments, e)
	}
	return json.NewEncoder(w).Encode(all)
}
