// Package boxes is the backend that reads a detector's raw outputs: it knows the
// families in which detectors are exported, recognises them by the names and
// shapes of the outputs, and answers boxes in pixels of the frame.
//
//	(the detector's outputs, under their own names)
//	GEOMETRY  FP32[6]     from prepare; left out: boxes stay in the network's pixels
//	TILE      FP32[4]     from prepare, optional: the rows of a batch are parts of
//	                      one frame that show x1, y1, x2, y2 of it; what they see is
//	                      joined in one answer
//	BOXES     FP32[-1,6]  x1, y1, x2, y2, score, class; best first
//
// Parameters, all optional: family (override what is recognised), size (the
// network's input, 416 or WxH), score_threshold (0.1), class_thresholds
// ("0=0.3,2=0.5"), classes ("0,2": only these), class_map (none, one_based,
// coco91), nms (class, agnostic, none), nms_iou, top_k (300), clip (false:
// boxes may reach beyond the frame, as trackers like them),
// coordinates (network, frame: what the detector answers in).
//
// A score that is not a number and a box without area or with an infinite side
// are dropped; a score above 1 fails the request, since it shows that the
// outputs are read wrongly.
package boxes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/tracker/rows"
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the boxes backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete fills in the output and refuses outputs of a detector that fit no
// family.
func (*Backend) Complete(_ context.Context, m *backend.Model) error {
	_, err := parse(m)
	return err
}

// NewInstance makes one decoder.
func (*Backend) NewInstance(_ context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	s, err := parse(m)
	if err != nil {
		return nil, err
	}
	return &instance{settings: *s}, nil
}

type settings struct {
	family   string
	size     [2]int
	scores   []float32
	lowest   float32
	classMap string // "": the family's
	nms      string // "", class, agnostic, none
	nmsIoU   float64
	topK     int
	clip     bool
	inFrame  bool // the detector answers in frame pixels
	batching bool
	tiled    bool     // the rows of a batch are parts of one frame
	names    []string // of the heads
	plan     *plan    // when the configuration's dims are all known
}

const (
	geometry = "GEOMETRY"
	tile     = "TILE"
	output   = "BOXES"
	// maxCandidates bounds what suppression looks at; the best are kept.
	maxCandidates = 8192
	// commonIoU is the overlap above which a box yields where nobody says.
	commonIoU = 0.45
)

func parse(m *backend.Model) (*settings, error) {
	s, faults := parseParameters(m)
	c := m.Config
	s.batching = c.GetMaxBatchSize() > 0
	if len(c.GetOutput()) == 0 {
		c.Output = []*inference.ModelOutput{{Name: output, DataType: inference.DataType_TYPE_FP32, Dims: []int64{-1, rows.BoxColumns}}}
	}
	if o := c.GetOutput(); len(o) != 1 || o[0].GetName() != output || o[0].GetDataType() != inference.DataType_TYPE_FP32 ||
		!slices.Equal(o[0].GetDims(), []int64{-1, rows.BoxColumns}) {
		faults = append(faults, fmt.Errorf("output must be one %q, TYPE_FP32 [-1, %d]", output, rows.BoxColumns))
	}
	var heads []head
	known := true
	for i, in := range c.GetInput() {
		if n, own := map[string]int64{geometry: 6, tile: 4}[in.GetName()]; own {
			if in.GetDataType() != inference.DataType_TYPE_FP32 || !slices.Equal(in.GetDims(), []int64{n}) {
				faults = append(faults, fmt.Errorf("input[%d] %q: must be TYPE_FP32 [%d]", i, in.GetName(), n))
			}
			s.tiled = s.tiled || in.GetName() == tile
			continue
		}
		t, err := tensor.Parse(strings.TrimPrefix(in.GetDataType().String(), "TYPE_"))
		if err != nil {
			faults = append(faults, fmt.Errorf("input[%d] %q: %w", i, in.GetName(), err))
		}
		heads = append(heads, head{name: in.GetName(), typ: t, shape: strip(in.GetDims())})
		known = known && !slices.Contains(in.GetDims(), -1)
		s.names = append(s.names, in.GetName())
	}
	if s.tiled && !s.batching {
		faults = append(faults, errors.New("input TILE: the parts of a frame come as a batch, set max_batch_size to as many as there are"))
	}
	switch {
	case len(heads) == 0:
		faults = append(faults, errors.New("no input besides GEOMETRY: list the detector's outputs with their names and dims"))
	case known:
		p, err := recognise(heads, s.family, s.size)
		if err != nil {
			faults = append(faults, err)
		}
		s.plan = p
	case s.family != "":
		if _, err := recognise(heads, s.family, s.size); err != nil && strings.HasPrefix(err.Error(), "parameters") {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("boxes model %q: %w", m.Name, errors.Join(faults...))
	}
	return s, nil
}

func parseParameters(m *backend.Model) (*settings, []error) {
	s := &settings{family: m.Parameter("family", "")}
	var faults []error
	note := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	var err error
	if v := m.Parameter("size", ""); v != "" {
		w, h, two := strings.Cut(v, "x")
		if !two {
			h = w
		}
		var errW, errH error
		s.size[0], errW = strconv.Atoi(w)
		s.size[1], errH = strconv.Atoi(h)
		if errW != nil || errH != nil || min(s.size[0], s.size[1]) < 1 || max(s.size[0], s.size[1]) > 1<<14 {
			note(fmt.Errorf("parameters[size]: %q is neither a side nor WIDTHxHEIGHT", v))
		}
	}
	s.scores, err = thresholds(m.Parameter("score_threshold", "0.1"), m.Parameter("class_thresholds", ""), m.Parameter("classes", ""))
	note(err)
	s.lowest = slices.Min(s.scores)
	s.classMap = m.Parameter("class_map", "")
	_, err = classTable(s.classMap)
	note(err)
	choose := func(key, def string, values ...string) string {
		v := m.Parameter(key, def)
		if v != "" && !slices.Contains(values, v) {
			note(fmt.Errorf("parameters[%s]: %q is not one of %s", key, v, strings.Join(values, ", ")))
		}
		return v
	}
	s.nms = choose("nms", "", "class", "agnostic", "none")
	s.clip = choose("clip", "false", "true", "false") == "true"
	s.inFrame = choose("coordinates", "network", "network", "frame") == "frame"
	if v := m.Parameter("nms_iou", ""); v != "" {
		if s.nmsIoU, err = strconv.ParseFloat(v, 64); err != nil || !(s.nmsIoU > 0 && s.nmsIoU <= 1) {
			note(fmt.Errorf("parameters[nms_iou]: %q is not above 0 and up to 1", v))
		}
	}
	if s.topK, err = strconv.Atoi(m.Parameter("top_k", "300")); err != nil || s.topK < 1 || s.topK > maxCandidates {
		note(fmt.Errorf("parameters[top_k]: %q is not within 1 and %d", m.Parameter("top_k", ""), maxCandidates))
	}
	return s, faults
}

// strip takes leading dimensions of 1 off: the batch. A single row of a box's
// values is not mistaken for one.
func strip(shape []int64) []int64 {
	for len(shape) > 1 && shape[0] == 1 {
		if n := shape[1]; len(shape) == 2 && (n == 4 || n == 6 || n == 7) {
			break
		}
		shape = shape[1:]
	}
	return shape
}

// instance decodes one frame at a time.
type instance struct {
	settings
	d       decoder
	joined  []candidate // of all parts of a frame
	heads   []head
	half    [][]float32 // FP16 heads, widened
	current *plan
	sized   plan    // current, with the size of this frame's input
	shapes  []int64 // that current was made for
	shape   [3]int64
}

// Close has nothing to free.
func (*instance) Close() error { return nil }

// Execute decodes every frame.
func (in *instance) Execute(_ context.Context, jobs []*backend.Job) {
	backend.ExecuteEach(jobs, in.decode)
}

func (in *instance) decode(j *backend.Job, r *infer.Response) error {
	if in.tiled {
		return in.join(j, r)
	}
	if j.Batch > 1 {
		return fmt.Errorf("boxes of one frame at a time, the batch has %d", j.Batch)
	}
	kept, g, err := in.part(j, 0)
	if err != nil {
		return err
	}
	in.toFrame(kept, g)
	in.write(j, r, kept, g)
	return nil
}

// part finds the boxes in row i of the batch, in pixels of the network.
func (in *instance) part(j *backend.Job, i int) ([]candidate, [6]float32, error) {
	if err := in.read(j, i); err != nil {
		return nil, [6]float32{}, err
	}
	p, err := in.planFor()
	if err != nil {
		return nil, [6]float32{}, err
	}
	g, err := in.geometry(j, i)
	if err != nil {
		return nil, g, err
	}
	width, height := p.width, p.height
	if in.size[0] != 0 {
		width, height = in.size[0], in.size[1]
	} else if width == 0 {
		// A picture that fills the input, or lies in the middle of it.
		width = int(math.Round(float64(g[0]*g[4] + 2*max(g[2], 0))))
		height = int(math.Round(float64(g[1]*g[5] + 2*max(g[3], 0))))
	}
	in.sized = *p
	in.sized.width, in.sized.height = width, height
	in.d.found, in.d.bad = in.d.found[:0], nil
	if err := p.family.decode(&in.d, &in.sized, in.heads); err != nil {
		return nil, g, err
	}
	if in.d.bad != nil {
		return nil, g, in.d.bad
	}
	return suppress(in.d.found, in.limit(p.family.nms), in.nms == "agnostic", maxCandidates, in.topK), g, nil
}

// limit is the overlap above which a box yields where the family's is def; 0
// is none.
func (in *instance) limit(def float64) float64 {
	switch {
	case in.nms == "none":
		return 0
	case in.nmsIoU > 0:
		return in.nmsIoU
	case in.nms != "" && def == 0:
		return commonIoU
	}
	return def
}

// read opens row part of the job's heads.
func (in *instance) read(j *backend.Job, part int) error {
	in.heads = in.heads[:0]
	for i, name := range in.names {
		t := j.Input(name)
		if t == nil {
			return fmt.Errorf("the detector's output %q is missing", name)
		}
		h := head{name: name, typ: t.DataType, shape: t.Shape, data: t.Data}
		if j.Batch > 1 {
			size := len(t.Data) / j.Batch
			h.shape, h.data = h.shape[1:], h.data[part*size:][:size]
		}
		h.shape = strip(h.shape)
		switch t.DataType {
		case tensor.FP32:
			h.f = tensor.Float32s(h.data)
		case tensor.FP16:
			h.f = in.widen(i, h.data)
		case tensor.Int64, tensor.Int32:
		default:
			return fmt.Errorf("the detector's output %q is %s: FP32, FP16, INT32 and INT64 are read", name, t.DataType)
		}
		if n := h.count(); n*t.DataType.Size() != len(h.data) {
			return fmt.Errorf("the detector's output %q has %d bytes, its shape %s needs %d", name, len(h.data),
				tensor.FormatShape(h.shape), n*t.DataType.Size())
		}
		in.heads = append(in.heads, h)
	}
	return nil
}

func (in *instance) widen(i int, data []byte) []float32 {
	for len(in.half) <= i {
		in.half = append(in.half, nil)
	}
	v := tensor.View[uint16](data)
	if cap(in.half[i]) < len(v) {
		in.half[i] = make([]float32, len(v))
	}
	f := in.half[i][:len(v)]
	for k, x := range v {
		f[k] = tensor.FP16ToFloat32(x)
	}
	return f
}

// planFor returns the plan for the heads at hand; it is found anew only when
// their shapes change, as they do when another version of the detector comes.
func (in *instance) planFor() (*plan, error) {
	same := in.current != nil
	n := 0
	for i := range in.heads {
		s := in.heads[i].shape
		same = same && n+len(s) <= len(in.shapes) && slices.Equal(in.shapes[n:n+len(s)], s)
		n += len(s)
	}
	if same && n == len(in.shapes) {
		return in.current, nil
	}
	p, err := recognise(in.heads, in.family, in.size)
	if err != nil {
		in.current = nil
		return nil, err
	}
	name := in.classMap
	if name == "" {
		name = p.family.classMap
	}
	table, err := classTable(name)
	if err != nil {
		return nil, err
	}
	in.d.classMap, in.d.thresholds, in.d.lowest = table, in.scores, in.lowest
	in.current, in.shapes = p, in.shapes[:0]
	for i := range in.heads {
		in.shapes = append(in.shapes, in.heads[i].shape...)
	}
	return p, nil
}

// geometry reads how to come back to frame pixels; the identity without it.
func (in *instance) geometry(j *backend.Job, part int) ([6]float32, error) {
	g := [6]float32{1, 1, 0, 0, 0, 0}
	t := j.Input(geometry)
	if t == nil {
		if in.current.width == 0 && in.size[0] == 0 {
			return g, errors.New("this family's boxes are fractions: GEOMETRY or parameters[size] must say of what")
		}
		return g, nil
	}
	v := tensor.Float32s(t.Data)
	if len(v) != len(g)*max(1, j.Batch) {
		return g, fmt.Errorf("GEOMETRY has %d values, not %d", len(v), len(g)*max(1, j.Batch))
	}
	copy(g[:], v[len(g)*part:])
	for i, x := range g {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) || (i != 2 && i != 3 && x <= 0) {
			return g, fmt.Errorf("GEOMETRY %v is no scale, offset and size", g)
		}
	}
	return g, nil
}

// toFrame turns boxes of the network into boxes of the frame.
func (in *instance) toFrame(c []candidate, g [6]float32) {
	if in.inFrame {
		return
	}
	for i := range c {
		b := &c[i]
		b.x1, b.x2 = (b.x1-g[2])/g[0], (b.x2-g[2])/g[0]
		b.y1, b.y2 = (b.y1-g[3])/g[1], (b.y2-g[3])/g[1]
	}
}

// write answers boxes of the frame.
func (in *instance) write(j *backend.Job, r *infer.Response, kept []candidate, g [6]float32) {
	if in.clip && g[4] > 0 {
		n := 0
		for _, c := range kept {
			c.x1, c.x2 = min(max(c.x1, 0), g[4]), min(max(c.x2, 0), g[4])
			c.y1, c.y2 = min(max(c.y1, 0), g[5]), min(max(c.y2, 0), g[5])
			if c.x2 > c.x1 && c.y2 > c.y1 {
				kept[n] = c
				n++
			}
		}
		kept = kept[:n]
	}
	size := 4 * rows.BoxColumns * len(kept)
	in.shape = [3]int64{1, int64(len(kept)), rows.BoxColumns}
	shape := in.shape[1:]
	if in.batching {
		shape = in.shape[:]
	}
	dst := j.Into(output, size)
	if dst == nil {
		dst = r.Alloc(size)
	}
	r.AddView(output, tensor.FP32, shape, dst)
	for i, c := range kept {
		putRow(dst[4*rows.BoxColumns*i:], c)
	}
}

// putRow writes a box as tracker/rows lays it out.
func putRow(dst []byte, c candidate) {
	for i, v := range [...]float32{c.x1, c.y1, c.x2, c.y2, c.score, float32(c.class)} {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}
