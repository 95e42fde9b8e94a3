// Package report draws a tracking evaluation as one page of HTML: a table, the
// curves behind the figures, a timeline of every object and a strip of
// pictures for every identity switch. The page needs nothing but itself.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"image"
	"io"
	"slices"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

//go:embed report.html
var page string

// Sequence is one sequence to report on.
type Sequence struct {
	Result     *eval.Result
	GT, Tracks []eval.Row
	// Picture gives the picture of a frame, counted from 1; nil, or a nil
	// picture: boxes are drawn on an empty ground.
	Picture func(frame int) image.Image
}

// maxStrips bounds the identity switches drawn for one sequence; all are
// counted.
const maxStrips = 60

// Write draws the page of some sequences and of their sum, which appears in the
// table and the first plots only.
func Write(w io.Writer, title string, sequences []Sequence, sum *eval.Result) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"f1": func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"f2": func(v float64) string { return fmt.Sprintf("%.2f", v) },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("report page: %w", err)
	}
	view := pageView{Title: title}
	for i := range sequences {
		s, err := viewSequence(&sequences[i])
		if err != nil {
			return err
		}
		view.Rows = append(view.Rows, s.Figures)
		view.Sequences = append(view.Sequences, s)
	}
	view.Sum = sum.Figures()
	view.Rows = append(view.Rows, view.Sum)
	view.Curve = plotCurve(sum.Levels())
	view.Bars = plotBars(view.Rows)
	return t.Execute(w, view)
}

type pageView struct {
	Title     string
	Rows      []eval.Figures
	Sum       eval.Figures
	Curve     plot
	Bars      []bar
	Sequences []sequenceView
}

type sequenceView struct {
	Figures  eval.Figures
	Curve    plot
	Timeline timeline
	Strips   []strip
	Hidden   int
}

func viewSequence(s *Sequence) (sequenceView, error) {
	v := sequenceView{
		Figures: s.Result.Figures(), Curve: plotCurve(s.Result.Levels()),
		Timeline: plotTimeline(s.Result),
	}
	shown := s.Result.Switches
	if len(shown) > maxStrips {
		v.Hidden = len(shown) - maxStrips
		shown = shown[:maxStrips]
	}
	gt, tracks := index(s.GT), index(s.Tracks)
	for _, sw := range shown {
		st, err := drawStrip(s, sw, gt, tracks)
		if err != nil {
			return v, fmt.Errorf("report %s: %w", s.Result.Name, err)
		}
		v.Strips = append(v.Strips, st)
	}
	return v, nil
}

func index(rows []eval.Row) map[int][]eval.Row {
	frames := map[int][]eval.Row{}
	for _, r := range rows {
		frames[r.Frame] = append(frames[r.Frame], r)
	}
	return frames
}

func find(rows []eval.Row, id int64) (tracker.Box, bool) {
	i := slices.IndexFunc(rows, func(r eval.Row) bool { return r.ID == id })
	if i < 0 {
		return tracker.Box{}, false
	}
	return rows[i].Box, true
}
