package repository

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// sample is a warm-up request. It is its own owner and keeps nothing but the
// first error.
type sample struct {
	backend.Job
	v    *version
	ctx  context.Context //nolint:containedctx // of the load that it is part of
	req  infer.Request
	done bool
	err  error
}

// warm runs the configured samples on an instance, past the scheduler and the
// statistics.
func (v *version) warm(ctx context.Context, in *instance) error {
	for _, w := range v.cfg.GetModelWarmup() {
		if w.GetBatchSize() == 0 && v.cfg.GetMaxBatchSize() > 0 {
			continue
		}
		n := 1
		if v.cfg.GetMaxBatchSize() > 0 {
			n = int(w.GetBatchSize())
		}
		inputs, err := v.warmInputs(w)
		if err != nil {
			return err
		}
		if err := v.warmFits(inputs); err != nil {
			return fmt.Errorf("failed to run warmup sample '%s': %w", w.GetName(), err)
		}
		v.logger.Debug(fmt.Sprintf("model '%s' instance %s is running warmup sample '%s'", v.name, in.name, w.GetName())) //nolint:sloglint // suites look for the words
		for i := range inputs {
			if p := v.sig.input(inputs[i].Name); p != nil && p.reshape != nil {
				inputs[i].Shape = v.sig.reshaped(p.dims, p.reshape, inputs[i].Shape)
			}
		}
		for range w.GetCount() {
			err := context.Cause(ctx)
			if err == nil {
				err = v.warmOnce(ctx, in, inputs, n)
			}
			if err != nil {
				return fmt.Errorf("failed to run warmup sample '%s': %w", w.GetName(), err)
			}
		}
	}
	return nil
}

// warmFits checks a sample as a request is checked; controls and states are the server's in requests, but the sample's here.
func (v *version) warmFits(inputs []tensor.Tensor) error {
	var own []string
	for _, c := range v.cfg.GetSequenceBatching().GetControlInput() {
		own = append(own, c.GetName())
	}
	for _, s := range v.cfg.GetSequenceBatching().GetState() {
		own = append(own, s.GetInputName())
	}
	for _, b := range v.cfg.GetBatchInput() {
		own = append(own, b.GetTargetName()...)
	}
	var req infer.Request
	for _, t := range inputs {
		if !slices.Contains(own, t.Name) {
			req.Inputs = append(req.Inputs, t)
		}
	}
	if err := v.sig.checkNames(&req); err != nil {
		return err
	}
	for i := range req.Inputs {
		t := req.Inputs[i]
		if _, err := v.sig.checkBatch(&infer.Request{Inputs: req.Inputs[i : i+1]}); err != nil {
			return err
		}
		if err := v.sig.checkTensor(v.sig.input(t.Name), &t); err != nil {
			return err
		}
	}
	return nil
}

func (v *version) warmOnce(ctx context.Context, in *instance, inputs []tensor.Tensor, n int) error {
	var timing backend.Timing
	samples := make([]*sample, n)
	jobs := make([]*backend.Job, n)
	for i := range samples {
		s := &sample{v: v, ctx: ctx}
		s.Job = backend.Job{Request: &s.req, Inputs: slices.Clone(inputs), Batch: 1, Timing: &timing, Owner: s}
		if v.sequences {
			s.Sequence, s.Start, s.End = v.repo.sequences.Add(1), true, true
		}
		s.req.Inputs = s.Inputs
		samples[i], jobs[i] = s, &s.Job
	}
	in.model.Execute(v.repo.life(), jobs) //nolint:contextcheck // as requests are; the load's end cancels the jobs
	for _, s := range samples {
		if s.err != nil {
			return s.err
		}
		if !s.done && !v.decoupled {
			return fmt.Errorf("model '%s' gave no answer", v.name)
		}
		if in.keeper != nil && s.Sequence != 0 {
			in.keeper.EndSequence(s.Sequence, backend.CauseEnd)
		}
	}
	return nil
}

func (v *version) warmInputs(w *inference.ModelWarmup) ([]tensor.Tensor, error) {
	var out []tensor.Tensor
	for name, in := range w.GetInputs() {
		t := tensor.Tensor{Name: name, DataType: modelconfig.DataType(in.GetDataType())}
		if v.cfg.GetMaxBatchSize() > 0 {
			t.Shape = append(t.Shape, 1)
		}
		for _, d := range in.GetDims() {
			if d < 0 {
				return nil, fmt.Errorf("warmup setting expects all variable-size dimensions are specified for input '%s'", name)
			}
			t.Shape = append(t.Shape, d)
		}
		n, err := tensor.ElementCount(t.Shape)
		if err != nil || n > 1<<30 {
			return nil, fmt.Errorf("warmup sample '%s', input '%s': shape %s is too large", w.GetName(), name, tensor.FormatShape(t.Shape))
		}
		if t.Data, err = v.warmData(in, &t, int(n)); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b tensor.Tensor) int { return v.rank(a.Name) - v.rank(b.Name) })
	return out, nil
}

// rank is an input's place in the configuration; controls come after.
func (v *version) rank(input string) int {
	for i := range v.sig.inputs {
		if v.sig.inputs[i].name == input {
			return i
		}
	}
	return len(v.sig.inputs)
}

func (v *version) warmData(in *inference.ModelWarmup_Input, t *tensor.Tensor, n int) ([]byte, error) {
	size := n * t.DataType.Size()
	if t.DataType == tensor.Bytes {
		size = n * 4 // zero lengths: empty strings
	}
	file := in.GetInputDataFile()
	if file == "" {
		data := make([]byte, size)
		if in.GetRandomData() && t.DataType != tensor.Bytes {
			for i := range data {
				data[i] = byte(rand.IntN(256)) //nolint:gosec // noise to warm up with
			}
			if t.DataType == tensor.Bool {
				for i := range data {
					data[i] &= 1
				}
			}
		}
		return data, nil
	}
	if !filepath.IsLocal(file) {
		return nil, fmt.Errorf("warmup file '%s' must be inside the model's warmup directory", file)
	}
	data, err := readTensor(filepath.Join(v.plan.dir, "warmup", file), t.DataType, size)
	if err != nil {
		return nil, fmt.Errorf("warmup input '%s': %w", t.Name, err)
	}
	if t.DataType != tensor.Bytes && len(data) < size {
		return nil, fmt.Errorf("warmup setting expects %d bytes, but the data provided from %s only has %d bytes", size, file, len(data))
	}
	return data, nil
}

// NewResponse implements backend.Owner.
func (s *sample) NewResponse(*backend.Job) *infer.Response { return s.v.repo.newResponse() }

// Respond implements backend.Owner.
func (s *sample) Respond(_ *backend.Job, r *infer.Response) {
	s.done = true
	r.Release()
}

// RespondError implements backend.Owner.
func (s *sample) RespondError(j *backend.Job, err error) { s.Fail(j, err) }

// Fail implements backend.Owner.
func (s *sample) Fail(_ *backend.Job, err error) { s.done, s.err = true, err }

// Finish implements backend.Owner.
func (s *sample) Finish(*backend.Job) { s.done = true }

// Reschedule implements backend.Owner.
func (s *sample) Reschedule(*backend.Job) { s.done = true }

// Cancelled implements backend.Owner.
func (s *sample) Cancelled(*backend.Job) bool { return s.ctx.Err() != nil }

// Wants implements backend.Owner.
func (s *sample) Wants(*backend.Job, string) bool { return true }
