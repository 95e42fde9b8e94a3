package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// Detector sees what is in pictures.
type Detector interface {
	// Detect reads a JPEG or PNG file. The rows have a box, a score and a class.
	Detect(ctx context.Context, file []byte) ([]eval.Row, error)
	// Labels are the names of the classes; nil if nobody names them.
	Labels() []string
	// Begins is the score from which its pipeline's tracker begins a track; 0: where every tracker does by itself.
	Begins() float64
	Close() error
}

// Opener starts the detector of a pipeline in a model repository. The program is the inference server, the library ONNX
// Runtime; empty leaves the choice to the opener.
type Opener func(ctx context.Context, repository, pipeline, program, library string) (Detector, error)

// server is how a detector is run.
type server struct {
	Pipeline    string `help:"Pipeline of the repository (pipeline)." default:"pipeline" placeholder:"NAME"`
	Infer       string `type:"path" help:"Inference server; the one beside this program by default." placeholder:"PROGRAM"`
	ONNXRuntime string `name:"onnxruntime" type:"path" help:"ONNX Runtime library; the shipped one by default." placeholder:"FILE"`
	Open        Opener `kong:"-"`
}

func (s *server) open(ctx context.Context, repository string) (Detector, error) {
	if s.Open == nil {
		return nil, errors.New("this program cannot run models")
	}
	return s.Open(ctx, repository, s.Pipeline, s.Infer, s.ONNXRuntime)
}

// Detect compares detections with annotations.
type Detect struct {
	Every      int     `help:"Score every K-th frame only (files of MOTChallenge's format)." default:"1" placeholder:"K"`
	JSON       string  `name:"json" help:"Also write the figures as JSON." placeholder:"FILE"`
	Models     string  `type:"path" help:"Detect with this model repository, through the product's own pipeline, instead of reading DET." placeholder:"DIR"`
	Pictures   string  `type:"path" help:"Folder of the annotated pictures; by default the one GT lies in, or img1 beside it." placeholder:"DIR"`
	Out        string  `help:"Also write the detections, in the format of GT." placeholder:"FILE"`
	Class      int     `help:"Class of the detector that a file of MOTChallenge's format is about." default:"0" placeholder:"N"`
	AlarmScore float64 `help:"Score from which a detection where nothing is annotated counts as a false alarm; by default that from which the pipeline's tracker begins a track." placeholder:"S"`
	server
	begins float64 // of the detector's pipeline

	GT  string `arg:"" help:"Annotations: frame,id,x,y,width,height,scored,class,visibility, or a .json of COCO's format."`
	Det string `arg:"" optional:"" help:"Detections: frame,-1,x,y,width,height,score, or a .json of COCO's format."`
}

// Run runs the verb.
func (v *Detect) Run(ctx context.Context, w io.Writer) error {
	if (v.Det == "") == (v.Models == "") {
		return errors.New("give either DET, a file of detections, or --models, a repository to detect with")
	}
	figures, err := v.figures(ctx)
	if err != nil {
		return err
	}
	if err := writeDetectTable(w, figures); err != nil {
		return err
	}
	if v.JSON == "" {
		return nil
	}
	return writeFile(v.JSON, func(w io.Writer) error { return eval.WriteJSON(w, figures) })
}

func (v *Detect) figures(ctx context.Context) ([]eval.DetectFigures, error) {
	if filepath.Ext(v.GT) == ".json" {
		return v.coco(ctx)
	}
	gt, err := eval.ReadRowsFile(v.GT)
	if err != nil {
		return nil, err
	}
	gt = eval.Thin(gt, v.Every)
	name := filepath.Base(filepath.Dir(v.GT))
	if v.Models == "" {
		dets, err := eval.ReadRowsFile(v.Det)
		if err != nil {
			return nil, err
		}
		return []eval.DetectFigures{eval.Detect(name, eval.Pictures(gt, eval.Thin(dets, v.Every)), v.alarmScore())}, nil
	}
	dir := v.Pictures
	if dir == "" {
		dir = filepath.Join(filepath.Dir(v.GT), "img1")
	}
	last := 0
	for i := range gt {
		last = max(last, gt[i].Frame)
	}
	var files []string
	for n := range last {
		files = append(files, filepath.Join(dir, fmt.Sprintf("%06d.jpg", n*max(v.Every, 1)+1)))
	}
	found, err := v.detect(ctx, files, nil)
	if err != nil {
		return nil, err
	}
	var dets []eval.Row
	for i, rows := range found {
		for _, r := range rows {
			if r.Class == v.Class {
				r.Frame, r.Class = i+1, -1
				dets = append(dets, r)
			}
		}
	}
	if v.Out != "" {
		if err := writeFile(v.Out, func(w io.Writer) error { return eval.WriteRows(w, dets) }); err != nil {
			return nil, err
		}
	}
	return []eval.DetectFigures{eval.Detect(name, eval.Pictures(gt, dets), v.alarmScore())}, nil
}

func (v *Detect) alarmScore() float64 {
	return cmp.Or(v.AlarmScore, v.begins, tracker.Parameters()["fresh"])
}

// coco scores pictures of several classes: a table of all of them, and of each source where the file tells sources.
func (v *Detect) coco(ctx context.Context) ([]eval.DetectFigures, error) {
	a, err := readFile(v.GT, eval.ReadAnnotations)
	if err != nil {
		return nil, err
	}
	var dets [][]eval.Row
	if v.Models == "" {
		dets, err = readFile(v.Det, a.ReadDetections)
	} else {
		dir := v.Pictures
		if dir == "" {
			dir = filepath.Dir(v.GT)
		}
		files := make([]string, len(a.Images))
		for i := range a.Images {
			files[i] = filepath.Join(dir, filepath.FromSlash(a.Images[i].File))
		}
		dets, err = v.detect(ctx, files, a)
	}
	if err != nil {
		return nil, err
	}
	if v.Out != "" {
		if err := writeFile(v.Out, func(w io.Writer) error { return writeDetections(w, a, dets) }); err != nil {
			return nil, err
		}
	}
	figures := a.DetectClasses(dets, v.alarmScore(), nil)
	if sources := a.Sources(); len(sources) > 1 {
		for _, source := range sources {
			for _, f := range a.DetectClasses(dets, v.alarmScore(), func(im *eval.Image) bool { return im.Source == source }) {
				f.Name = source + "/" + f.Name
				figures = append(figures, f)
			}
		}
	}
	return figures, nil
}

// detect runs the repository's detector on files. With annotations its classes become the categories of the same
// names, and what is none of them is left out.
func (v *Detect) detect(ctx context.Context, files []string, a *eval.Annotations) (_ [][]eval.Row, err error) {
	d, err := v.open(ctx, v.Models)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	v.begins = d.Begins()
	var ids map[int]int
	if a != nil {
		if ids, err = categories(d.Labels(), a.Categories); err != nil {
			return nil, fmt.Errorf("repository %s: %w", v.Models, err)
		}
	}
	found := make([][]eval.Row, len(files))
	for i, path := range files {
		rows, err := detectFile(ctx, d, path)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if a != nil {
				id, known := ids[r.Class]
				if !known {
					continue
				}
				r.Class = id
			}
			found[i] = append(found[i], r)
		}
	}
	return found, nil
}

func detectFile(ctx context.Context, d Detector, path string) ([]eval.Row, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rows, err := d.Detect(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// categories maps a detector's classes to categories of the same name.
func categories(labels []string, all []eval.Category) (map[int]int, error) {
	if labels == nil {
		return nil, errors.New("the detector's classes have no names: add a labels file, one name a line, and name it in its config.pbtxt as parameters[labels]")
	}
	ids := make(map[int]int)
	var missing []string
	for _, c := range all {
		i := slices.IndexFunc(labels, func(l string) bool { return strings.EqualFold(strings.TrimSpace(l), c.Name) })
		if i < 0 {
			missing = append(missing, c.Name)
			continue
		}
		ids[i] = c.ID
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the detector knows none of the annotated classes %s", strings.Join(missing, ", "))
	}
	return ids, nil
}

func readFile[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer func() { _ = f.Close() }() // only read
	v, err := read(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return v, err
}

// writeDetections writes results as COCO's tools read them.
func writeDetections(w io.Writer, a *eval.Annotations, dets [][]eval.Row) error {
	type result struct {
		Image    int64      `json:"image_id"`
		Category int        `json:"category_id"`
		Box      [4]float64 `json:"bbox"`
		Score    float64    `json:"score"`
	}
	list := []result{}
	for i, rows := range dets {
		for _, r := range rows {
			list = append(list, result{a.Images[i].ID, r.Class, [4]float64{r.Box.X1, r.Box.Y1, r.Box.Width(), r.Box.Height()}, r.Score})
		}
	}
	return json.NewEncoder(w).Encode(list)
}

func writeDetectTable(w io.Writer, figures []eval.DetectFigures) error {
	width := len("SEQUENCE")
	for i := range figures {
		width = max(width, len(figures[i].Name))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%-*s %7s %7s %7s %7s %7s %7s %7s %7s %10s %8s\n", width, "SEQUENCE", "AP", "AP50", "AP75", "APs", "APm", "APl", "AR100", "BOXES", "DETECTIONS", "ALARMS/H")
	for _, f := range figures {
		alarms := "-"
		if f.Alarms >= 0 {
			alarms = fmt.Sprintf("%.0f", f.Alarms)
		}
		fmt.Fprintf(&text, "%-*s %7.3f %7.3f %7.3f %7.3f %7.3f %7.3f %7.3f %7d %10d %8s\n",
			width, f.Name, f.AP, f.AP50, f.AP75, f.Small, f.Medium, f.Large, f.AR, f.Boxes, f.Dets, alarms)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
