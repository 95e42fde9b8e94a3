package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vedette/vedette/tracker/eval"
)

// Judge compares two detectors on pictures, each file's boxes in turn, and says at the end whether the second may stand
// in for the first: what it found, and an error that names every limit it misses.
type Judge interface {
	Add(reference, variant []eval.Row)
	Verdict() (string, error)
}

// Agree checks a variant of a model against the model it was made from.
type Agree struct {
	server
	NewJudge func() Judge `kong:"-"`

	Reference string   `arg:"" type:"path" help:"Model repository with the model as it was."`
	Variant   string   `arg:"" type:"path" help:"Model repository with the variant."`
	Pictures  []string `arg:"" type:"path" help:"JPEG or PNG files of what the model is to detect."`
}

// Run runs the verb; it fails if the variant is not to be used.
func (v *Agree) Run(ctx context.Context, w io.Writer) (err error) {
	reference, err := v.open(ctx, v.Reference)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reference.Close()) }()
	variant, err := v.open(ctx, v.Variant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, variant.Close()) }()
	judge := v.NewJudge()
	for _, path := range v.Pictures {
		want, err := detectFile(ctx, reference, path)
		if err != nil {
			return err
		}
		got, err := detectFile(ctx, variant, path)
		if err != nil {
			return err
		}
		judge.Add(want, got)
	}
	text, verdict := judge.Verdict()
	if _, err := fmt.Fprintln(w, text); err != nil {
		return err
	}
	if verdict != nil {
		return fmt.Errorf("the variant is not to be used: %w", verdict)
	}
	return nil
}
