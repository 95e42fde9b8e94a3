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
