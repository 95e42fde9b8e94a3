// Package prepare is the backend that turns a decoded frame of any size into
// the input of a detector.
//
//	FRAME       UINT8[-1]   tight pixels as FRAME_INFO says
//	FRAME_INFO  INT64[8]    api/frame: format, width, height …
//	ROI         FP32[4]     optional: look at x1, y1, x2, y2 only (frame pixels)
//	IMAGE       FP32[3,H,W] what the detector wants to see
//	GEOMETRY    FP32[6]     how to come back, see below
//	TARGET_SIZE INT64[2]    optional: W, H for detectors that ask for it
//	SCALE_FACTOR FP32[2]    optional: 1, 1 for detectors that ask for it
//	PIXEL_MASK  INT64[h,w]  optional: 1 where IMAGE shows the frame, 0 where it is padded,
//	                        for detectors that ask for it
//	TILE        FP32[4]     optional: x1, y1, x2, y2 of the frame that IMAGE shows
//
// With the parameter tiles (2x2: columns and rows) a frame becomes a batch of
// overlapping parts, and of the whole unless tile_whole is false; tile_overlap
// (0.2) is the share of a part's side that its neighbour shows too. The outputs
// have a row for each, and the detector and boxes behind need a max_batch_size
// for all of them.
//
// IMAGE may also be [H,W,3], UINT8 or FP16: the configuration's output says so.
// Parameters choose a family of detectors by name and override what differs:
// family, color (bgr, rgb), resize (letterbox_topleft, letterbox, stretch), pad,
// filter (linear, area), divide, mean, std, size (416 or WxH), matrix (bt601,
// bt709, bt2020, or stream: what FRAME_INFO says). It is bt601 unless told, as it is
// in OpenCV, by which detectors are trained and judged on video.
//
// GEOMETRY is scale x, scale y, offset x, offset y, frame width, frame height:
// a point x of IMAGE is (x - offset x) / scale x of the frame.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pixels"
)

// Formats of FRAME beyond those of api/frame, for clients that have no decoder's
// output at hand.
const (
	FormatBGR     = 101 // three bytes a pixel, blue first
	FormatRGB     = 102 // three bytes a pixel, red first
	FormatGray    = 103 // one byte a pixel
	FormatEncoded = 104 // a JPEG or PNG file; width and height may be 0
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the prepare backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete fills in the tensors and refuses what cannot be made.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	_, err := parse(m)
	return err
}

// NewInstance makes one preparer.
func (*Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	s, err := parse(m)
	if err != nil {
		return nil, err
	}
	return &instance{settings: *s, resamplers: make([]pixels.Resampler, s.tiles.count())}, nil
}

// settings is a model's configuration, read.
type settings struct {
	convention  convention
	out         pixels.Output
	half        bool // IMAGE is FP16
	imageType   tensor.DataType
	batching    bool
	tiles       tiling
	extra       map[string]bool // outputs configured besides IMAGE
	imageShape  []int64
	geomShape   []int64 // of GEOMETRY
	targetShape []int64 // of TARGET_SIZE and SCALE_FACTOR
	tileShape   []int64 // of TILE
	maskShape   []int64 // of PIXEL_MASK
}

// parse reads and completes the configuration; it may be called on a complete
// one.
func parse(m *backend.Model) (*settings, error) {
	c := m.Config
	s := &settings{batching: c.GetMaxBatchSize() > 0, extra: map[string]bool{}}
	var faults []error
	var err error
	if s.convention, err = parseConvention(m.Parameter); err != nil {
		faults = append(faults, err)
	}
	w, h, err := parseSize(m.Parameter("size", ""))
	if err != nil {
		faults = append(faults, err)
	}
	if s.tiles, err = parseTiling(m.Parameter, s.batching); err != nil {
		faults = append(faults, err)
	}
	completeInputs(c)
	if err := completeOutputs(c, w, h); err != nil {
		return nil, fmt.Errorf("prepare model %q: %w", m.Name, errors.Join(append(faults, err)...))
	}
	faults = append(faults, checkInputs(c)...)
	for i, o := range c.GetOutput() {
		if err := s.output(o, w, h); err != nil {
			faults = append(faults, fmt.Errorf("output[%d] %q: %w", i, o.GetName(), err))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("prepare model %q: %w", m.Name, errors.Join(faults...))
	}
	prefix := func(dims ...int64) []int64 {
		if s.batching {
			return append([]int64{int64(s.tiles.count())}, dims...)
		}
		return dims
	}
	s.imageShape, s.geomShape, s.targetShape, s.tileShape = prefix(s.imageShape...), prefix(6), prefix(2), prefix(4)
	s.maskShape = prefix(s.maskShape...)
	return s, nil
}

// parseSize reads "416" or "640x384"; empty is 0, 0.
func parseSize(v string) (w, h int, err error) {
	if v == "" {
		return 0, 0, nil
	}
	a, b, two := strings.Cut(v, "x")
	if !two {
		b = a
	}
	w, errW := strconv.Atoi(a)
	h, errH := strconv.Atoi(b)
	if errW != nil || errH != nil || w < 1 || h < 1 || w > maxSide || h > maxSide {
		return 0, 0, fmt.Errorf("parameters[size]: %q is neither a side nor WIDTHxHEIGHT within 1 and %d", v, maxSide)
	}
	return w, h, nil
}

// maxSide bounds a network's input.
const maxSide = 4096

func completeInputs(c *inference.ModelConfig) {
	if len(c.GetInput()) > 0 {
		return
	}
	c.Input = []*inference.ModelInput{
		{Name: "FRAME", DataType: inference.DataType_TYPE_UINT8, Dims: []int64{-1}},
		{Name: "FRAME_INFO", DataType: inference.DataType_TYPE_INT64, Dims: []int64{frame.InfoLen}},
	}
}

func completeOutputs(c *inference.ModelConfig, w, h int) error {
	if len(c.GetOutput()) > 0 {
		return nil
	}
	if w == 0 {
		return errors.New("neither outputs nor parameters[size] say how large IMAGE is: set output IMAGE to dims [3, height, width]")
	}
	c.Output = []*inference.ModelOutput{
		{Name: "IMAGE", DataType: inference.DataType_TYPE_FP32, Dims: []int64{3, int64(h), int64(w)}},
		{Name: "GEOMETRY", DataType: inference.DataType_TYPE_FP32, Dims: []int64{6}},
	}
	return nil
}

func checkInputs(c *inference.ModelConfig) (faults []error) {
	want := map[string]struct {
		t        inference.DataType
		n        int64
		optional bool
	}{
		"FRAME":      {inference.DataType_TYPE_UINT8, -1, false},
		"FRAME_INFO": {inference.DataType_TYPE_INT64, frame.InfoLen, false},
		"ROI":        {inference.DataType_TYPE_FP32, 4, true},
	}
	for i, in := range c.GetInput() {
		w, known := want[in.GetName()]
		if !known {
			faults = append(faults, fmt.Errorf("input[%d] %q: not one of FRAME, FRAME_INFO, ROI", i, in.GetName()))
			continue
		}
		delete(want, in.GetName())
		if in.GetDataType() != w.t || len(in.GetDims()) != 1 || in.GetDims()[0] != w.n {
			faults = append(faults, fmt.Errorf("input[%d] %q: must be %s [%d]", i, in.GetName(), w.t, w.n))
		}
	}
	for _, name := range []string{"FRAME", "FRAME_INFO"} {
		if _, missing := want[name]; missing {
			faults = append(faults, fmt.Errorf("input %q is missing", name))
		}
	}
	return faults
}

// output reads one configured output; w and h are the size parameter.
func (s *settings) output(o *inference.ModelOutput, w, h int) error {
	vector := func(t inference.DataType, n int64) error {
		if o.GetDataType() != t || len(o.GetDims()) != 1 || o.GetDims()[0] != n {
			return fmt.Errorf("must be %s [%d]", t, n)
		}
		s.extra[o.GetName()] = true
		return nil
	}
	switch o.GetName() {
	case "GEOMETRY":
		return vector(inference.DataType_TYPE_FP32, 6)
	case "TARGET_SIZE":
		return vector(inference.DataType_TYPE_INT64, 2)
	case "SCALE_FACTOR":
		return vector(inference.DataType_TYPE_FP32, 2)
	case "TILE":
		return vector(inference.DataType_TYPE_FP32, 4)
	case "PIXEL_MASK":
		d := o.GetDims()
		if o.GetDataType() != inference.DataType_TYPE_INT64 || len(d) != 2 || min(d[0], d[1]) < 1 || max(d[0], d[1]) > maxSide {
			return fmt.Errorf("must be TYPE_INT64 [height, width] with sides within 1 and %d", maxSide)
		}
		s.maskShape = d
		s.extra[o.GetName()] = true
		return nil
	case "IMAGE":
	default:
		return errors.New("not one of IMAGE, GEOMETRY, TARGET_SIZE, SCALE_FACTOR, PIXEL_MASK, TILE")
	}
	d := o.GetDims()
	if len(d) == 4 && d[0] == 1 {
		d = d[1:]
	}
	if len(d) != 3 || (d[0] != 3 && d[2] != 3) {
		return fmt.Errorf("dims %v are neither [3, height, width] nor [height, width, 3]", o.GetDims())
	}
	interleaved := d[0] != 3
	oh, ow := d[1], d[2]
	if interleaved {
		oh, ow = d[0], d[1]
	}
	if oh < 1 || ow < 1 || oh > maxSide || ow > maxSide {
		return fmt.Errorf("sides of dims %v must be within 1 and %d: a network whose input is free needs a size here", o.GetDims(), maxSide)
	}
	if w != 0 && (int64(w) != ow || int64(h) != oh) {
		return fmt.Errorf("dims %v contradict parameters[size] %dx%d", o.GetDims(), w, h)
	}
	switch o.GetDataType() {
	case inference.DataType_TYPE_FP32:
		s.imageType = tensor.FP32
	case inference.DataType_TYPE_FP16:
		s.imageType, s.half = tensor.FP16, true
	case inference.DataType_TYPE_UINT8:
		s.imageType = tensor.Uint8
	default:
		return fmt.Errorf("data type %s is not TYPE_FP32, TYPE_FP16 or TYPE_UINT8", o.GetDataType())
	}
	s.imageShape = append([]int64(nil), o.GetDims()...)
	s.out = s.convention.output(int(ow), int(oh), s.imageType == tensor.Uint8, interleaved)
	return nil
}

// instance converts one frame at a time.
type instance struct {
	settings
	resamplers []pixels.Resampler // one a tile, each with its tables
	wide       []float32          // a picture before it is narrowed to FP16
}

// Close has nothing to free.
func (*instance) Close() error { return nil }

// Execute prepares every frame.
func (in *instance) Execute(_ context.Context, jobs []*backend.Job) {
	backend.ExecuteEach(jobs, in.prepare)
}

func (in *instance) prepare(j *backend.Job, r *infer.Response) error {
	pix, info := j.Input("FRAME"), j.Input("FRAME_INFO")
	if pix == nil || info == nil {
		return errors.New("prepare needs the inputs FRAME and FRAME_INFO")
	}
	if j.Batch > 1 {
		return fmt.Errorf("FRAME holds one picture, the batch has %d", j.Batch)
	}
	src, err := open(pix.Data, tensor.View[int64](info.Data))
	if err != nil {
		return err
	}
	defer src.close()
	crop, err := cropOf(j.Input("ROI"), src.width, src.height)
	if err != nil {
		return err
	}
	colours := in.convention.colours(src.flags)
	n := in.tiles.count()
	var images []byte
	size := in.out.Size()
	if in.half {
		size /= 2
	}
	if j.Wants("IMAGE") {
		if images = j.Into("IMAGE", n*size); images == nil {
			images = r.Alloc(n * size)
		}
		r.AddView("IMAGE", in.imageType, in.imageShape, images)
	}
	vector := func(name string, shape []int64, values int) []float32 {
		if !in.extra[name] || !j.Wants(name) {
			return nil
		}
		return tensor.View[float32](r.Add(name, tensor.FP32, shape, n*values*4))
	}
	geometry, tile, factor := vector("GEOMETRY", in.geomShape, 6), vector("TILE", in.tileShape, 4), vector("SCALE_FACTOR", in.targetShape, 2)
	for i := range factor {
		factor[i] = 1
	}
	if in.extra["TARGET_SIZE"] && j.Wants("TARGET_SIZE") {
		t := tensor.View[int64](r.Add("TARGET_SIZE", tensor.Int64, in.targetShape, n*16))
		for i := range n {
			t[2*i], t[2*i+1] = int64(in.out.Width), int64(in.out.Height)
		}
	}
	var mask []int64
	var maskH, maskW int
	if in.extra["PIXEL_MASK"] && j.Wants("PIXEL_MASK") {
		maskH, maskW = int(in.maskShape[len(in.maskShape)-2]), int(in.maskShape[len(in.maskShape)-1])
		mask = tensor.View[int64](r.Add("PIXEL_MASK", tensor.Int64, in.maskShape, n*maskH*maskW*8))
	}
	for i := range n {
		part := in.tiles.tile(i, crop)
		out := in.out
		out.Matrix = colours
		out.Picture = in.convention.place(part.W, part.H, out.Width, out.Height)
		if images != nil {
			if err := in.image(i, images[i*size:(i+1)*size], src, part, &out); err != nil {
				return err
			}
		}
		if geometry != nil {
			sx, sy := float32(out.Picture.W)/float32(part.W), float32(out.Picture.H)/float32(part.H)
			copy(geometry[6*i:], []float32{
				sx, sy, float32(out.Picture.X) - float32(part.X)*sx, float32(out.Picture.Y) - float32(part.Y)*sy,
				float32(src.width), float32(src.height),
			})
		}
		if mask != nil {
			fillMask(mask[i*maskW*maskH:], maskW, maskH, &out)
		}
		if tile != nil {
			copy(tile[4*i:], []float32{float32(part.X), float32(part.Y), float32(part.X + part.W), float32(part.Y + part.H)})
		}
	}
	return nil
}

// image makes picture i into dst.
func (in *instance) image(i int, dst []byte, src source, part pixels.Rect, out *pixels.Output) error {
	resampler := &in.resamplers[i]
	if !in.half {
		return resampler.Resample(dst, src.data, src.format, src.width, src.height, part, out)
	}
	if len(in.wide) != len(dst)/2 {
		in.wide = make([]float32, len(dst)/2)
	}
	if err := resampler.Resample(tensor.AsBytes(in.wide), src.data, src.format, src.width, src.height, part, out); err != nil {
		return err
	}
	for i, v := range in.wide {
		h := tensor.Float32ToFP16(v)
		dst[2*i], dst[2*i+1] = byte(h), byte(h>>8)
	}
	return nil
}

// fillMask marks the cells of a mask of w×h whose middle lies in the picture.
func fillMask(mask []int64, w, h int, out *pixels.Output) {
	inside := func(i, cells, side, at, length int) bool {
		middle := (2*i + 1) * side
		return middle >= 2*at*cells && middle < 2*(at+length)*cells
	}
	for y := range h {
		row := inside(y, h, out.Height, out.Picture.Y, out.Picture.H)
		for x := range w {
			mask[y*w+x] = 0
			if row && inside(x, w, out.Width, out.Picture.X, out.Picture.W) {
				mask[y*w+x] = 1
			}
		}
	}
}
