package perf

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
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
		"server", "concurrency", "rate", "inferences/s", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "mean ms",
		"outside ms", "queue ms", "input ms", "infer ms", "output ms", "requests", "answers", "errors", "late", "stable",
	}
}

func (r *Result) row() []string {
	l, s := r.Latency, r.Server
	return []string{
		r.Address, strconv.Itoa(r.Concurrency), strconv.FormatFloat(r.Rate, 'f', -1, 64), strconv.FormatFloat(r.Throughput, 'f', 1, 64),
		millis(l.P50), millis(l.P90), millis(l.P95), millis(l.P99), millis(l.Mean),
		millis(r.Outside()), millis(s.Queue), millis(s.ComputeInput), millis(s.ComputeInfer), millis(s.ComputeOutput),
		strconv.Itoa(r.Requests), strconv.Itoa(max(r.Answers, r.Requests)), strconv.Itoa(r.Errors), strconv.Itoa(r.Behind), strconv.FormatBool(r.Stable),
	}
}

// WriteTable prints results for people: with the server where there are several.
func WriteTable(w io.Writer, results []*Result) error {
	from := 1
	if slices.ContainsFunc(results, func(r *Result) bool { return r.Address != results[0].Address }) {
		from = 0
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells []string) {
		for _, c := range cells[from:] {
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

// WriteReport prints results in the form of perf_analyzer's report: times are microseconds, what is spent in the client is
// counted as network, and the slowest come first. Verbose adds its columns of means.
func WriteReport(w io.Writer, results []*Result, verbose bool) error {
	head := []string{
		"Concurrency", "Inferences/Second", "Client Send", "Network+Server Send/Recv", "Server Queue", "Server Compute Input", "Server Compute Infer",
		"Server Compute Output", "Client Recv", "p50 latency", "p90 latency", "p95 latency", "p99 latency",
	}
	if len(results) > 0 && results[0].Concurrency == 0 {
		head[0] = "Request Rate"
	}
	if verbose {
		head = append(head, "Avg latency", "request/response", "response wait")
	}
	c := csv.NewWriter(w)
	if err := c.Write(head); err != nil {
		return err
	}
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	for _, r := range slices.SortedFunc(slices.Values(results), func(a, b *Result) int { return cmp.Compare(a.Throughput, b.Throughput) }) {
		l, s := r.Latency, r.Server
		load := strconv.Itoa(r.Concurrency)
		if r.Concurrency == 0 {
			load = strconv.FormatFloat(r.Rate, 'f', -1, 64)
		}
		row := []string{
			load, strconv.FormatFloat(r.Throughput, 'f', 3, 64), "0", micros(r.Outside()), micros(s.Queue), micros(s.ComputeInput), micros(s.ComputeInfer),
			micros(s.ComputeOutput), "0", micros(l.P50), micros(l.P90), micros(l.P95), micros(l.P99),
		}
		if verbose {
			row = append(row, micros(l.Mean), "0", micros(l.Mean))
		}
		if err := c.Write(row); err != nil {
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
