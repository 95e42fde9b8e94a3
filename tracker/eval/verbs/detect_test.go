package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/eval/verbs"
)

// reader is a detector of pictures that say what is in them: a class of the detector a byte.
type reader struct {
	labels []string
	blind  bool
	closed *int
}

func (r reader) Labels() []string { return r.labels }
func (r reader) Begins() float64  { return 0 }
func (r reader) Close() error     { *r.closed++; return nil }

func (r reader) Detect(_ context.Context, file []byte) ([]eval.Row, error) {
	if string(file) == "damaged" {
		return nil, errors.New("the picture is damaged")
	}
	var rows []eval.Row
	for i, b := range file {
		if !r.blind {
			x := float64(100 * i)
			rows = append(rows, eval.Row{Box: tracker.Box{X1: x, X2: x + 50, Y2: 50}, Score: 0.9, Class: int(b - '0')})
		}
	}
	return rows, nil
}

// street has two pictures, each with what its file says.
func street(t *testing.T) (dir, gt string) {
	t.Helper()
	dir = t.TempDir()
	gt = filepath.Join(dir, "val.json")
	write(t, filepath.Join(dir, "a.jpg"), "02")
	write(t, filepath.Join(dir, "b.jpg"), "21")
	write(t, gt, `{"categories": [{"id": 5, "name": "person"}, {"id": 6, "name": "car"}],
		"images": [{"id": 1, "file_name": "a.jpg", "source": "x"}, {"id": 2, "file_name": "b.jpg", "source": "y"}],
		"annotations": [{"image_id": 1, "category_id": 5, "bbox": [0, 0, 50, 50]}, {"image_id": 1, "category_id": 6, "bbox": [100, 0, 50, 50]},
		{"image_id": 2, "category_id": 6, "bbox": [0, 0, 50, 50]}]}`)
	return dir, gt
}

func TestARepositoryIsScoredOnAnnotatedPictures(t *testing.T) {
	dir, gt := street(t)
	closed := 0
	v := verbs.Detect{GT: gt, Models: "models", Out: filepath.Join(dir, "dets.json")}
	v.Open = func(_ context.Context, repository, _, program, library string) (verbs.Detector, error) {
		if repository != "models" || program != "" || library != "" {
			t.Errorf("opened %q %q %q", repository, program, library)
		}
		return reader{labels: []string{"Person", "unicorn", "car"}, closed: &closed}, nil
	}
	var out bytes.Buffer
	if err := v.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 9 || closed != 1 {
		t.Fatalf("closed %d times, printed\n%s", closed, out.String())
	}
	for i, want := range []string{"SEQUENCE AP", "person 100.000", "car 100.000", "all 100.000", "x/person", "x/car", "x/all", "y/car", "y/all"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %s", i, got, want)
		}
	}
	// What was written is read again with the same result.
	var again bytes.Buffer
	read := verbs.Detect{GT: gt, Det: v.Out}
	if err := read.Run(t.Context(), &again); err != nil || again.String() != out.String() {
		t.Errorf("%v\n%s\nwant\n%s", err, again.String(), out.String())
	}
}

func TestWhatCannotBeScoredIsRefused(t *testing.T) {
	dir, gt := street(t)
	closed := 0
	open := func(labels ...string) verbs.Opener {
		return func(context.Context, string, string, string, string) (verbs.Detector, error) {
			return reader{labels: labels, closed: &closed}, nil
		}
	}
	for _, c := range []struct {
		name string
		v    verbs.Detect
		open verbs.Opener
		want string
	}{
		{"neither", verbs.Detect{GT: gt}, nil, "give either DET"},
		{"both", verbs.Detect{GT: gt, Det: gt, Models: "m"}, nil, "give either DET"},
		{"no program", verbs.Detect{GT: gt, Models: "m"}, nil, "cannot run models"},
		{"classes without names", verbs.Detect{GT: gt, Models: "m"}, open(), "parameters[labels]"},
		{"other classes", verbs.Detect{GT: gt, Models: "m"}, open("boat"), "none of the annotated classes person, car"},
		{"pictures that are not there", verbs.Detect{GT: gt, Models: "m", Pictures: filepath.Join(dir, "none")}, open("car"), "no such file"},
	} {
		c.v.Open = c.open
		if err := c.v.Run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if closed != 3 {
		t.Errorf("%d detectors were closed, want 3", closed)
	}
}

// count is a judge that wants as many boxes from both.
type count struct{ reference, variant int }

func (c *count) Add(reference, variant []eval.Row) {
	c.reference, c.variant = c.reference+len(reference), c.variant+len(variant)
}

func (c *count) Verdict() (string, error) {
	if c.reference != c.variant {
		return "counted", errors.New("boxes are missing")
	}
	return "counted", nil
}

func TestAVariantThatSeesLessIsNotToBeUsed(t *testing.T) {
	dir, _ := street(t)
	write(t, filepath.Join(dir, "c.jpg"), "damaged")
	closed := 0
	run := func(variant string, pictures ...string) (string, error) {
		v := verbs.Agree{Reference: "full", Variant: variant, NewJudge: func() verbs.Judge { return new(count) }}
		for _, p := range pictures {
			v.Pictures = append(v.Pictures, filepath.Join(dir, p))
		}
		v.Open = func(_ context.Context, repository, _, _, _ string) (verbs.Detector, error) {
			if repository == "gone" {
				return nil, os.ErrNotExist
			}
			return reader{blind: repository == "blind", closed: &closed}, nil
		}
		var out bytes.Buffer
		err := v.Run(t.Context(), &out)
		return out.String(), err
	}
	if out, err := run("half", "a.jpg", "b.jpg"); err != nil || out != "counted\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run("blind", "a.jpg"); err == nil || !strings.Contains(err.Error(), "not to be used: boxes are missing") || out != "counted\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := run("half", "c.jpg"); err == nil || !strings.Contains(err.Error(), "c.jpg: the picture is damaged") {
		t.Error(err)
	}
	if _, err := run("gone", "a.jpg"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if closed != 7 {
		t.Errorf("%d detectors were closed, want 7", closed)
	}
}
