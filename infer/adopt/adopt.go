// Package adopt takes a detector that somebody exported as ONNX and makes models of it that cameras can be sent to.
//
// What the detector is, is not asked but tried: an inference server of its own loads the file, frees the batch dimension
// where that provably changes nothing, and answers a picture; the names and shapes of the answer tell the family, and
// with it how a picture has to be prepared and how the answer is read. The models are moved into the repository when the
// whole of them has found its way through a picture, so a file that does not work leaves nothing behind.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vedette/vedette/infer/detect"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// Config says what to adopt. File, Name, Repository, Shipped and Pictures are required.
type Config struct {
	// File is the ONNX file. It is copied.
	File string
	// Name is what the pipeline is to be called; its parts are NAME-prepare, NAME-detector and NAME-boxes.
	Name string
	// Description says in a line what it is; empty: the file's name.
	Description string
	// Family, when set, is not recognised but taken.
	Family string
	// Width and Height are of the detector's input, for files that leave it open; 0: 640.
	Width, Height int
	// Labels are the classes' names in their order; none: COCO's 80 where their number fits.
	Labels []string
	// Repository is where the models go; it is made when it is missing. Shipped is the repository with the tracker.
	Repository, Shipped string
	// Replace lets models of the same name be replaced.
	Replace bool
	// Program is vedette-infer; empty: the one beside this program. Library is ONNX Runtime; empty: the program's choice.
	Program, Library string
	// Pictures are the JPEG or PNG files that the detector is tried on.
	Pictures [][]byte
	// Reference is the ONNX file of the full model that one of lower precision has to agree with on the pictures. Without
	// it such a model is refused, unless it may be used Unchecked.
	Reference string
	Unchecked bool
}

// Box is something the detector saw in the picture, in the picture's pixels.
type Box struct {
	detect.Box

	Label string
}

// Report tells what the detector turned out to be.
type Report struct {
	Family string
	// Input is its picture input; Outputs what it answered to one picture.
	Input   string
	Outputs []string
	// Width and Height are of its input.
	Width, Height int
	Classes       int
	// Batch says how many pictures it takes at once, and why.
	Batch string
	// Precision is fp32, fp16 or int8; Agreement the share of boxes on which it and its reference agree, when there is one.
	Precision string
	Agreement float64
	// Boxes are what it saw in the first picture, best first.
	Boxes []Box
	// Models are the folders that were made in the repository.
	Models []string
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,47}$`)

// reserved are the shipped pipeline's.
func reserved(name string) bool {
	switch name {
	case "prepare", "detector", "boxes", "tracker", "plain-tracker", "pipeline", "demo":
		return true
	}
	return false
}

// Run adopts a detector. When it fails the repository is as it was.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if !nameForm.MatchString(cfg.Name) || reserved(cfg.Name) {
		return nil, fmt.Errorf("a model cannot be called %q: up to 48 lower-case letters, digits, _ and -, and none of the shipped names", cfg.Name)
	}
	a := &adoption{cfg: cfg, report: &Report{}}
	if err := a.vacant(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Repository, 0o755); err != nil {
		return nil, fmt.Errorf("make the model repository: %w", err)
	}
	// On the repository's file system, so that moving the models in is one step each; a dot keeps servers from looking.
	work, err := os.MkdirTemp(cfg.Repository, ".adopt-*")
	if err != nil {
		return nil, fmt.Errorf("write to the model repository: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	a.work = work
	if err := a.copyFile(); err != nil {
		return nil, err
	}
	if a.report.Precision, err = precision(cfg.File); err != nil {
		return nil, err
	}
	if err := a.try(ctx); err != nil {
		return nil, err
	}
	if err := a.compare(ctx); err != nil {
		return nil, err
	}
	return a.report, a.install()
}

// adoption is one Run under way.
type adoption struct {
	cfg    Config
	work   string // the repository under construction
	client *v2client.Client
	report *Report

	image    port   // the detector's picture input
	extras   []port // its further inputs
	batching bool
	freed    bool // by dynamic_batch
	outputs  []tensor.Tensor
	seen     [][]Box // by picture
	config   detectorConfig
}

func (a *adoption) part(of string) string { return a.cfg.Name + "-" + of }

// parts are the models' names, the pipeline last: it is the one that cameras name.
func (a *adoption) parts() []string {
	return []string{a.part("prepare"), a.part("detector"), a.part("boxes"), a.cfg.Name}
}

func (a *adoption) vacant() error {
	if a.cfg.Replace {
		return nil
	}
	for _, p := range a.parts() {
		if _, err := os.Lstat(filepath.Join(a.cfg.Repository, p)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is a model %s already in %s: give another name, or allow it to be replaced", p, a.cfg.Repository)
		}
	}
	return nil
}

// maxFile is more than ONNX's own format can hold in one file.
const maxFile = 2 << 30

func (a *adoption) copyFile() error {
	info, err := os.Stat(a.cfg.File)
	if err != nil {
		return fmt.Errorf("the model's file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() < 16 || info.Size() > maxFile {
		return fmt.Errorf("%s is no ONNX file: it has %d bytes", a.cfg.File, info.Size())
	}
	b, err := os.ReadFile(a.cfg.File)
	if err != nil {
		return fmt.Errorf("the model's file: %w", err)
	}
	if text := strings.TrimSpace(string(b[:min(len(b), 64)])); strings.HasPrefix(text, "version https://git-lfs") || strings.HasPrefix(text, "<") {
		return fmt.Errorf("%s is no ONNX file but a text, perhaps what a web server answered in its place: it begins %q", a.cfg.File, text)
	}
	return a.write(filepath.Join(a.part("detector"), "1", "model.onnx"), b)
}

// write puts a file into the repository under construction, on disk when it returns.
func (a *adoption) write(name string, b []byte) error {
	path := filepath.Join(a.work, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the models: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write the models: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the models: %w", err)
	}
	return nil
}

// install moves the models into the repository, the pipeline last. What was there under these names goes when all of the
// new is in place, and comes back when that fails.
func (a *adoption) install() (err error) {
	aside := filepath.Join(a.work, ".replaced")
	if err := os.Mkdir(aside, 0o755); err != nil {
		return fmt.Errorf("install the models: %w", err)
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("install the models: %w", err)
		for _, back := range slices.Backward(undo) {
			err = errors.Join(err, back())
		}
	}()
	for _, p := range a.parts() {
		from, to, old := filepath.Join(a.work, p), filepath.Join(a.cfg.Repository, p), filepath.Join(aside, p)
		if err := os.Rename(to, old); err == nil {
			undo = append(undo, func() error { return os.Rename(old, to) })
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Rename(to, from) })
		a.report.Models = append(a.report.Models, p)
	}
	dir, err := os.Open(a.cfg.Repository)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
