package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/jpeg" // pictures may be JPEG
	"image/png"
	"slices"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"github.com/vedette/vedette/infer/detect"
)

// look sends the pictures through everything but the tracker.
func (a *adoption) look(ctx context.Context) error {
	if len(a.cfg.Pictures) == 0 {
		return errors.New("there is no picture to try it on")
	}
	const preview = ".preview"
	name := a.cfg.Name + preview[1:]
	for _, m := range []struct{ name, config string }{
		{a.part("detector"), a.detector()},
		{a.part("prepare"), a.prepare()},
		{a.part("boxes"), a.boxes()},
		{name, a.ensemble(name, false)},
	} {
		if err := a.write(m.name+"/1/.gitkeep", nil); err != nil {
			return err
		}
		if err := a.load(ctx, m.name, m.config); err != nil {
			return fmt.Errorf("the model %s does not load: %w", m.name, err)
		}
	}
	for i, picture := range a.cfg.Pictures {
		boxes, err := a.boxesOf(ctx, name, picture)
		if err != nil {
			return err
		}
		if i == 0 {
			a.report.Boxes = boxes
		}
		a.seen = append(a.seen, boxes)
	}
	return nil
}

func (a *adoption) boxesOf(ctx context.Context, model string, picture []byte) ([]Box, error) {
	if _, _, err := image.DecodeConfig(bytes.NewReader(picture)); err != nil {
		return nil, fmt.Errorf("the picture to try it on is neither JPEG nor PNG: %w", err)
	}
	seen, err := detect.See(ctx, a.client, model, picture)
	if err != nil {
		return nil, fmt.Errorf("it fails on a picture: %w", err)
	}
	boxes := make([]Box, len(seen))
	for i, b := range seen {
		boxes[i] = Box{Box: b, Label: strconv.Itoa(b.Class)}
		if b.Class < len(a.cfg.Labels) {
			boxes[i].Label = a.cfg.Labels[b.Class]
		}
	}
	return boxes, nil
}

// tracker is the shipped one for scores that nobody has calibrated.
const tracker = "plain-tracker"

// complete loads the pipeline as cameras will use it.
func (a *adoption) complete(ctx context.Context) error {
	if err := a.write(a.cfg.Name+"/1/.gitkeep", nil); err != nil {
		return err
	}
	if err := a.loadShipped(ctx, tracker); err != nil {
		return fmt.Errorf("the shipped tracker does not load: %w", err)
	}
	if err := a.load(ctx, a.cfg.Name, a.ensemble(a.cfg.Name, true)); err != nil {
		return fmt.Errorf("the pipeline does not load: %w", err)
	}
	return nil
}

// Draw returns the picture as PNG with boxes of at least a score around what was seen.
func Draw(picture []byte, boxes []Box, least float64) ([]byte, error) {
	src, _, err := image.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("draw boxes: %w", err)
	}
	dst := image.NewRGBA(image.Rect(0, 0, src.Bounds().Dx(), src.Bounds().Dy()))
	draw.Draw(dst, dst.Bounds(), src, src.Bounds().Min, draw.Src)
	for _, b := range slices.Backward(boxes) { // the best on top
		if b.Score >= least {
			drawBox(dst, b)
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, dst); err != nil {
		return nil, fmt.Errorf("draw boxes: %w", err)
	}
	return out.Bytes(), nil
}

func drawBox(dst *image.RGBA, b Box) {
	palette := []color.RGBA{{230, 25, 75, 255}, {0, 130, 200, 255}, {60, 180, 75, 255}, {245, 130, 48, 255}, {145, 30, 180, 255}, {0, 128, 128, 255}}
	paint := image.NewUniform(palette[b.Class%len(palette)])
	const thick = 2
	r := image.Rect(int(b.X1), int(b.Y1), int(b.X2), int(b.Y2))
	for _, side := range []image.Rectangle{
		{r.Min, image.Pt(r.Max.X, r.Min.Y+thick)},
		{image.Pt(r.Min.X, r.Max.Y-thick), r.Max},
		{r.Min, image.Pt(r.Min.X+thick, r.Max.Y)},
		{image.Pt(r.Max.X-thick, r.Min.Y), r.Max},
	} {
		draw.Draw(dst, side.Intersect(dst.Bounds()), paint, image.Point{}, draw.Src)
	}
	text, face := fmt.Sprintf("%s %.2f", b.Label, b.Score), basicfont.Face7x13
	top := max(r.Min.Y-face.Height, 0)
	plate := image.Rect(r.Min.X, top, r.Min.X+face.Advance*len(text)+4, top+face.Height)
	draw.Draw(dst, plate.Intersect(dst.Bounds()), paint, image.Point{}, draw.Src)
	d := font.Drawer{Dst: dst, Src: image.White, Face: face, Dot: fixed.P(plate.Min.X+2, top+face.Ascent)}
	d.DrawString(text)
}
