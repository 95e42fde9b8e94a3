package adopt

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

// size is an input that some exports want told how large the picture is. prepare fits the picture to the input, so that
// is the input's own size.
type size struct {
	from   string // the output of prepare
	typ    inference.DataType
	factor bool
}

func (s size) data(w, h int) []byte {
	if s.factor {
		return tensor.AsBytes([]float32{1, 1})
	}
	return tensor.AsBytes([]int64{int64(w), int64(h)})
}

var sizes = map[string]size{ //nolint:gochecknoglobals // a table
	"orig_target_sizes": {from: "TARGET_SIZE", typ: inference.DataType_TYPE_INT64},
	"scale_factor":      {from: "SCALE_FACTOR", typ: inference.DataType_TYPE_FP32, factor: true},
}

// detectorConfig is the detector's configuration as the server completed it.
type detectorConfig struct{ *inference.ModelConfig }

func detectorHead(name string) string {
	return fmt.Sprintf("name: %q\nplatform: \"onnxruntime_onnx\"\nbackend: \"onnxruntime\"\n", name)
}

func parameter(key, value string) string {
	return fmt.Sprintf("parameters { key: %q value { string_value: %q } }\n", key, value)
}

func dims(d []int64) string { return strings.ReplaceAll(fmt.Sprint(d), " ", ", ") }

// detector is the configuration that stays: everything the server found, written down, and who may be batched.
func (a *adoption) detector() string {
	c := a.config.ModelConfig
	out := &inference.ModelConfig{
		Name: c.GetName(), Platform: c.GetPlatform(), Backend: c.GetBackend(), MaxBatchSize: c.GetMaxBatchSize(), Input: c.GetInput(), Output: c.GetOutput(),
		InstanceGroup: []*inference.ModelInstanceGroup{{Kind: inference.ModelInstanceGroup_KIND_CPU, Count: 2}},
		Parameters:    map[string]*inference.ModelParameter{"intra_op_thread_count": {StringValue: "1"}},
	}
	for _, in := range out.GetInput() {
		if in.GetName() == a.image.name {
			in.Dims = a.image.dims
		}
	}
	switch {
	case a.freed:
		out.Parameters["dynamic_batch"] = &inference.ModelParameter{StringValue: "true"}
	case out.GetMaxBatchSize() == 1:
		out.Parameters["batch_of_one"] = &inference.ModelParameter{StringValue: "true"}
	}
	if out.GetMaxBatchSize() > 1 {
		out.MaxBatchSize = 8
		out.SchedulingChoice = &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}}
	}
	return string(modelconfig.Print(out))
}

func (a *adoption) prepare() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %q\nbackend: \"prepare\"\nmax_batch_size: 1\n", a.part("prepare"))
	b.WriteString("input [\n  { name: \"FRAME\" data_type: TYPE_UINT8 dims: [ -1 ] },\n  { name: \"FRAME_INFO\" data_type: TYPE_INT64 dims: [ 8 ] }\n]\n")
	fmt.Fprintf(&b, "output [\n  { name: \"IMAGE\" data_type: %s dims: %s },\n  { name: \"GEOMETRY\" data_type: TYPE_FP32 dims: [ 6 ] }", a.image.typ, dims(a.image.dims))
	for _, p := range a.extras {
		s := sizes[p.name]
		fmt.Fprintf(&b, ",\n  { name: %q data_type: %s dims: [ 2 ] }", s.from, s.typ)
	}
	b.WriteString("\n]\ninstance_group [ { kind: KIND_CPU count: 2 } ]\n")
	b.WriteString(parameter("family", a.report.Family) + parameter("size", fmt.Sprintf("%dx%d", a.report.Width, a.report.Height)))
	return b.String()
}

func (a *adoption) boxes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %q\nbackend: \"boxes\"\nmax_batch_size: 1\ninput [\n", a.part("boxes"))
	for _, o := range a.config.GetOutput() {
		fmt.Fprintf(&b, "  { name: %q data_type: %s dims: %s },\n", o.GetName(), o.GetDataType(), dims(a.known(o)))
	}
	b.WriteString("  { name: \"GEOMETRY\" data_type: TYPE_FP32 dims: [ 6 ] }\n]\noutput [ { name: \"BOXES\" data_type: TYPE_FP32 dims: [ -1, 6 ] } ]\n")
	b.WriteString("instance_group [ { kind: KIND_CPU count: 2 } ]\n")
	b.WriteString(parameter("family", a.report.Family) + parameter("size", fmt.Sprintf("%dx%d", a.report.Width, a.report.Height)))
	return b.String()
}

// known are an output's dims, with the sides that the file leaves open and the input decides.
func (a *adoption) known(o *inference.ModelOutput) []int64 {
	d := slices.Clone(o.GetDims())
	for i := range a.outputs {
		t := &a.outputs[i]
		if t.Name == o.GetName() && len(t.Shape) == len(d)+1 && t.Shape[1] > 0 && a.report.Classes > 0 {
			copy(d, t.Shape[1:])
		}
	}
	return d
}

// ensemble is the way of a frame up to its boxes, or, with a tracker, to its tracks.
func (a *adoption) ensemble(name string, tracked bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %q\nplatform: \"ensemble\"\nmax_batch_size: 1\n", name)
	b.WriteString(parameter("description", cmp.Or(a.cfg.Description, "imported from "+filepath.Base(a.cfg.File))))
	b.WriteString("input [\n")
	b.WriteString("  { name: \"FRAME\" data_type: TYPE_UINT8 dims: [ -1 ] },\n  { name: \"FRAME_INFO\" data_type: TYPE_INT64 dims: [ 8 ] }")
	if tracked {
		b.WriteString(",\n  { name: \"TIME\" data_type: TYPE_INT64 dims: [ 1 ] }")
	}
	b.WriteString("\n]\noutput [\n  { name: \"BOXES\" data_type: TYPE_FP32 dims: [ -1, 6 ] }")
	if tracked {
		b.WriteString(",\n  { name: \"TRACKS\" data_type: TYPE_FP32 dims: [ -1, 8 ] },\n  { name: \"TRACK_ID\" data_type: TYPE_INT64 dims: [ -1 ] }")
	}
	b.WriteString("\n]\nensemble_scheduling {\n  step [\n")
	var steps []string
	step := func(model string, in, out [][2]string) {
		var s strings.Builder
		fmt.Fprintf(&s, "    {\n      model_name: %q model_version: -1\n", model)
		for _, m := range in {
			fmt.Fprintf(&s, "      input_map { key: %q value: %q }\n", m[0], m[1])
		}
		for _, m := range out {
			fmt.Fprintf(&s, "      output_map { key: %q value: %q }\n", m[0], m[1])
		}
		steps = append(steps, s.String()+"    }")
	}
	same := func(names ...string) (pairs [][2]string) {
		for _, n := range names {
			pairs = append(pairs, [2]string{n, n})
		}
		return pairs
	}
	prepared, shown := same("IMAGE", "GEOMETRY"), [][2]string{{a.image.name, "IMAGE"}}
	for _, p := range a.extras {
		from := sizes[p.name].from
		prepared, shown = append(prepared, same(from)...), append(shown, [2]string{p.name, from})
	}
	var raw, read [][2]string
	for _, o := range a.config.GetOutput() {
		raw, read = append(raw, [2]string{o.GetName(), "RAW_" + o.GetName()}), append(read, [2]string{o.GetName(), "RAW_" + o.GetName()})
	}
	step(a.part("prepare"), same("FRAME", "FRAME_INFO"), prepared)
	step(a.part("detector"), shown, raw)
	step(a.part("boxes"), append(read, same("GEOMETRY")...), same("BOXES"))
	if tracked {
		step(tracker, same("BOXES", "TIME"), same("TRACKS", "TRACK_ID"))
	}
	b.WriteString(strings.Join(steps, ",\n") + "\n  ]\n}\n")
	if tracked && len(a.cfg.Labels) > 0 {
		b.WriteString(parameter("labels", strings.Join(a.cfg.Labels, ",")))
	}
	return b.String()
}

// coco are the names of the 80 classes that most public detectors know.
func coco() []string {
	return strings.Split("person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,bench,"+
		"bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,"+
		"baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,"+
		"broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,"+
		"microwave,oven,toaster,sink,refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush", ",")
}
