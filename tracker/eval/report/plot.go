package report

import (
	"fmt"
	"strings"

	"github.com/vedette/vedette/tracker/eval"
)

// Sizes of the drawings, in pixels.
const (
	plotWidth  = 360
	plotHeight = 200
	lineHeight = 12
	timeWidth  = 900
)

type line struct {
	Name, Colour, Points string
}

type plot struct {
	Width, Height int
	Lines         []line
	Ticks         []tick
}

type tick struct {
	Y     float64
	Label string
}

// plotCurve draws HOTA, DetA and AssA over the thresholds of overlap.
func plotCurve(levels []eval.Level) plot {
	p := plot{Width: plotWidth, Height: plotHeight}
	for v := 0; v <= 100; v += 25 {
		p.Ticks = append(p.Ticks, tick{plotY(float64(v)), fmt.Sprint(v)})
	}
	pick := []struct {
		name, colour string
		of           func(eval.Level) float64
	}{
		{"HOTA", "#1f5fbf", func(l eval.Level) float64 { return l.HOTA }},
		{"DetA", "#2f8f4e", func(l eval.Level) float64 { return l.DetA }},
		{"AssA", "#b8541c", func(l eval.Level) float64 { return l.AssA }},
	}
	for _, c := range pick {
		var points strings.Builder
		for _, l := range levels {
			fmt.Fprintf(&points, "%.1f,%.1f ", 30+(plotWidth-40)*l.Overlap, plotY(c.of(l)))
		}
		p.Lines = append(p.Lines, line{c.name, c.colour, points.String()})
	}
	return p
}

func plotY(v float64) float64 { return plotHeight - 20 - (plotHeight-30)*v/100 }

type bar struct {
	Name             string
	HOTA, DetA, AssA float64
}

func plotBars(rows []eval.Figures) []bar {
	var bars []bar
	for _, f := range rows {
		bars = append(bars, bar{f.Name, f.HOTA, f.DetA, f.AssA})
	}
	return bars
}

type timeline struct {
	Width, Height int
	Frames        int
	Lanes         []lane
	Spans         []spanView
}

type lane struct {
	Y      int
	Object int64
}

type spanView struct {
	X, Width float64
	Y        int
	Colour   string
	Label    string
}

// plotTimeline draws a lane for each object with a bar for each track that
// followed it: a change of colour is an identity switch.
func plotTimeline(r *eval.Result) timeline {
	t := timeline{Width: timeWidth}
	for _, s := range r.Spans {
		t.Frames = max(t.Frames, s.Last)
	}
	if t.Frames == 0 {
		return t
	}
	scale := float64(timeWidth-60) / float64(t.Frames)
	y := -lineHeight
	for i, s := range r.Spans {
		if i == 0 || s.Object != r.Spans[i-1].Object {
			y += lineHeight
			t.Lanes = append(t.Lanes, lane{y, s.Object})
		}
		t.Spans = append(t.Spans, spanView{
			X: 60 + float64(s.First-1)*scale, Width: max(1, float64(s.Last-s.First+1)*scale), Y: y,
			Colour: colour(s.Track),
			Label:  fmt.Sprintf("object %d, track %d, frames %d to %d", s.Object, s.Track, s.First, s.Last),
		})
	}
	t.Height = y + lineHeight
	return t
}

// colour gives neighbouring identities colours far apart.
func colour(id int64) string {
	return fmt.Sprintf("hsl(%d 65%% 45%%)", ((id*137)%360+360)%360)
}
