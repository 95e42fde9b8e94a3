package report

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"math"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// tileSize is the side of one picture of a strip, in pixels.
const tileSize = 150

type strip struct {
	Switch     eval.Switch
	FromColour template.CSS
	ToColour   template.CSS
	Tiles      []tile
}

type tile struct {
	Frame int
	Size  int
	Image template.URL // empty without a picture
	Boxes []boxView
	Note  string
}

type boxView struct {
	X, Y, Width, Height float64
	Colour, Label, Dash string
}

// drawStrip shows an identity switch: the last frame of the old track, what
// lies between and the first frame of the new one, all around the object.
func drawStrip(s *Sequence, sw eval.Switch, gt, tracks map[int][]eval.Row) (strip, error) {
	st := strip{Switch: sw, FromColour: template.CSS(colour(sw.From)), ToColour: template.CSS(colour(sw.To))}
	for _, frame := range stripFrames(sw) {
		object, ok := find(gt[frame], sw.Object)
		if !ok {
			continue
		}
		t := tile{Frame: frame, Size: tileSize}
		view := around(object)
		scale := tileSize / view.Width()
		t.Boxes = append(t.Boxes, place(object, view, scale, "#888", fmt.Sprintf("object %d", sw.Object), "3 2"))
		for _, r := range tracks[frame] {
			if !touches(r.Box, view) {
				continue
			}
			t.Boxes = append(t.Boxes, place(r.Box, view, scale, colour(r.ID), fmt.Sprint(r.ID), ""))
		}
		if s.Picture != nil {
			if picture := s.Picture(frame); picture != nil {
				url, err := crop(picture, view)
				if err != nil {
					return st, fmt.Errorf("picture of frame %d: %w", frame, err)
				}
				t.Image = url
			}
		}
		st.Tiles = append(st.Tiles, t)
	}
	return st, nil
}

// stripFrames chooses up to five frames from before the switch to after it.
func stripFrames(sw eval.Switch) []int {
	frames := []int{sw.LastSeen - 1, sw.LastSeen}
	if mid := (sw.LastSeen + sw.Frame) / 2; mid > sw.LastSeen && mid < sw.Frame {
		frames = append(frames, mid)
	}
	return append(frames, sw.Frame, sw.Frame+1)
}

// around is a square with the object in its middle and its neighbours in view.
func around(b tracker.Box) tracker.Box {
	half := 0.9 * max(b.Width(), b.Height(), 8)
	x, y := (b.X1+b.X2)/2, (b.Y1+b.Y2)/2
	return tracker.Box{X1: x - half, Y1: y - half, X2: x + half, Y2: y + half}
}

func touches(a, b tracker.Box) bool {
	return a.X1 < b.X2 && b.X1 < a.X2 && a.Y1 < b.Y2 && b.Y1 < a.Y2
}

func place(b, view tracker.Box, scale float64, colour, label, dash string) boxView {
	return boxView{
		X: (b.X1 - view.X1) * scale, Y: (b.Y1 - view.Y1) * scale,
		Width: b.Width() * scale, Height: b.Height() * scale,
		Colour: colour, Label: label, Dash: dash,
	}
}

// crop cuts a square out of a picture, scaled to a tile. What lies outside
// the picture stays grey.
func crop(from image.Image, view tracker.Box) (template.URL, error) {
	out := image.NewRGBA(image.Rect(0, 0, tileSize, tileSize))
	draw.Draw(out, out.Bounds(), image.NewUniform(color.Gray{Y: 0x60}), image.Point{}, draw.Src)
	bounds := from.Bounds()
	step := view.Width() / tileSize
	for y := range tileSize {
		for x := range tileSize {
			at := image.Pt(
				bounds.Min.X+int(math.Floor(view.X1+(float64(x)+0.5)*step)),
				bounds.Min.Y+int(math.Floor(view.Y1+(float64(y)+0.5)*step)),
			)
			if at.In(bounds) {
				out.Set(x, y, from.At(at.X, at.Y))
			}
		}
	}
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, out, &jpeg.Options{Quality: 80}); err != nil {
		return "", err
	}
	return template.URL("data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(buf.Bytes())), nil
}
