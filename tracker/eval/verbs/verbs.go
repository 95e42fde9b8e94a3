// Package verbs is what the command line offers to measure detection and
// tracking: run a tracker over recorded detections, score its results, score
// detections.
//
// Each verb is a struct whose fields are its options and arguments, tagged for
// the command line library, with a Run that prints to the writer it is given.
package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// Eval groups the verbs under one name.
type Eval struct {
	Track  Track  `cmd:"" help:"Run a tracker over recorded detections."`
	Score  Score  `cmd:"" help:"Score tracking results against annotations: HOTA, MOTA, IDF1 and more."`
	Detect Detect `cmd:"" help:"Score detections against annotations: average precision as COCO defines it."`
	Agree  Agree  `cmd:"" help:"Check that a variant of a model (half precision, quantised) still sees what the model sees."`
}

// Track runs a tracker over a file of detections and writes what it reports.
type Track struct {
	Mode   string  `help:"conformance (the published ByteTrack) or default (the product's tracker)." default:"default" enum:"conformance,default"`
	Params string  `help:"File of key=value settings." placeholder:"FILE"`
	FPS    float64 `name:"fps" help:"Frames a second of the detections. Without it: what seqinfo.ini beside DET tells, or 30." placeholder:"N"`
	Det    string  `arg:"" help:"Detections: frame,-1,x,y,width,height,score."`
	Out    string  `arg:"" help:"Where to write frame,id,x,y,width,height,score; - is standard output."`
}

// Run runs the verb.
func (v *Track) Run(w io.Writer) error {
	var cfg tracker.Config
	mode, err := tracker.ParseMode(v.Mode)
	if err != nil {
		return err
	}
	cfg.Mode = mode
	if v.Params != "" {
		if err := readParams(v.Params, &cfg); err != nil {
			return err
		}
		cfg.Mode = mode
	}
	dets, err := eval.ReadRowsFile(v.Det)
	if err != nil {
		return err
	}
	fps := v.FPS
	if fps == 0 {
		if fps, err = rateBeside(v.Det); err != nil {
			return err
		}
	}
	out, err := eval.Follow(cfg, fps, dets)
	if err != nil {
		return err
	}
	if v.Out == "-" {
		return eval.WriteRows(w, out)
	}
	if err := writeFile(v.Out, func(f io.Writer) error { return eval.WriteRows(f, out) }); err != nil {
		return err
	}
	ids := map[int64]bool{}
	for i := range out {
		ids[out[i].ID] = true
	}
	_, err = fmt.Fprintf(w, "%s: %d boxes of %d objects from %d detections (%s, %g frames a second)\n",
		v.Out, len(out), len(ids), len(dets), mode, fps)
	return err
}

func readParams(path string, cfg *tracker.Config) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if err := eval.ReadParams(f, cfg); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// rateBeside finds the frame rate in the seqinfo.ini beside a file.
func rateBeside(path string) (float64, error) {
	const usual = 30
	info, err := eval.ReadInfoFile(filepath.Join(filepath.Dir(path), "seqinfo.ini"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return usual, nil
	case err != nil:
		return 0, err
	case info.FrameRate == 0:
		return usual, nil
	}
	return info.FrameRate, nil
}

// writeFile writes a file beside its place and moves it there when complete.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".vedette-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

// Score compares results with annotations, one row a sequence and a last row
// COMBINED over all.
type Score struct {
	Every  int    `help:"Keep every K-th annotated frame and number the kept ones from 1; the results are of those." default:"1" placeholder:"K"`
	JSON   string `name:"json" help:"Also write the figures as JSON." placeholder:"FILE"`
	CSV    string `name:"csv" help:"Also write the figures as CSV." placeholder:"FILE"`
	HTML   string `name:"html" help:"Also write a report with plots and a strip of each identity switch." placeholder:"FILE"`
	Frames string `help:"Folder of pictures for the report: SEQUENCE/img1/000001.jpg." placeholder:"DIR"`

	Store     string    `type:"path" help:"Score what an appliance kept instead of RESULTS: a backup whose cameras have the sequences' names." placeholder:"BACKUP"`
	Start     time.Time `help:"When frame 1 of every sequence was taken, for --store; by default each camera's first detection is of frame 1." placeholder:"TIME"`
	OpenStore OpenStore `kong:"-"`

	GTRoot  string `arg:"" name:"gtroot" help:"Folder of annotated sequences: SEQUENCE/gt.txt, SEQUENCE/seqinfo.ini."`
	Results string `arg:"" optional:"" help:"Folder of results: SEQUENCE.txt."`
}

// OpenStore opens a backup of an appliance's store. Its reader gives what a camera's tracks were, as lines of
// MOTChallenge's format; an empty answer is a camera that the store does not know. Start is zero if nobody told.
type OpenStore func(ctx context.Context, backup string) (read func(camera string, info eval.Info, start time.Time) ([]byte, error), closing func() error, err error)

// Run runs the verb.
func (v *Score) Run(ctx context.Context, w io.Writer) error {
	switch {
	case v.Every < 0:
		return fmt.Errorf("every: %d frames is not a step", v.Every)
	case (v.Results == "") == (v.Store == ""):
		return errors.New("give either RESULTS, a folder of tracking results, or --store, a backup of an appliance")
	}
	read := v.files
	if v.Store != "" {
		read = v.kept
	}
	sequences, err := read(ctx)
	if err != nil {
		return err
	}
	var results []*eval.Result
	for _, s := range sequences {
		r, err := eval.Score(s.name, s.gt, s.result)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	results = append(results, eval.Combine("COMBINED", results))
	figures := make([]eval.Figures, len(results))
	for i, r := range results {
		figures[i] = r.Figures()
	}
	if err := eval.WriteTable(w, figures); err != nil {
		return err
	}
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{v.JSON, func(w io.Writer) error { return eval.WriteJSON(w, figures) }},
		{v.CSV, func(w io.Writer) error { return eval.WriteCSV(w, figures) }},
		{v.HTML, func(w io.Writer) error { return v.report(w, sequences, results) }},
	} {
		if f.path == "" {
			continue
		}
		if err := writeFile(f.path, f.write); err != nil {
			return err
		}
	}
	return nil
}

// scored is one sequence with its result.
type scored struct {
	name       string
	gt, result []eval.Row
}

// files reads every result and the annotation of the same name.
func (v *Score) files(context.Context) ([]scored, error) {
	paths, err := filepath.Glob(filepath.Join(escape(v.Results), "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no results SEQUENCE.txt in %s", v.Results)
	}
	slices.Sort(paths)
	var all []scored
	for _, path := range paths {
		s := scored{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
		info, err := v.annotation(&s)
		if err != nil {
			return nil, fmt.Errorf("annotation of %s: %w", path, err)
		}
		if s.result, err = eval.ReadRowsFile(path); err != nil {
			return nil, err
		}
		if err := s.checkLength(info.Length, v.Every); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// kept reads what an appliance kept of the cameras that are annotated.
func (v *Score) kept(ctx context.Context) (all []scored, err error) {
	if v.OpenStore == nil {
		return nil, errors.New("this program cannot read an appliance's store")
	}
	if v.Every > 1 {
		return nil, errors.New("every: an appliance drops frames itself, by its cameras' analysis rate")
	}
	paths, err := filepath.Glob(filepath.Join(escape(v.GTRoot), "*", "gt.txt"))
	if err != nil {
		return nil, err
	}
	read, closing, err := v.OpenStore(ctx, v.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	slices.Sort(paths)
	for _, path := range paths {
		s := scored{name: filepath.Base(filepath.Dir(path))}
		info, err := v.annotation(&s)
		if err != nil {
			return nil, fmt.Errorf("annotation of %s: %w", s.name, err)
		}
		if info.FrameRate == 0 || info.Width == 0 || info.Height == 0 {
			return nil, fmt.Errorf("annotation of %s: seqinfo.ini must tell frameRate, imWidth and imHeight to score a store", s.name)
		}
		text, err := read(s.name, info, v.Start)
		if err != nil {
			return nil, err
		}
		if len(text) == 0 {
			continue
		}
		if s.result, err = eval.ReadRows(bytes.NewReader(text)); err != nil {
			return nil, err
		}
		if info.Length > 0 { // a camera goes on when the annotation ends
			s.result = slices.DeleteFunc(s.result, func(r eval.Row) bool { return r.Frame > info.Length })
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no camera of %s has the name of a sequence in %s", v.Store, v.GTRoot)
	}
	return all, nil
}

// annotation reads what belongs to a sequence.
func (v *Score) annotation(s *scored) (info eval.Info, err error) {
	dir := filepath.Join(v.GTRoot, s.name)
	if s.gt, err = eval.ReadRowsFile(filepath.Join(dir, "gt.txt")); err != nil {
		return info, err
	}
	s.gt = eval.Thin(s.gt, v.Every)
	if info, err = eval.ReadInfoFile(filepath.Join(dir, "seqinfo.ini")); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return info, err
}

// checkLength refuses results beyond the sequence's end: they are of another
// rate or another sequence.
func (s *scored) checkLength(length, every int) error {
	if length <= 0 {
		return nil
	}
	frames := (length-1)/max(every, 1) + 1
	for i := range s.result {
		if s.result[i].Frame > frames {
			return fmt.Errorf("results of %s: frame %d is beyond the sequence's %d frames (kept: every %d)",
				s.name, s.result[i].Frame, frames, max(every, 1))
		}
	}
	return nil
}

// escape makes a folder's name safe in a glob pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
