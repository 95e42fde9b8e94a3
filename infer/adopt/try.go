package adopt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend/boxes"
	"github.com/vedette/vedette/infer/launch"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// port is an input of the detector, the batch dimension taken off.
type port struct {
	name string
	typ  inference.DataType
	dims []int64
}

func (p port) String() string {
	return fmt.Sprintf("%s %s%s", p.name, strings.TrimPrefix(p.typ.String(), "TYPE_"), tensor.FormatShape(p.dims))
}

// try finds out what the file is, on an inference server of its own.
func (a *adoption) try(ctx context.Context) (err error) {
	s, err := launch.Start(ctx, launch.Config{Program: a.cfg.Program, Library: a.cfg.Library, Repositories: []string{a.work, a.cfg.Shipped}})
	if err != nil {
		return fmt.Errorf("try the model: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a.client = s.Client
	err = a.steps(ctx)
	select {
	case <-s.Ended(): // then whatever was under way failed
		return fmt.Errorf("try the model: %w", s.Fault())
	default:
		return err
	}
}

func (a *adoption) steps(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.open, a.ask, a.recognise, a.look, a.complete} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// load puts a model's configuration down and loads it.
func (a *adoption) load(ctx context.Context, model, config string) error {
	if err := a.write(filepath.Join(model, "config.pbtxt"), []byte(config)); err != nil {
		return err
	}
	return a.loadShipped(ctx, model)
}

func (a *adoption) loadShipped(ctx context.Context, model string) error {
	_, err := a.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: model})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// open loads the file alone: as it is, then with its batch dimension freed, then for one picture at a time.
func (a *adoption) open(ctx context.Context) error {
	name := a.part("detector")
	if err := a.load(ctx, name, detectorHead(name)); err != nil {
		return fmt.Errorf("ONNX Runtime cannot use %s: %w", a.cfg.File, err)
	}
	if err := a.signature(ctx); err != nil {
		return err
	}
	if a.batching {
		a.report.Batch = "any number of pictures at once, as it was exported"
		return nil
	}
	first := a.image.dims[0]
	if len(a.image.dims) != 4 || first != 1 {
		return fmt.Errorf("its picture input %v has no batch dimension of 1 to take pictures one by one: export it with one", a.image)
	}
	why := a.load(ctx, name, detectorHead(name)+parameter("dynamic_batch", "true"))
	if why == nil {
		a.freed = true
		a.report.Batch = "any number of pictures at once: it was exported for one, and answers the same for several"
		return a.signature(ctx)
	}
	_, reason, _ := strings.Cut(why.Error(), "dynamic_batch: ")
	a.report.Batch = "one picture at a time: " + strings.TrimRight(reason, "; \n")
	if err := a.load(ctx, name, detectorHead(name)+"max_batch_size: 1\n"+parameter("batch_of_one", "true")); err != nil {
		return fmt.Errorf("ONNX Runtime cannot use %s for one picture at a time: %w", a.cfg.File, err)
	}
	return a.signature(ctx)
}

// signature reads what the server found in the file.
func (a *adoption) signature(ctx context.Context) error {
	r, err := a.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: a.part("detector")})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	c := r.GetConfig()
	a.config, a.batching = detectorConfig{c}, c.GetMaxBatchSize() > 0
	a.image, a.extras = port{}, nil
	var all []string
	for _, in := range c.GetInput() {
		p := port{name: in.GetName(), typ: in.GetDataType(), dims: in.GetDims()}
		all = append(all, p.String())
		d := p.dims
		if !a.batching && len(d) == 4 {
			d = d[1:]
		}
		if len(d) == 3 && (d[0] == 3 || d[2] == 3) && a.image.name == "" {
			a.image = p
		} else {
			a.extras = append(a.extras, p)
		}
	}
	if a.image.name == "" {
		return fmt.Errorf("none of its inputs (%s) is a picture of three colours: it is no detector, or one for something else than pictures", strings.Join(all, ", "))
	}
	return nil
}

// ask runs the detector once on noise-free grey, so that the shapes of its answer are known whatever the file says.
func (a *adoption) ask(ctx context.Context) error {
	dims := slices.Clone(a.image.dims)
	at := 1 // of the height
	if dims[0] != 3 {
		at = 0
	}
	for i, side := range []int{a.cfg.Height, a.cfg.Width} {
		if side == 0 {
			side = 640
		}
		switch {
		case dims[at+i] < 0:
			dims[at+i] = int64(side)
		case dims[at+i] != int64(side) && a.cfg.Width != 0:
			return fmt.Errorf("its input %v is fixed: %dx%d does not fit it", a.image, a.cfg.Width, a.cfg.Height)
		}
	}
	a.image.dims = dims
	a.report.Height, a.report.Width = int(dims[at]), int(dims[at+1])
	a.report.Input = a.image.String()
	req := &v2client.Request{Model: a.part("detector")}
	for _, p := range append([]port{a.image}, a.extras...) {
		t, err := tensor.Parse(strings.TrimPrefix(p.typ.String(), "TYPE_"))
		if err != nil {
			return err
		}
		shape := append([]int64{1}, p.dims...)
		n, err := tensor.ByteSize(t, shape)
		if err != nil || n < 0 || slices.Contains(p.dims, -1) {
			return fmt.Errorf("nothing is known to put into its input %v", p)
		}
		data := make([]byte, n)
		if v, known := sizes[p.name]; known {
			data = v.data(a.report.Width, a.report.Height)
		}
		req.Inputs = append(req.Inputs, v2client.Input{Tensor: tensor.Tensor{Name: p.name, DataType: t, Shape: shape, Data: data}})
	}
	resp, err := a.client.Infer(ctx, req)
	if err != nil {
		return fmt.Errorf("it does not run: %s", status.Convert(err).Message())
	}
	for _, o := range resp.Outputs {
		a.outputs = append(a.outputs, o)
		a.report.Outputs = append(a.report.Outputs, fmt.Sprintf("%s %s%s", o.Name, o.DataType, tensor.FormatShape(o.Shape)))
	}
	return nil
}

func (a *adoption) recognise(context.Context) error {
	found, err := boxes.Recognise(a.outputs, a.cfg.Family, [2]int{a.report.Width, a.report.Height})
	if err != nil {
		return fmt.Errorf("it cannot be recognised: %w", err)
	}
	a.report.Family, a.report.Classes = found.Family, found.Classes
	for _, p := range a.extras {
		if _, known := sizes[p.name]; !known {
			return fmt.Errorf("nothing is known to put into its input %v", p)
		}
	}
	if len(a.cfg.Labels) == 0 && (found.Classes == 0 || found.Classes == len(coco()) || found.Classes >= 90 && found.Classes <= 92) {
		a.cfg.Labels = coco()
	}
	if n := found.Classes; n > 0 && n < 90 && len(a.cfg.Labels) > 0 && len(a.cfg.Labels) != n {
		return fmt.Errorf("it tells %d classes apart, and there are names for %d", n, len(a.cfg.Labels))
	}
	return nil
}
