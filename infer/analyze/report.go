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
	add(s.Instances > 0, "%d instances", s.Instances)
	add(s.Threads > 0, "%d threads", s.Threads)
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
	Best  bool
}

// plot is an SVG of marks.
type plot struct {
	Title, XTitle, YTitle string
	XMax, YMax            string
	Marks                 []mark
}

const (
	plotWidth, plotHeight = 640.0, 320.0
	plotMargin            = 48.0
)

func (r *Report) plot(title, xTitle, yTitle string, x, y func(*Point) float64) plot {
	p := plot{Title: title, XTitle: xTitle, YTitle: yTitle}
	maxX, maxY := 0.0, 0.0
	for _, at := range r.Points {
		maxX, maxY = math.Max(maxX, x(at)), math.Max(maxY, y(at))
	}
	p.XMax, p.YMax = strconv.FormatFloat(maxX, 'g', 4, 64), strconv.FormatFloat(maxY, 'g', 4, 64)
	for _, at := range r.Points {
		if at.Fault != "" || maxX == 0 || maxY == 0 {
			continue
		}
		p.Marks = append(p.Marks, mark{
			X:     plotMargin + x(at)/maxX*(plotWidth-2*plotMargin),
			Y:     plotHeight - plotMargin - y(at)/maxY*(plotHeight-2*plotMargin),
			Title: fmt.Sprintf("%s, %d under way, %.1f inferences/s, p99 %s ms", at.Label(), at.Concurrency, at.Throughput, millis(at.P99)),
			Best:  at == r.Best,
		})
	}
	return p
}

// page is the report; everything it needs is in it.
const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Name}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color-scheme: light dark }
table { border-collapse: collapse; width: 100% } td, th { padding: .2em .6em; text-align: right; border-bottom: 1px solid #8884 }
td:first-child, th:first-child { text-align: left } .best { font-weight: bold; background: #2a92 }
svg { max-width: 100%; height: auto } text { fill: currentColor; font-size: 12px } circle { fill: #48c; fill-opacity: .7 } circle.best { fill: #2a4; fill-opacity: 1 }
</style>
<h1>{{.Name}}</h1>
{{with .Best}}<p>Fastest within the limits: <b>{{.Label}}</b> with {{.Concurrency}} requests under way: {{printf "%.1f" .Throughput}} inferences/s, p99 {{millis .P99}} ms.</p>
{{else}}<p>No configuration that was tried keeps to the limits.</p>{{end}}
{{range .Plots}}<h2>{{.Title}}</h2>
<svg viewBox="0 0 640 320" role="img" aria-label="{{.Title}}">
<path d="M48 24V272H616" fill="none" stroke="currentColor"/>
<text x="616" y="290" text-anchor="end">{{.XMax}}</text><text x="332" y="308" text-anchor="middle">{{.XTitle}}</text>
<text x="44" y="52" text-anchor="end">{{.YMax}}</text><text x="48" y="16">{{.YTitle}}</text>
{{range .Marks}}<circle cx="{{printf "%.1f" .X}}" cy="{{printf "%.1f" .Y}}" r="5"{{if .Best}} class="best"{{end}}><title>{{.Title}}</title></circle>
{{end}}</svg>
{{end}}<h2>All measurements</h2>
<table><tr><th>settings<th>under way<th>batch<th>inferences/s<th>p50 ms<th>p99 ms<th>memory MiB<th>errors</tr>
{{$best := .Best}}{{range .Points}}<tr{{if eq . $best}} class="best"{{end}}><td>{{.Label}}<td>{{.Concurrency}}<td>{{.Batch}}{{if .Fault}}<td colspan="5">{{.Fault}}{{else}}<td>{{printf "%.1f" .Throughput}}<td>{{millis .P50}}<td>{{millis .P99}}<td>{{mebibytes .Memory}}<td title="{{.Error}}">{{.Errors}}{{end}}</tr>
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
	throughput := func(p *Point) float64 { return p.Throughput }
	plots := []plot{r.plot("Throughput and latency", "p99, ms", "inferences/s", func(p *Point) float64 { return p.P99.Seconds() * 1000 }, throughput)}
	plots = append(plots, r.plot("Throughput and concurrency", "requests under way", "inferences/s", func(p *Point) float64 { return float64(p.Concurrency) }, throughput))
	if r.measuredMemory() {
		plots = append(plots, r.plot("Throughput and memory", "MiB", "inferences/s", func(p *Point) float64 { return float64(p.Memory >> 20) }, throughput))
	}
	return t.Execute(w, struct {
		*Report

		Name  string
		Plots []plot
	}{r, strings.Join(r.Models, ", "), plots})
}

func (r *Report) measuredMemory() bool {
	return slices.ContainsFunc(r.Points, func(p *Point) bool { return p.Memory > 0 })
}
