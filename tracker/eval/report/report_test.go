package report_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/eval/report"
)

// switching is one object followed by track 5 and then, after a gap, by 8.
func switching() (gt, tracks []eval.Row) {
	for f := 1; f <= 30; f++ {
		b := tracker.Box{X1: float64(10 * f), Y1: 50, X2: float64(10*f + 40), Y2: 150}
		gt = append(gt, eval.Row{Frame: f, ID: 3, Box: b, Score: 1, Class: 1, Visibility: 1})
		switch {
		case f <= 12:
			tracks = append(tracks, eval.Row{Frame: f, ID: 5, Box: b, Score: 1})
		case f >= 17:
			tracks = append(tracks, eval.Row{Frame: f, ID: 8, Box: b, Score: 1})
		}
	}
	return gt, tracks
}

func draw(t *testing.T, name string, picture func(int) image.Image) string {
	t.Helper()
	gt, tracks := switching()
	r, err := eval.Score(name, gt, tracks)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Switches) != 1 || r.Switches[0] != (eval.Switch{Frame: 17, LastSeen: 12, Object: 3, From: 5, To: 8}) {
		t.Fatalf("switches %+v", r.Switches)
	}
	var out bytes.Buffer
	sum := eval.Combine("COMBINED", []*eval.Result{r})
	if err := report.Write(&out, "a title", []report.Sequence{{Result: r, GT: gt, Tracks: tracks, Picture: picture}}, sum); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestReportShowsEverySwitch(t *testing.T) {
	page := draw(t, "street", nil)
	for _, want := range []string{
		"street", "COMBINED", "1 identity switches", "object 3, track 5, frames 1 to 12", "object 3, track 8, frames 17 to 30",
		`aria-label="frame 12"`, `aria-label="frame 14"`, `aria-label="frame 17"`, "5 until frame 12", "8 from frame 17", "background:hsl(",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "data:image") {
		t.Error("the page has a value refused by the template, or a picture from nowhere")
	}
}

func TestReportCarriesThePictures(t *testing.T) {
	asked := map[int]bool{}
	page := draw(t, "street", func(frame int) image.Image {
		asked[frame] = true
		if frame == 17 {
			return nil // lost: drawn without
		}
		return image.NewUniform(color.White)
	})
	if n := strings.Count(page, "data:image/jpeg;base64,"); n != len(asked)-1 || !asked[12] || !asked[17] {
		t.Errorf("%d pictures on the page, frames %v were asked for", n, asked)
	}
}

func TestReportEscapesNames(t *testing.T) {
	page := draw(t, `<script>alert("x")</script>`, nil)
	if strings.Contains(page, "<script>") {
		t.Error("a sequence's name becomes markup")
	}
}

// Every drawing is well-formed, so that it can be cut out and kept.
func TestReportDrawingsAreWellFormed(t *testing.T) {
	page := draw(t, "street", nil)
	count := 0
	for part := range strings.SplitSeq(page, "<svg") {
		body, _, ok := strings.Cut(part, "</svg>")
		if !ok {
			continue
		}
		count++
		var drawing struct {
			XMLName xml.Name
		}
		if err := xml.Unmarshal([]byte(fmt.Sprintf("<svg%s</svg>", body)), &drawing); err != nil {
			t.Errorf("drawing %d: %v", count, err)
		}
	}
	if count < 8 {
		t.Errorf("only %d drawings", count)
	}
}
