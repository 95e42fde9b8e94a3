package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/vedette/vedette/tracker"
)

// Annotations are pictures with boxes of several classes, as COCO's files hold them.
type Annotations struct {
	Categories []Category
	Images     []Image
}

// Category is a class of objects.
type Category struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// Image is one annotated picture. Source groups pictures in tables; empty where the file tells none.
type Image struct {
	ID     int64
	File   string
	Source string
	Boxes  []Row // Class is the category's id; Score 0 marks crowds, which are neither asked for nor wrong
}

// ReadAnnotations reads a file of COCO's format: categories, images and annotations with bbox x, y, width, height in
// pixels. Annotations of pictures or categories that the file does not hold are an error.
func ReadAnnotations(r io.Reader) (*Annotations, error) {
	var file struct {
		Categories []Category `json:"categories"`
		Images     []struct {
			ID     int64  `json:"id"`
			File   string `json:"file_name"`
			Source string `json:"source"`
		} `json:"images"`
		Annotations []struct {
			ID       int64     `json:"id"`
			Image    int64     `json:"image_id"`
			Category int       `json:"category_id"`
			Box      []float64 `json:"bbox"`
			Crowd    int       `json:"iscrowd"`
		} `json:"annotations"`
	}
	if err := json.NewDecoder(r).Decode(&file); err != nil {
		return nil, fmt.Errorf("read annotations: %w", err)
	}
	if len(file.Images) == 0 || len(file.Categories) == 0 {
		return nil, errors.New("read annotations: no images or no categories: not a file of COCO's format")
	}
	a := &Annotations{Categories: file.Categories}
	at := make(map[int64]int, len(file.Images))
	for i, im := range file.Images {
		if _, twice := at[im.ID]; twice {
			return nil, fmt.Errorf("read annotations: images[%d]: id %d is there twice", i, im.ID)
		}
		at[im.ID] = i
		a.Images = append(a.Images, Image{ID: im.ID, File: im.File, Source: im.Source})
	}
	for i, n := range file.Annotations {
		k, known := at[n.Image]
		switch {
		case !known:
			return nil, fmt.Errorf("read annotations: annotations[%d]: image %d is not in the file", i, n.Image)
		case a.Category(n.Category) == "":
			return nil, fmt.Errorf("read annotations: annotations[%d]: category %d is not in the file", i, n.Category)
		}
		box, err := boxOf(n.Box)
		if err != nil {
			return nil, fmt.Errorf("read annotations: annotations[%d]: %w", i, err)
		}
		row := Row{Frame: k + 1, ID: n.ID, Box: box, Score: 1, Class: n.Category, Visibility: 1}
		if n.Crowd != 0 {
			row.Score = 0
		}
		a.Images[k].Boxes = append(a.Images[k].Boxes, row)
	}
	return a, nil
}

func boxOf(v []float64) (tracker.Box, error) {
	if len(v) != 4 {
		return tracker.Box{}, fmt.Errorf("bbox has %d numbers, not 4", len(v))
	}
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return tracker.Box{}, fmt.Errorf("bbox %v is no rectangle", v)
		}
	}
	if v[2] < 0 || v[3] < 0 {
		return tracker.Box{}, fmt.Errorf("bbox %v has a negative side", v)
	}
	return tracker.Box{X1: v[0], Y1: v[1], X2: v[0] + v[2], Y2: v[1] + v[3]}, nil
}

// Category is the name of a category; empty if there is none of that id.
func (a *Annotations) Category(id int) string {
	for _, c := range a.Categories {
		if c.ID == id {
			return c.Name
		}
	}
	return ""
}

// ReadDetections reads results in COCO's format for the pictures of a: a list of image_id, category_id, bbox, score.
// The answer has one list a picture.
func (a *Annotations) ReadDetections(r io.Reader) ([][]Row, error) {
	var list []struct {
		Image    int64     `json:"image_id"`
		Category int       `json:"category_id"`
		Box      []float64 `json:"bbox"`
		Score    float64   `json:"score"`
	}
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return nil, fmt.Errorf("read detections: %w", err)
	}
	at := make(map[int64]int, len(a.Images))
	for i := range a.Images {
		at[a.Images[i].ID] = i
	}
	dets := make([][]Row, len(a.Images))
	for i, d := range list {
		k, known := at[d.Image]
		if !known {
			return nil, fmt.Errorf("read detections: [%d]: image %d is not annotated", i, d.Image)
		}
		box, err := boxOf(d.Box)
		if err != nil {
			return nil, fmt.Errorf("read detections: [%d]: %w", i, err)
		}
		dets[k] = append(dets[k], Row{Frame: k + 1, ID: -1, Box: box, Score: d.Score, Class: d.Category, Visibility: 1})
	}
	return dets, nil
}

// DetectClasses scores detections class by class: a row for each category that is annotated, and a last row "all", the
// mean of them, but for the false alarms, which are those of all classes. dets has one list a picture; alarm is the score
// from which a detection is a false alarm where nothing is annotated; pick chooses pictures, nil is all.
func (a *Annotations) DetectClasses(dets [][]Row, alarm float64, pick func(*Image) bool) []DetectFigures {
	var all []DetectFigures
	var whole []Picture
	for i := range a.Images {
		if pick == nil || pick(&a.Images[i]) {
			whole = append(whole, Picture{Dets: dets[i], Empty: len(a.Images[i].Boxes) == 0})
		}
	}
	for _, c := range a.Categories {
		of := func(rows []Row) []Row {
			var some []Row
			for _, r := range rows {
				if r.Class == c.ID {
					r.Class = classNone
					some = append(some, r)
				}
			}
			return some
		}
		var pictures []Picture
		for i := range a.Images {
			if pick == nil || pick(&a.Images[i]) {
				pictures = append(pictures, Picture{GT: of(a.Images[i].Boxes), Dets: of(dets[i]), Empty: len(a.Images[i].Boxes) == 0})
			}
		}
		if f := Detect(c.Name, pictures, alarm); f.Boxes > 0 {
			all = append(all, f)
		}
	}
	f := meanFigures("all", all)
	f.Alarms = alarms(whole, alarm)
	return append(all, f)
}

// Sources lists the sources of the pictures, sorted.
func (a *Annotations) Sources() []string {
	var names []string
	for i := range a.Images {
		names = append(names, a.Images[i].Source)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// meanFigures is the mean over classes; sizes that a class does not have do not count.
func meanFigures(name string, all []DetectFigures) DetectFigures {
	mean := func(get func(*DetectFigures) float64) float64 {
		sum, n := 0.0, 0
		for i := range all {
			if v := get(&all[i]); v >= 0 {
				sum, n = sum+v, n+1
			}
		}
		if n == 0 {
			return -1
		}
		return sum / float64(n)
	}
	f := DetectFigures{
		Name:   name,
		AP:     mean(func(f *DetectFigures) float64 { return f.AP }),
		AP50:   mean(func(f *DetectFigures) float64 { return f.AP50 }),
		AP75:   mean(func(f *DetectFigures) float64 { return f.AP75 }),
		Small:  mean(func(f *DetectFigures) float64 { return f.Small }),
		Medium: mean(func(f *DetectFigures) float64 { return f.Medium }),
		Large:  mean(func(f *DetectFigures) float64 { return f.Large }),
		AR:     mean(func(f *DetectFigures) float64 { return f.AR }),
	}
	for i := range all {
		f.Boxes, f.Dets = f.Boxes+all[i].Boxes, f.Dets+all[i].Dets
	}
	return f
}
