package analyze

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
}

// Label names the settings of a point.
func (p *Point) Label() string {
	if len(p.Settings) == 1 {
		return p.Settings[0].String()
	}
	var parts []string
	for _, s := range p.Settings {
		if s != (Settings{Model: s.Model, Delay: -1}) {
			parts = append(parts, s.Model+": "+s.String())
		}
	}
	return cmp.Or(strings.Join(parts, "; "), "as they are")
}

// String names the settings.
func (s Settings) String() string {
	text := ""
	add := func(on bool, format string, v any) {
		if on {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf(format, v)
		}
	}
	add(s.Instances == 1, "%d instance", s.Instances)
	add(s.Instances > 1, "%d instances", s.Instances)
	add(s.Threads == 1, "%d thread", s.Threads)
	add(s.Threads > 1, "%d threads", s.Threads)
	add(s.MaxBatch > 0, "batches of %d", s.MaxBatch)
	add(s.Delay >= 0, "delay %v", s.Delay)
	if text == "" {
		return "as it is"
	}
	return text
}

// mark is a point in a plot.
type mark struct {
	X, Y  float64
	Title string
	Class string // best, asis, over a limit, or none of them
}

// tick is a line across a plot, and the number at its end.
type tick struct {
	At   float64
	Text string
}

// plot is an SVG of marks.
type plot struct {
	Title, XTitle, YTitle string
	XTicks, YTicks        []tick
	Limit                 float64 // where the limit of what is on the horizontal is; 0: outside, or there is none
	Marks                 []mark
}

const (
	plotWidth, plotHeight = 640.0, 320.0
	plotMargin            = 48.0
)

// ticks are round numbers from 0 to just below highest, about five of them.
func ticks(highest float64) []float64 {
	if highest <= 0 {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(highest/4)))
	for _, round := range []float64{5, 2} {
		if highest/(step*round) >= 4 {
			step *= round
			break
		}
	}
	var out []float64
	for n := 0; float64(n)*step <= highest; n++ {
		out = append(out, float64(n)*step)
	}
	return out
}

// number leaves out what adding up steps adds.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

func (r *Report) plot(title, xTitle string, limit float64, x func(*Point) float64) plot {
	p := plot{Title: title, XTitle: xTitle, YTitle: "inferences/s"}
	maxX, maxY := 0.0, 0.0
	for _, at := range r.Points {
		maxX, maxY = math.Max(maxX, x(at)), math.Max(maxY, at.Throughput)
	}
	if maxX == 0 || maxY == 0 {
		return p
	}
	across := func(v float64) float64 { return plotMargin + v/maxX*(plotWidth-2*plotMargin) }
	up := func(v float64) float64 { return plotHeight - plotMargin - v/maxY*(plotHeight-2*plotMargin) }
	for _, v := range ticks(maxX) {
		p.XTicks = append(p.XTicks, tick{across(v), number(v)})
	}
	for _, v := range ticks(maxY) {
		p.YTicks = append(p.YTicks, tick{up(v), number(v)})
	}
	if limit > 0 && limit <= maxX {
		p.Limit = across(limit)
	}
	for _, at := range r.Points {
		if at.Fault != "" {
			continue
		}
		p.Marks = append(p.Marks, mark{
			X: across(x(at)), Y: up(at.Throughput), Class: r.Class(at),
			Title: fmt.Sprintf("%s, %d under way, %.1f inferences/s, p99 %s ms", at.Label(), at.Concurrency, at.Throughput, millis(at.P99)),
		})
	}
	return p
}

// Class is what is special about a point: it is the best, beyond the limits (over), or of the models as they are (asis).
func (r *Report) Class(p *Point) string {
	switch {
	case p == r.Best:
		return "best"
	case !r.limits.within(p):
		return "over"
	case p.asItIs():
		return "asis"
	}
	return ""
}

// asItIs tells whether nothing was changed for a point.
func (p *Point) asItIs() bool {
	return !slices.ContainsFunc(p.Settings, func(s Settings) bool { return s != Settings{Model: s.Model, Delay: -1} })
}

// Before is the fastest point within the limits of the models as they are; nil: there is none.
func (r *Report) Before() *Point {
	var best *Point
	for _, p := range r.Points {
		if p.asItIs() && r.limits.within(p) && (best == nil || p.Throughput > best.Throughput) {
			best = p
		}
	}
	return best
}

// page is the report; everything it needs is in it.
const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Name}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color-scheme: light dark }
table { border-collapse: collapse; width: 100% } td, th { padding: .2em .6em; text-align: right; border-bottom: 1px solid #8884 }
td:first-child, th:first-child { text-align: left } tr.best { font-weight: bold; background: #2a92 } tr.over { opacity: .6 }
svg { max-width: 100%; height: auto } text { fill: currentColor; font-size: 12px } line { stroke: #8884 } line.limit { stroke: #c33; stroke-dasharray: 4 }
circle { fill: #48c; fill-opacity: .7 } circle.best { fill: #2a4; fill-opacity: 1 } circle.over { fill: #aaa } circle.asis { fill: #e90 }
.key { border-radius: 50%; display: inline-block; height: .7em; margin-left: 1em; width: .7em }
</style>
<h1>{{.Name}}</h1>
{{with .Limits}}<p>Limits: {{.}}.</p>{{end}}
{{with .Best}}<p>Fastest within the limits: <b>{{.Label}}</b> with {{.Concurrency}} requests under way: {{printf "%.1f" .Throughput}} inferences/s, p99 {{millis .P99}} ms.</p>
{{with $.Before}}<p>As it is: {{printf "%.1f" .Throughput}} inferences/s, p99 {{millis .P99}} ms, with {{.Concurrency}} requests under way.</p>{{end}}
{{else}}<p>No configuration that was tried keeps to the limits.</p>{{end}}
<p><span class="key" style="background: #2a4"></span> best <span class="key" style="background: #e90"></span> as it is <span class="key" style="background: #48c"></span> others
<span class="key" style="background: #aaa"></span> beyond the limits, or with errors</p>
{{range .Plots}}<h2>{{.Title}}</h2>
<svg viewBox="0 0 640 320" role="img" aria-label="{{.Title}}">
{{range .XTicks}}<line x1="{{printf "%.1f" .At}}" x2="{{printf "%.1f" .At}}" y1="24" y2="272"/><text x="{{printf "%.1f" .At}}" y="288" text-anchor="middle">{{.Text}}</text>
{{end}}{{range .YTicks}}<line x1="48" x2="616" y1="{{printf "%.1f" .At}}" y2="{{printf "%.1f" .At}}"/><text x="44" y="{{printf "%.1f" .At}}" dy="4" text-anchor="end">{{.Text}}</text>
{{end}}<path d="M48 24V272H616" fill="none" stroke="currentColor"/>
<text x="332" y="308" text-anchor="middle">{{.XTitle}}</text><text x="48" y="16">{{.YTitle}}</text>
{{if .Limit}}<line class="limit" x1="{{printf "%.1f" .Limit}}" x2="{{printf "%.1f" .Limit}}" y1="24" y2="272"/>{{end}}
{{range .Marks}}<circle cx="{{printf "%.1f" .X}}" cy="{{printf "%.1f" .Y}}" r="5"{{with .Class}} class="{{.}}"{{end}}><title>{{.Title}}</title></circle>
{{end}}</svg>
{{end}}<h2>All measurements</h2>
<table><tr><th>settings<th>under way<th>batch<th>inferences/s<th>p50 ms<th>p99 ms<th>memory MiB<th>errors</tr>
{{range .Points}}<tr{{with $.Class .}} class="{{.}}"{{end}}><td>{{.Label}}<td>{{.Concurrency}}<td>{{.Batch}}{{if .Fault}}<td colspan="5">{{.Fault}}{{else}}<td>{{printf "%.1f" .Throughput}}<td>{{millis .P50}}<td>{{millis .P99}}<td>{{mebibytes .Memory}}<td title="{{.Error}}">{{.Errors}}{{end}}</tr>
{{end}}</table>
</html>
`

// WriteHTML writes the report as a page with plots.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"millis":    millis,
		"mebibytes": func(n int64) string { return strconv.FormatInt(n>>20, 10) },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	latency, memory := r.limits.MaxLatency, r.limits.MaxMemory
	plots := []plot{
		r.plot("Throughput and latency", "p99, ms", latency.Seconds()*1000, func(p *Point) float64 { return p.P99.Seconds() * 1000 }),
		r.plot("Throughput and concurrency", "requests under way", 0, func(p *Point) float64 { return float64(p.Concurrency) }),
	}
	if r.measuredMemory() {
		plots = append(plots, r.plot("Throughput and memory", "MiB", float64(memory>>20), func(p *Point) float64 { return float64(p.Memory >> 20) }))
	}
	var limits []string
	if latency > 0 {
		limits = append(limits, "p99 within "+millis(latency)+" ms")
	}
	if memory > 0 {
		limits = append(limits, fmt.Sprintf("the server within %d MiB", memory>>20))
	}
	return t.Execute(w, struct {
		*Report

		Name, Limits string
		Plots        []plot
	}{r, strings.Join(r.Models, ", "), strings.Join(limits, ", "), plots})
}

func (r *Report) measuredMemory() bool {
	return slices.ContainsFunc(r.Points, func(p *Point) bool { return p.Memory > 0 })
}
