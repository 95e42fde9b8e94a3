// Package detect runs a model repository's detector on single pictures, outside of any camera: evaluation, the import
// of models and the accuracy check of their variants share it.
//
// It starts an inference server of its own on the repository and gives it an ensemble with the pipeline's steps before
// the tracker, so that a picture goes the way of a camera's frame.
package detect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/launch"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// encoded is the format of a FRAME that is a JPEG or PNG file (see infer/backend/prepare).
const encoded = 104

// Config says what to run. Repository is required.
type Config struct {
	// Program is vedette-infer; empty: the one beside this program.
	Program string
	// Library is ONNX Runtime; empty: the program finds it beside itself.
	Library string
	// Repository is the folder of models.
	Repository string
	// Pipeline is the ensemble in it that takes FRAME and FRAME_INFO and answers BOXES; empty: pipeline.
	Pipeline string
	// Log receives what the server prints; nil: discarded.
	Log io.Writer
}

// Box is one detection, in pixels of the picture.
type Box struct {
	X1, Y1, X2, Y2 float64
	Score          float64 // 0 to 1
	Class          int
}

// Detector is a running server. Not safe for concurrent use.
type Detector struct {
	// Labels are the names of the classes; nil if the repository has none.
	Labels []string
	// Begins is the score from which the pipeline's tracker begins a track, as its configuration says; 0: it leaves that
	// to the tracker.
	Begins float64

	dir    string
	server *launch.Server
}

const (
	name        = "vedette-detect" // of the ensemble that is served
	boxesOutput = "BOXES"
)

// Open starts a server and returns when the detector answers; ctx bounds that alone.
func Open(ctx context.Context, cfg Config) (_ *Detector, err error) {
	if cfg.Pipeline == "" {
		cfg.Pipeline = "pipeline"
	}
	ensemble, labels, begins, err := untilBoxes(cfg.Repository, cfg.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", cfg.Repository, err)
	}
	d := &Detector{Labels: labels, Begins: begins}
	if d.dir, err = os.MkdirTemp("", "vedette-detect-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	text, err := prototext.Marshal(ensemble)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(d.dir, name, "1"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.dir, name, "config.pbtxt"), text, 0o600); err != nil {
		return nil, err
	}
	d.server, err = launch.Start(ctx, launch.Config{
		Program: cfg.Program, Library: cfg.Library, Repositories: []string{cfg.Repository, d.dir}, Load: []string{name}, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", cfg.Repository, err)
	}
	return d, nil
}

// Detect returns what the detector sees in a JPEG or PNG file, best first.
func (d *Detector) Detect(ctx context.Context, file []byte) ([]Box, error) {
	return See(ctx, d.server.Client, name, file)
}

// See asks a model that takes FRAME and FRAME_INFO and answers BOXES what it sees in a JPEG or PNG file.
func See(ctx context.Context, client *v2client.Client, model string, file []byte) ([]Box, error) {
	var info [frame.InfoLen]int64
	info[frame.InfoFormat] = encoded
	resp, err := client.Infer(ctx, &v2client.Request{Model: model, Inputs: []v2client.Input{
		{Tensor: tensor.Tensor{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(len(file))}, Data: file}},
		{Tensor: tensor.Tensor{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{1, frame.InfoLen}, Data: tensor.AsBytes(info[:])}},
	}})
	if err != nil {
		return nil, errors.New(status.Convert(err).Message())
	}
	out := resp.Output(boxesOutput)
	if out == nil {
		return nil, errors.New("there are no BOXES in the answer")
	}
	const columns = 6
	rows := tensor.Float32s(out.Data)
	found := make([]Box, 0, len(rows)/columns)
	for ; len(rows) >= columns; rows = rows[columns:] {
		found = append(found, Box{
			X1: float64(rows[0]), Y1: float64(rows[1]), X2: float64(rows[2]), Y2: float64(rows[3]),
			Score: float64(rows[4]), Class: int(rows[5]),
		})
	}
	return found, nil
}

// Close stops the server and removes what was written for it.
func (d *Detector) Close() error {
	var faults []error
	if d.server != nil {
		faults = append(faults, d.server.Close())
	}
	return errors.Join(append(faults, os.RemoveAll(d.dir))...)
}

// untilBoxes reads an ensemble and keeps the steps that BOXES needs. The labels are those that a step's configuration
// names; begins is of the step that is left out because it makes tracks.
func untilBoxes(repository, pipeline string) (_ *inference.ModelConfig, labels []string, begins float64, err error) {
	c, err := readConfig(repository, pipeline)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, s := range c.GetEnsembleScheduling().GetStep() {
		if s.GetOutputMap()["TRACKS"] == "" {
			continue
		}
		m, err := readConfig(repository, s.GetModelName())
		if err != nil {
			continue // of another repository, or not there: measuring boxes needs none
		}
		begins, _ = strconv.ParseFloat(m.GetParameters()["fresh"].GetStringValue(), 64)
	}
	// A step comes after those whose tensors it takes only by chance; look until nothing more is needed.
	needed, kept := map[string]bool{boxesOutput: true}, map[*inference.ModelEnsembling_Step]bool{}
	for grown := true; grown; {
		grown = false
		for _, s := range c.GetEnsembleScheduling().GetStep() {
			for _, made := range s.GetOutputMap() {
				if !needed[made] || kept[s] {
					continue
				}
				kept[s], grown = true, true
				for _, t := range s.GetInputMap() {
					needed[t] = true
				}
			}
		}
	}
	steps := slices.DeleteFunc(c.GetEnsembleScheduling().GetStep(), func(s *inference.ModelEnsembling_Step) bool { return !kept[s] })
	if len(steps) == 0 {
		return nil, nil, 0, fmt.Errorf("model %s is no ensemble of a detector's steps that makes %s", pipeline, boxesOutput)
	}
	c.GetEnsembleScheduling().Step = steps
	c.Name = name
	c.Input = slices.DeleteFunc(c.Input, func(in *inference.ModelInput) bool { return !needed[in.GetName()] })
	c.Output = slices.DeleteFunc(c.Output, func(out *inference.ModelOutput) bool { return out.GetName() != boxesOutput })
	labels, err = readLabels(filepath.Join(repository, pipeline), c)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, s := range steps {
		m, err := readConfig(repository, s.GetModelName())
		if err != nil {
			return nil, nil, 0, err
		}
		if labels == nil {
			if labels, err = readLabels(filepath.Join(repository, s.GetModelName()), m); err != nil {
				return nil, nil, 0, err
			}
		}
	}
	return c, labels, begins, nil
}

func readConfig(repository, model string) (*inference.ModelConfig, error) {
	path := filepath.Join(repository, model, "config.pbtxt")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// readLabels reads what a model's parameter labels holds, names with commas between or the name of a file of one a line,
// or the file of an output's label_filename.
func readLabels(dir string, c *inference.ModelConfig) ([]string, error) {
	file := c.GetParameters()["labels"].GetStringValue()
	for _, out := range c.GetOutput() {
		if file == "" {
			file = out.GetLabelFilename()
		}
	}
	switch {
	case file == "":
		return nil, nil
	case strings.Contains(file, ","):
		return strings.Split(file, ","), nil
	}
	b, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), nil
}
