package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/vedette/vedette/infer/detect"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
	"github.com/vedette/vedette/tracker/eval/verbs"
)

// evalVerbs are the verbs that measure, able to run the detectors of model repositories with the inference server beside
// executable.
func evalVerbs(executable string) *verbs.Eval {
	open := func(ctx context.Context, repository, pipeline, program, library string) (verbs.Detector, error) {
		if program == "" {
			program = filepath.Join(filepath.Dir(executable), "vedette-infer")
		}
		d, err := detect.Open(ctx, detect.Config{Program: program, Library: library, Repository: repository, Pipeline: pipeline})
		if err != nil {
			return nil, err
		}
		return detector{d}, nil
	}
	v := new(verbs.Eval)
	v.Detect.Open, v.Agree.Open, v.Score.OpenStore = open, open, openBackup
	v.Agree.NewJudge = func() verbs.Judge { return new(judge) }
	return v
}

// detector is a detect.Detector in the evaluator's words.
type detector struct{ *detect.Detector }

func (d detector) Labels() []string { return d.Detector.Labels }

func (d detector) Begins() float64 { return d.Detector.Begins }

func (d detector) Detect(ctx context.Context, file []byte) ([]eval.Row, error) {
	found, err := d.Detector.Detect(ctx, file)
	rows := make([]eval.Row, len(found))
	for i, b := range found {
		rows[i] = eval.Row{ID: -1, Box: tracker.Box{X1: b.X1, Y1: b.Y1, X2: b.X2, Y2: b.Y2}, Score: b.Score, Class: b.Class, Visibility: 1}
	}
	return rows, err
}

// judge is detect.Agreement in the evaluator's words.
type judge struct{ detect.Agreement }

func (j *judge) Add(reference, variant []eval.Row) {
	boxes := func(rows []eval.Row) []detect.Box {
		all := make([]detect.Box, len(rows))
		for i, r := range rows {
			all[i] = detect.Box{X1: r.Box.X1, Y1: r.Box.Y1, X2: r.Box.X2, Y2: r.Box.Y2, Score: r.Score, Class: r.Class}
		}
		return all
	}
	j.Agreement.Add(boxes(reference), boxes(variant))
}

func (j *judge) Verdict() (string, error) {
	return fmt.Sprintf("%d pictures: %.1f %% of %d boxes are seen by both, overlap %.3f, scores differ by %.3f",
		j.Pictures, 100*j.Share(), j.Boxes, j.IoU, j.Score), j.Check()
}
