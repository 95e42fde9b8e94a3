// Package image is the backend that opens picture files, so that a client of an
// ensemble can send the JPEG it has.
//
//	(any name)  STRING[1]    the file: JPEG or PNG; one per row of a batch
//	(any name)  [3,H,W] or [H,W,3], FP32 or UINT8: the picture, red first
//	SIZE        INT64[2]     optional: width, height of the file
//
// An output with free sides keeps the file's size. Parameters: scaling (none,
// 0 … 255; unit, 0 … 1; inception, -1 … 1; vgg, mean subtracted), color (rgb, bgr).
package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	stdimage "image"
	_ "image/jpeg" // only its header parser is used
	_ "image/png"  // only its header parser is used
	"slices"

	"gocv.io/x/gocv"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the image backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete refuses a configuration that cannot work.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	_, err := parse(m)
	return err
}

// NewInstance makes one opener of files.
func (*Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	return parse(m)
}

// instance opens one file at a time.
type instance struct {
	input, output string
	typ           tensor.DataType
	interleaved   bool
	width, height int // 0: the file's
	bgr           bool
	scale         float32
	bias          [3]float32 // red, green, blue
	size          bool
	batching      bool
}

const sizeOutput = "SIZE"

func parse(m *backend.Model) (*instance, error) {
	c := m.Config
	in := &instance{batching: c.GetMaxBatchSize() > 0, scale: 1}
	var faults []error
	if i := c.GetInput(); len(i) != 1 || i[0].GetDataType() != inference.DataType_TYPE_STRING || !slices.Equal(i[0].GetDims(), []int64{1}) {
		faults = append(faults, errors.New("input must be one TYPE_STRING [1], the file"))
	} else {
		in.input = i[0].GetName()
	}
	for i, o := range c.GetOutput() {
		if o.GetName() == sizeOutput {
			in.size = true
			if o.GetDataType() != inference.DataType_TYPE_INT64 || !slices.Equal(o.GetDims(), []int64{2}) {
				faults = append(faults, fmt.Errorf("output[%d] %q: must be TYPE_INT64 [2]", i, sizeOutput))
			}
			continue
		}
		if in.output != "" {
			faults = append(faults, fmt.Errorf("output[%d] %q: there is one picture, %q", i, o.GetName(), in.output))
		}
		if err := in.picture(o); err != nil {
			faults = append(faults, fmt.Errorf("output[%d] %q: %w", i, o.GetName(), err))
		}
	}
	if in.output == "" {
		faults = append(faults, errors.New("no output for the picture"))
	}
	switch v := m.Parameter("scaling", "none"); v {
	case "none":
	case "unit":
		in.scale = 1. / 255
	case "inception":
		in.scale, in.bias = 1/127.5, [3]float32{-1, -1, -1}
	case "vgg":
		in.bias = [3]float32{-123, -117, -104}
	default:
		faults = append(faults, fmt.Errorf("parameters[scaling]: %q is not one of none, unit, inception, vgg", v))
	}
	switch v := m.Parameter("color", "rgb"); v {
	case "rgb":
	case "bgr":
		in.bgr = true
	default:
		faults = append(faults, fmt.Errorf("parameters[color]: %q is not one of rgb, bgr", v))
	}
	if in.batching && in.width == 0 && c.GetMaxBatchSize() > 1 {
		faults = append(faults, errors.New("pictures of their own sizes cannot share a batch: give the output fixed sides or max_batch_size 1"))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("image model %q: %w", m.Name, errors.Join(faults...))
	}
	return in, nil
}

// maxSide bounds what an output may ask for, maxPixels what a small file may
// unfold into.
const (
	maxSide   = 8192
	maxPixels = 64 << 20
)

func (in *instance) picture(o *inference.ModelOutput) error {
	in.output = o.GetName()
	switch o.GetDataType() {
	case inference.DataType_TYPE_FP32:
		in.typ = tensor.FP32
	case inference.DataType_TYPE_UINT8:
		in.typ = tensor.Uint8
	default:
		return fmt.Errorf("data type %s is not TYPE_FP32 or TYPE_UINT8", o.GetDataType())
	}
	d := o.GetDims()
	if len(d) != 3 || (d[0] != 3 && d[2] != 3) {
		return fmt.Errorf("dims %v are neither [3, height, width] nor [height, width, 3]", d)
	}
	in.interleaved = d[0] != 3
	h, w := d[1], d[2]
	if in.interleaved {
		h, w = d[0], d[1]
	}
	switch {
	case h == -1 && w == -1:
	case h < 1 || w < 1 || h > maxSide || w > maxSide:
		return fmt.Errorf("sides of dims %v must both be -1 or within 1 and %d", d, maxSide)
	default:
		in.width, in.height = int(w), int(h)
	}
	return nil
}

// Close has nothing to free.
func (*instance) Close() error { return nil }

// Execute opens every file.
func (in *instance) Execute(_ context.Context, jobs []*backend.Job) {
	backend.ExecuteEach(jobs, in.open)
}

func (in *instance) open(j *backend.Job, r *infer.Response) error {
	t := j.Input(in.input)
	if t == nil {
		return fmt.Errorf("input %q is missing", in.input)
	}
	batch := max(1, j.Batch)
	var pixels []byte
	var sizes []int64
	k := 0
	for file, err := range tensor.Elements(t.Data) {
		if err != nil {
			return fmt.Errorf("input %q: %w", in.input, err)
		}
		if k == batch {
			return fmt.Errorf("input %q has more than %d files", in.input, batch)
		}
		m, err := decode(file)
		if err != nil {
			return fmt.Errorf("file %d: %w", k, err)
		}
		w, h := m.Cols(), m.Rows()
		sizes = append(sizes, int64(w), int64(h))
		if in.width != 0 && (w != in.width || h != in.height) {
			err = gocv.Resize(m, &m, stdimage.Pt(in.width, in.height), 0, 0, gocv.InterpolationLinear)
			w, h = in.width, in.height
		}
		if err == nil {
			pixels, err = in.store(j, r, pixels, m, k, batch, w, h)
		}
		_ = m.Close() // frees memory, cannot fail
		if err != nil {
			return fmt.Errorf("file %d: %w", k, err)
		}
		k++
	}
	if k != batch {
		return fmt.Errorf("input %q has %d files for a batch of %d", in.input, k, batch)
	}
	if in.size && j.Wants(sizeOutput) {
		copy(r.Add(sizeOutput, tensor.Int64, in.shape(batch, 2), 8*len(sizes)), tensor.AsBytes(sizes))
	}
	return nil
}

func (in *instance) shape(batch int, dims ...int64) []int64 {
	if !in.batching {
		return dims
	}
	return append([]int64{int64(batch)}, dims...)
}

// decode unpacks a file whose header promises a bearable size.
func decode(file []byte) (gocv.Mat, error) {
	c, _, err := stdimage.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return gocv.Mat{}, fmt.Errorf("neither JPEG nor PNG: %w", err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width*c.Height > maxPixels {
		return gocv.Mat{}, fmt.Errorf("a picture of %d×%d pixels, at most %d are decoded", c.Width, c.Height, maxPixels)
	}
	m, err := gocv.IMDecode(file, gocv.IMReadColor)
	if err != nil {
		return gocv.Mat{}, fmt.Errorf("the picture is damaged: %w", err)
	}
	if m.Empty() {
		_ = m.Close() // frees memory, cannot fail
		return gocv.Mat{}, errors.New("the picture is damaged: it could not be decoded")
	}
	return m, nil
}

// store writes picture k of a batch; the first makes the output.
func (in *instance) store(j *backend.Job, r *infer.Response, pixels []byte, m gocv.Mat, k, batch, w, h int) ([]byte, error) {
	if !j.Wants(in.output) {
		return nil, nil
	}
	n := 3 * w * h
	size := n * in.typ.Size()
	if k == 0 {
		if pixels = j.Into(in.output, size*batch); pixels == nil {
			pixels = r.Alloc(size * batch)
		}
		dims := []int64{3, int64(h), int64(w)}
		if in.interleaved {
			dims = []int64{int64(h), int64(w), 3}
		}
		r.AddView(in.output, in.typ, in.shape(batch, dims...), pixels)
	}
	src, err := m.DataPtrUint8()
	if err != nil {
		return nil, err
	}
	dst := pixels[k*size:][:size]
	var floats []float32
	if in.typ == tensor.FP32 {
		floats = make([]float32, n)
	}
	for i := range w * h {
		for c := range 3 {
			from := 2 - c // pixels come blue first
			if in.bgr {
				from = c
			}
			to := c*w*h + i
			if in.interleaved {
				to = 3*i + c
			}
			v := src[3*i+from]
			if floats == nil {
				dst[to] = v
			} else {
				floats[to] = float32(v)*in.scale + in.bias[2-from]
			}
		}
	}
	if floats != nil {
		copy(dst, tensor.AsBytes(floats))
	}
	return pixels, nil
}
