package eval_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker/eval"
)

const annotated = `{"categories": [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}, {"id": 9, "name": "boat"}],
"images": [{"id": 7, "file_name": "a.jpg", "source": "street"}, {"id": 8, "file_name": "b.jpg", "source": "field"}],
"annotations": [
 {"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 100, 100]},
 {"id": 2, "image_id": 7, "category_id": 3, "bbox": [200, 0, 100, 100]},
 {"id": 3, "image_id": 8, "category_id": 3, "bbox": [0, 0, 100, 100]},
 {"id": 4, "image_id": 8, "category_id": 3, "bbox": [300, 0, 100, 100], "iscrowd": 1}]}`

func TestClassesAreScoredEachAndTogether(t *testing.T) {
	a, err := eval.ReadAnnotations(strings.NewReader(annotated))
	if err != nil {
		t.Fatal(err)
	}
	// The person is found, of two cars the first, and a car where there is a crowd of them.
	dets, err := a.ReadDetections(strings.NewReader(`[
		{"image_id": 7, "category_id": 1, "bbox": [0, 0, 100, 100], "score": 0.9},
		{"image_id": 7, "category_id": 3, "bbox": [200, 0, 100, 100], "score": 0.8},
		{"image_id": 8, "category_id": 1, "bbox": [0, 0, 100, 100], "score": 0.3},
		{"image_id": 8, "category_id": 3, "bbox": [300, 0, 100, 100], "score": 0.7}]`))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, f := range a.DetectClasses(dets, 0.6, nil) {
		got += fmt.Sprintf("%s %.2f %d %d; ", f.Name, f.AP50, f.Boxes, f.Dets)
	}
	// Recall of cars reaches 1/2: 51 of 101 steps.
	car := 100 * 51.0 / 101
	if want := fmt.Sprintf("person 100.00 1 2; car %.2f 2 2; all %.2f 3 4; ", car, (100+car)/2); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	field := a.DetectClasses(dets, 0.6, func(im *eval.Image) bool { return im.Source == "field" })
	if len(field) != 2 || field[0].Name != "car" || field[1].AP50 != 0 || math.Signbit(field[1].AP50) {
		t.Errorf("in the field %+v", field)
	}
	if s := strings.Join(a.Sources(), " "); s != "field street" {
		t.Errorf("sources %s", s)
	}
}

// Two of three pictures show nothing of any class: what is seen there with enough confidence is counted, by class and
// altogether, a class that is annotated nowhere among them.
func TestFalseAlarmsAreCountedWhereNothingIs(t *testing.T) {
	a, err := eval.ReadAnnotations(strings.NewReader(`{"categories": [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}, {"id": 9, "name": "boat"}],
		"images": [{"id": 1, "file_name": "a.jpg", "source": "x"}, {"id": 2, "file_name": "b.jpg", "source": "x"}, {"id": 3, "file_name": "c.jpg", "source": "y"}],
		"annotations": [{"id": 1, "image_id": 3, "category_id": 1, "bbox": [0, 0, 100, 100]}, {"id": 2, "image_id": 3, "category_id": 3, "bbox": [0, 0, 100, 100]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	dets, err := a.ReadDetections(strings.NewReader(`[
		{"image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50], "score": 0.6},
		{"image_id": 1, "category_id": 1, "bbox": [60, 0, 50, 50], "score": 0.59},
		{"image_id": 1, "category_id": 9, "bbox": [0, 0, 50, 50], "score": 0.9},
		{"image_id": 2, "category_id": 1, "bbox": [0, 0, 50, 50], "score": 0.9},
		{"image_id": 3, "category_id": 3, "bbox": [200, 0, 50, 50], "score": 0.9}]`))
	if err != nil {
		t.Fatal(err)
	}
	told := func(pick func(*eval.Image) bool) (s string) {
		for _, f := range a.DetectClasses(dets, 0.6, pick) {
			s += fmt.Sprintf("%s %.0f; ", f.Name, f.Alarms)
		}
		return s
	}
	// Two people and a boat on two pictures, of which there are five a second.
	if got, want := told(nil), "person 18000; car 0; all 27000; "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := told(func(im *eval.Image) bool { return im.Source == "y" }), "person -1; car -1; all -1; "; got != want {
		t.Errorf("where every picture shows something: %s, want %s", got, want)
	}
}

func TestAnnotationsThatContradictThemselvesAreRefused(t *testing.T) {
	for _, c := range []struct{ old, now, want string }{
		{`"categories"`, `"kinds"`, "not a file of COCO's format"},
		{`"image_id": 8`, `"image_id": 80`, "annotations[2]: image 80 is not in the file"},
		{`"category_id": 1`, `"category_id": 2`, "annotations[0]: category 2 is not in the file"},
		{`[0, 0, 100, 100]`, `[0, 0, 100]`, "annotations[0]: bbox has 3 numbers, not 4"},
		{`[0, 0, 100, 100]`, `[0, 0, -1, 100]`, "has a negative side"},
		{`{"id": 8`, `{"id": 7`, "images[1]: id 7 is there twice"},
		{`{`, `[`, "read annotations"},
	} {
		_, err := eval.ReadAnnotations(strings.NewReader(strings.Replace(annotated, c.old, c.now, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.now, err, c.want)
		}
	}
	a, err := eval.ReadAnnotations(strings.NewReader(annotated))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{`[{"image_id": 1, "bbox": [0, 0, 1, 1]}]`, "[0]: image 1 is not annotated"},
		{`[{"image_id": 7, "bbox": []}]`, "[0]: bbox has 0 numbers"},
		{`{}`, "read detections"},
	} {
		if _, err := a.ReadDetections(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add(annotated)
	f.Add(`{"categories":[{}],"images":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := eval.ReadAnnotations(strings.NewReader(text))
		if err != nil {
			return
		}
		// What is annotated, told back with full scores, finds everything.
		dets := make([][]eval.Row, len(a.Images))
		for i := range a.Images {
			for _, r := range a.Images[i].Boxes {
				if r.Score > 0 && r.Box.Width() > 0 && r.Box.Height() > 0 && len(dets[i]) < 100 {
					dets[i] = append(dets[i], r)
				}
			}
		}
		for _, c := range a.DetectClasses(dets, 0.6, nil) {
			if math.IsNaN(c.AP) || c.AP > 100+1e-9 {
				t.Errorf("%+v", c)
			}
		}
	})
}
