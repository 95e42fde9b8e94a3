package verbs

import (
	"fmt"
	"image"
	_ "image/jpeg" // the usual format of recorded frames
	_ "image/png"
	"io"
	"os"
	"path/filepath"

	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/eval/report"
)

// report draws the scored sequences; the last result is their sum.
func (v *Score) report(w io.Writer, sequences []scored, results []*eval.Result) error {
	var drawn []report.Sequence
	for i, s := range sequences {
		one := report.Sequence{Result: results[i], GT: s.gt, Tracks: s.result}
		if v.Frames != "" {
			one.Picture = v.pictures(s.name)
		}
		drawn = append(drawn, one)
	}
	return report.Write(w, fmt.Sprintf("Tracking on %d sequences", len(drawn)), drawn, results[len(drawn)])
}

// pictures finds the frames of a sequence; frames that cannot be read are
// drawn without a picture.
func (v *Score) pictures(name string) func(frame int) image.Image {
	return func(frame int) image.Image {
		number := (frame-1)*max(v.Every, 1) + 1
		for _, ext := range []string{"jpg", "png"} {
			f, err := os.Open(filepath.Join(v.Frames, name, "img1", fmt.Sprintf("%06d.%s", number, ext)))
			if err != nil {
				continue
			}
			picture, _, err := image.Decode(f)
			_ = f.Close() // only read
			if err == nil {
				return picture
			}
		}
		return nil
	}
}
