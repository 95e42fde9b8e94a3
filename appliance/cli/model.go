package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/catalogue"
	"github.com/vedette/vedette/appliance/demo/scene"
	"github.com/vedette/vedette/infer/adopt"
)

type modelCommands struct {
	List   modelList   `cmd:"" help:"List the detectors that can be had, and those that are here."`
	Pull   modelPull   `cmd:"" help:"Fetch a detector of the catalogue and make a pipeline of it."`
	Import modelImport `cmd:"" help:"Make a pipeline of a detector that was exported as ONNX."`
	Remove modelRemove `cmd:"" help:"Remove a pipeline that was pulled or imported."`
}

// modelStore says where pipelines are kept.
type modelStore struct {
	Repository string `type:"path" placeholder:"DIR" help:"Where pipelines are put; models in the data directory by default, where vedette-infer looks."`
}

func (s *modelStore) dir(g *grammar) string {
	if s.Repository != "" {
		return s.Repository
	}
	return importedModels(g.DataDir)
}

// importedModels is the model repository of what was pulled and imported.
func importedModels(dataDir string) string { return filepath.Join(dataDir, "models") }

// modelCatalogue says which catalogue.
type modelCatalogue struct {
	Catalogue string `type:"path" env:"VEDETTE_CATALOGUE" placeholder:"FILE" help:"Another catalogue than the shipped one, in its form (YAML)."`
}

func (c *modelCatalogue) read() ([]catalogue.Model, error) {
	if c.Catalogue == "" {
		return catalogue.Shipped()
	}
	f, err := os.Open(c.Catalogue)
	if err != nil {
		return nil, fmt.Errorf("--catalogue: %w", err)
	}
	defer func() { _ = f.Close() }()
	return catalogue.Read(f)
}

type modelList struct {
	modelStore
	modelCatalogue
	Output string `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Run lists the catalogue, then what else is in the repository.
func (c *modelList) Run(env *Env, g *grammar) error {
	models, err := c.read()
	if err != nil {
		return err
	}
	type entry struct {
		catalogue.Model
		Installed bool `json:"installed"`
	}
	list := make([]entry, 0, len(models))
	installed := pipelines(c.dir(g))
	for _, m := range models {
		list = append(list, entry{m, slices.Contains(installed, m.Name)})
	}
	for _, name := range installed {
		if !slices.ContainsFunc(models, func(m catalogue.Model) bool { return m.Name == name }) {
			list = append(list, entry{catalogue.Model{Name: name, Title: "imported"}, true})
		}
	}
	if c.Output == "json" {
		b, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(env.Stdout, string(b))
		return err
	}
	rows := [][]string{{"NAME", "HERE", "INPUT", "CLASSES", "SIZE", "ACCURACY", "LICENCE", "WHAT"}}
	for _, m := range list {
		here, size := "", ""
		if m.Installed {
			here = "yes"
		}
		if m.Bytes > 0 {
			size = megabytes(m.Bytes)
		}
		rows = append(rows, []string{m.Name, here, m.Input, m.Classes, size, m.Accuracy, m.Licence, m.Title})
	}
	return table(env.Stdout, rows...)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// pipelines are the names of the pipelines in a repository.
func pipelines(dir string) (names []string) {
	found, _ := filepath.Glob(filepath.Join(dir, "*-detector")) // the pattern is good
	for _, d := range found {
		name := strings.TrimSuffix(filepath.Base(d), "-detector")
		if _, err := os.Stat(filepath.Join(dir, name, "config.pbtxt")); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// modelTrial says how a detector is tried.
type modelTrial struct {
	modelStore
	Picture     []string `type:"existingfile" placeholder:"FILE" help:"JPEG or PNG to try it on; may be given several times. Pictures of the demo's street by default."`
	Out         string   `type:"path" placeholder:"FILE" help:"Where to put the first picture with what was seen drawn in; NAME.png by default."`
	Replace     bool     `help:"Replace a pipeline of the same name."`
	Unchecked   bool     `help:"Take a model of lower precision without comparing it with its reference."`
	Models      string   `type:"path" env:"VEDETTE_MODELS" placeholder:"DIR" help:"Repository with the shipped tracker."`
	Onnxruntime string   `type:"path" env:"VEDETTE_ONNXRUNTIME" placeholder:"FILE" help:"ONNX Runtime library; the shipped one by default."`
}

// adopt makes a pipeline of a file and says what became of it.
func (t *modelTrial) adopt(ctx context.Context, env *Env, g *grammar, cfg adopt.Config) error {
	cfg.Repository, cfg.Shipped, cfg.Replace, cfg.Unchecked = t.dir(g), t.Models, t.Replace, t.Unchecked
	if cfg.Shipped == "" {
		cfg.Shipped = shippedModels(env.Executable)
	}
	for _, p := range t.Picture {
		b, err := os.ReadFile(p)
		if err != nil {
			return fmt.Errorf("--picture: %w", err)
		}
		cfg.Pictures = append(cfg.Pictures, b)
	}
	if len(cfg.Pictures) == 0 {
		cfg.Pictures = streetPictures()
	}
	cfg.Program, cfg.Library = filepath.Join(filepath.Dir(env.Executable), "vedette-infer"), t.Onnxruntime
	report, err := adopt.Run(ctx, cfg)
	if err != nil {
		return err
	}
	out := t.Out
	if out == "" {
		out = cfg.Name + ".png"
	}
	drawn, err := adopt.Draw(cfg.Pictures[0], report.Boxes, 0.3)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, drawn, 0o644); err != nil {
		return fmt.Errorf("the pipeline %s is installed, but the picture cannot be written: %w (name another file with --out)", cfg.Name, err)
	}
	return t.tell(env.Stdout, cfg, report, out, t.live(ctx, g, func(ctx context.Context, models vedettev1.ModelServiceClient) error {
		for _, m := range report.Models { // the pipeline last, when its parts are what they are now
			if _, err := models.LoadModel(ctx, &vedettev1.LoadModelRequest{Name: "models/" + m}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// errNotLive says that no appliance serves the repository now.
var errNotLive = errors.New("no appliance runs with it")

// live tells the appliance that serves the repository, if it runs, what has become of its models.
func (s *modelStore) live(ctx context.Context, g *grammar, tell func(ctx context.Context, models vedettev1.ModelServiceClient) error) error {
	if s.Repository != "" && s.Repository != importedModels(g.DataDir) {
		return errNotLive
	}
	if _, err := os.Stat(appliance.LocalSocket(g.DataDir)); err != nil {
		return errNotLive
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return (&client{}).on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		return tell(ctx, vedettev1.NewModelServiceClient(conn))
	})
}

func (t *modelTrial) tell(w io.Writer, cfg adopt.Config, r *adopt.Report, picture string, live error) error {
	seen := map[string]int{}
	var order []string
	for _, b := range r.Boxes {
		if b.Score >= 0.3 {
			if seen[b.Label] == 0 {
				order = append(order, b.Label)
			}
			seen[b.Label]++
		}
	}
	for i, label := range order {
		order[i] = fmt.Sprintf("%d %s", seen[label], label)
	}
	if len(order) == 0 {
		order = []string{"nothing above a score of 0.3"}
	}
	classes := "as the labels say"
	if r.Classes > 0 {
		classes = fmt.Sprint(r.Classes)
	}
	batch, _, _ := strings.Cut(r.Batch, "\n")
	rows := [][]string{
		{"family", r.Family},
		{"input", r.Input},
		{"output", strings.Join(r.Outputs, ", ")},
		{"classes", classes},
		{"batch", batch},
		{"precision", r.Precision},
		{"saw", strings.Join(order, ", ")},
		{"picture", picture},
		{"installed", cfg.Repository + ": " + strings.Join(r.Models, ", ")},
	}
	if r.Agreement > 0 {
		rows = append(rows, []string{"agreement", fmt.Sprintf("%.1f %% of the boxes of its reference", 100*r.Agreement)})
	}
	if err := table(w, rows...); err != nil {
		return err
	}
	next := "Next:"
	switch {
	case errors.Is(live, errNotLive):
		next = "It is loaded when vedette-infer starts. Next:"
	case live != nil:
		next = fmt.Sprintf("It is not loaded yet: %v. Next: restart vedette-infer (systemctl restart vedette-infer), then", live)
	}
	_, err := fmt.Fprintf(w, "\n%s\n  vedette camera update CAMERA --pipeline %s\n", next, cfg.Name)
	return err
}

// streetPictures are some of the demo's rendered street.
func streetPictures() (pictures [][]byte) {
	s := scene.New(1)
	frame := image.NewYCbCr(image.Rect(0, 0, scene.Width, scene.Height), image.YCbCrSubsampleRatio420)
	for n := 0; n < scene.Frames; n += scene.Frames / 4 {
		const luma = scene.Width * scene.Height
		pixels := make([]byte, luma*3/2)
		s.Draw(n, pixels)
		copy(frame.Y, pixels)
		copy(frame.Cb, pixels[luma:])
		copy(frame.Cr, pixels[luma+luma/4:])
		var b bytes.Buffer
		if err := png.Encode(&b, frame); err == nil { // memory takes everything
			pictures = append(pictures, b.Bytes())
		}
	}
	return pictures
}

type modelImport struct {
	modelTrial
	File      string `arg:"" type:"existingfile" help:"The ONNX file."`
	Name      string `help:"What the pipeline is to be called; the file's name by default."`
	Family    string `help:"How its outputs are read, where they leave a choice."`
	Size      string `placeholder:"WxH" help:"Size of its input, where the file leaves it open (640x640 by default)."`
	Labels    string `type:"existingfile" placeholder:"FILE" help:"Names of its classes, one a line; COCO's where their number fits."`
	Reference string `type:"existingfile" placeholder:"FILE" help:"The full model that one of lower precision has to agree with."`
}

// Run imports the file.
func (c *modelImport) Run(ctx context.Context, env *Env, g *grammar) error {
	cfg := adopt.Config{File: c.File, Name: c.Name, Family: c.Family, Reference: c.Reference}
	if cfg.Name == "" {
		base := strings.ToLower(filepath.Base(c.File))
		cfg.Name = strings.NewReplacer(".", "-", " ", "-").Replace(strings.TrimSuffix(base, filepath.Ext(base)))
	}
	if c.Size != "" {
		if n, err := fmt.Sscanf(c.Size+" ", "%dx%d ", &cfg.Width, &cfg.Height); n != 2 || err != nil || cfg.Width < 32 || cfg.Height < 32 || cfg.Width > 4096 || cfg.Height > 4096 {
			return fmt.Errorf("--size %q is not WIDTHxHEIGHT within 32 and 4096", c.Size)
		}
	}
	if c.Labels != "" {
		b, err := os.ReadFile(c.Labels)
		if err != nil {
			return fmt.Errorf("--labels: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" {
				if strings.Contains(line, ",") {
					return fmt.Errorf("--labels: %q: a name has no comma", line)
				}
				cfg.Labels = append(cfg.Labels, line)
			}
		}
	}
	return c.adopt(ctx, env, g, cfg)
}

type modelPull struct {
	modelTrial
	modelCatalogue
	Name string `arg:"" help:"Which, as vedette model list names it."`
}

// Run fetches and imports a model, and the reference it has to agree with.
func (c *modelPull) Run(ctx context.Context, env *Env, g *grammar) error {
	models, err := c.read()
	if err != nil {
		return err
	}
	m, err := find(models, c.Name)
	if err != nil {
		return err
	}
	if !c.Replace && slices.Contains(pipelines(c.dir(g)), m.Name) {
		_, err := fmt.Fprintf(env.Stdout, "%s is here already (--replace fetches it again)\n", m.Name)
		return err
	}
	if _, err := fmt.Fprintf(env.Stdout, "%s: %s\nlicence %s, from %s\n", m.Name, m.Title, m.Licence, m.URL); err != nil {
		return err
	}
	downloads := filepath.Join(c.dir(g), ".downloads")
	file, err := pull(ctx, env, m, downloads)
	if err != nil {
		return err
	}
	cfg := adopt.Config{File: file, Name: m.Name, Description: m.Title, Family: m.Family}
	if m.Reference != "" && !c.Unchecked {
		ref, err := find(models, m.Reference)
		if err != nil {
			return err
		}
		if cfg.Reference, err = pull(ctx, env, ref, downloads); err != nil {
			return err
		}
	}
	if err := c.adopt(ctx, env, g, cfg); err != nil {
		return err
	}
	return errors.Join(os.Remove(file), removeIf(cfg.Reference))
}

func removeIf(path string) error {
	if path == "" {
		return nil
	}
	return os.Remove(path)
}

func find(models []catalogue.Model, name string) (catalogue.Model, error) {
	var names []string
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return catalogue.Model{}, fmt.Errorf("the catalogue has no %q; it has %s (vedette model list describes them)", name, strings.Join(names, ", "))
}

// pull fetches a model and shows how far it is.
func pull(ctx context.Context, env *Env, m catalogue.Model, dir string) (string, error) {
	bar := progressBar{w: env.Stderr, name: m.Name, terminal: isTerminal(env.Stderr), start: time.Now()}
	path, err := catalogue.Puller{Progress: bar.show}.Pull(ctx, m, dir)
	bar.end()
	return path, err
}

// progressBar draws itself over and over on a terminal, and tells each tenth elsewhere.
type progressBar struct {
	w        io.Writer
	name     string
	terminal bool
	start    time.Time
	shown    int // tenths, or per mille on a terminal; one more than what was shown last
	begun    int64
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (b *progressBar) show(done, total int64) {
	steps := 10
	if b.terminal {
		steps = 1000
	}
	step := int(done * int64(steps) / max(total, 1))
	if b.shown == 0 {
		b.begun = done
	}
	if step < b.shown {
		return
	}
	b.shown = step + 1
	rate := float64(done-b.begun) / max(time.Since(b.start).Seconds(), 1e-3)
	const width = 30
	full := int(done * width / max(total, 1))
	line := fmt.Sprintf("%s [%s%s] %s of %s, %s/s", b.name, strings.Repeat("=", full), strings.Repeat(" ", width-full), megabytes(done), megabytes(total), megabytes(int64(rate)))
	if b.terminal {
		_, _ = fmt.Fprintf(b.w, "\r%s\x1b[K", line)
	} else {
		_, _ = fmt.Fprintln(b.w, line)
	}
}

func (b *progressBar) end() {
	if b.terminal && b.shown > 0 {
		_, _ = fmt.Fprintln(b.w)
	}
}

type modelRemove struct {
	modelStore
	Name string `arg:"" help:"Which, as vedette model list names it."`
}

// Run removes a pipeline, the part that cameras name first.
func (c *modelRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	dir := c.dir(g)
	if !slices.Contains(pipelines(dir), c.Name) {
		return fmt.Errorf("there is no pipeline %q in %s", c.Name, dir)
	}
	var parts []string
	for _, part := range []string{"", "-boxes", "-detector", "-prepare"} {
		if err := os.RemoveAll(filepath.Join(dir, c.Name+part)); err != nil {
			return fmt.Errorf("remove the pipeline: %w", err)
		}
		parts = append(parts, c.Name+part)
	}
	err := c.live(ctx, g, func(ctx context.Context, models vedettev1.ModelServiceClient) error {
		var errs []error
		for _, m := range parts {
			_, err := models.UnloadModel(ctx, &vedettev1.UnloadModelRequest{Name: "models/" + m})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil && !errors.Is(err, errNotLive) {
		_, _ = fmt.Fprintf(env.Stderr, "it is loaded until vedette-infer starts again: %v\n", err)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s is removed; cameras that still name it say so in their state\n", c.Name)
	return err
}
