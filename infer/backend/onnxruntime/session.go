package onnxruntime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
)

// runner is what a session does; an accelerator that fails is tried out with another one than ONNX Runtime's.
type runner interface {
	RunWithOptions(inputs, outputs []ort.Value, options *ort.RunOptions) error
	Destroy() error
}

// opener loads a graph on execution providers.
type opener func(m *backend.Model, at backend.Placement, path string, inputs, outputs []string, use []provider) (*session, error)

// session is one loaded graph with the names it is run by.
type session struct {
	run     runner
	inputs  []string
	outputs []string
	// provider is where it really runs.
	provider string
	absent   uint64 // the optional inputs it does without
}

func (s *session) close() error {
	if err := s.run.Destroy(); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// provider is an execution provider and its options.
type provider struct {
	name    string // as the configuration spells it, in lower case
	options map[string]string
}

// providers lists what the configuration asks for, best first; empty is the CPU.
func providers(m *backend.Model, at backend.Placement) ([]provider, error) {
	acc := m.Config.GetOptimization().GetExecutionAccelerators()
	var list []provider
	add := func(as []*inference.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator, known ...string) error {
		for _, a := range as {
			name := strings.ToLower(a.GetName())
			if !slices.Contains(known, name) {
				return refuse("unknown Execution Accelerator '%s' is requested", a.GetName())
			}
			list = append(list, provider{name, a.GetParameters()})
		}
		return nil
	}
	if at.Kind == inference.ModelInstanceGroup_KIND_GPU {
		if err := add(acc.GetGpuExecutionAccelerator(), "tensorrt", "cuda", "webgpu", "openvino"); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list, func(p provider) bool { return p.name != "tensorrt" }) {
			list = append(list, provider{name: "cuda"})
		}
	}
	if err := add(acc.GetCpuExecutionAccelerator(), "openvino", "webgpu", "xnnpack"); err != nil {
		return nil, err
	}
	return list, nil
}

// newSession loads the graph. Accelerators must all be taken: a session that
// quietly runs elsewhere is for the caller to decide.
func newSession(m *backend.Model, at backend.Placement, path string, inputs, outputs []string, use []provider) (*session, error) {
	o, err := options(m, at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = o.Destroy() }() // frees memory, cannot fail
	names := make([]string, 0, len(use))
	for _, p := range use {
		if err := appendProvider(o, p, at.GPU); err != nil {
			return nil, fmt.Errorf("execution provider %s: %w", p.name, err)
		}
		names = append(names, p.name)
	}
	s, err := openSession(m, path, inputs, outputs, o)
	if err != nil {
		return nil, err
	}
	return &session{run: s, inputs: inputs, outputs: outputs, provider: strings.Join(append(names, "cpu"), ",")}, nil
}

// openSession reads the file, changed where the model asks for it or an output needs it.
func openSession(m *backend.Model, path string, inputs, outputs []string, o *ort.SessionOptions) (*ort.DynamicAdvancedSession, error) {
	var wide []string
	for _, name := range outputs {
		if of, is := strings.CutSuffix(name, wideSuffix); is {
			wide = append(wide, of)
		}
	}
	if !freed(m) && wide == nil {
		return ort.NewDynamicAdvancedSession(path, inputs, outputs, o)
	}
	data, err := os.ReadFile(path)
	if err == nil && freed(m) {
		data, err = freeBatch(data)
	}
	if err == nil && wide != nil {
		data, err = widen(data, wide)
	}
	if err == nil {
		// Weights in files of their own lie beside the graph.
		err = o.AddSessionConfigEntry("session.model_external_initializers_file_folder_path", filepath.Dir(path))
	}
	if err != nil {
		return nil, err
	}
	return ort.NewDynamicAdvancedSessionWithONNXData(data, inputs, outputs, o)
}

func appendProvider(o *ort.SessionOptions, p provider, device int) error {
	opts := maps.Clone(p.options)
	if opts == nil {
		opts = map[string]string{}
	}
	if _, set := opts["device_id"]; !set && device >= 0 && (p.name == "cuda" || p.name == "tensorrt") {
		opts["device_id"] = strconv.Itoa(device)
	}
	switch p.name {
	case "cuda":
		c, err := ort.NewCUDAProviderOptions()
		if err != nil {
			return err
		}
		defer func() { _ = c.Destroy() }() // frees memory, cannot fail
		if err := c.Update(opts); err != nil {
			return err
		}
		return o.AppendExecutionProviderCUDA(c)
	case "tensorrt":
		t, err := ort.NewTensorRTProviderOptions()
		if err != nil {
			return err
		}
		defer func() { _ = t.Destroy() }() // frees memory, cannot fail
		if err := t.Update(opts); err != nil {
			return err
		}
		return o.AppendExecutionProviderTensorRT(t)
	case "openvino":
		return o.AppendExecutionProviderOpenVINO(opts)
	case "webgpu":
		return o.AppendExecutionProvider("WebGPU", opts)
	default:
		return o.AppendExecutionProvider(strings.ToUpper(p.name), opts)
	}
}

// spin is the entry that makes idle threads burn a core; off unless asked for.
const (
	spin      = "session.intra_op.allow_spinning"
	spinInter = "session.inter_op.allow_spinning"
)

// options reads the model's parameters; every fault is reported.
func options(m *backend.Model, at backend.Placement) (*ort.SessionOptions, error) {
	if m.Settings["enable-global-threadpool"] != "" && m.Settings["enable-global-threadpool"] != "0" {
		return nil, refuse("backend setting enable-global-threadpool: this server gives every instance its share of the CPU budget instead")
	}
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	var faults []error
	note := func(key string, err error) {
		if err != nil {
			faults = append(faults, infer.Errorf(infer.InvalidArgument, "parameters[%s]: %v", key, err))
		}
	}
	number := func(key string, def int, set func(int) error) {
		n := def
		for _, v := range []string{m.Settings[key], m.Parameter(key, "")} {
			if v == "" {
				continue
			}
			k, err := strconv.Atoi(v)
			if err != nil || k < 0 {
				note(key, fmt.Errorf("%q is not a number from 0", v))
				return
			}
			n = k
		}
		note(key, set(n))
	}
	number("intra_op_thread_count", max(1, at.CPUThreads), o.SetIntraOpNumThreads)
	number("inter_op_thread_count", 1, o.SetInterOpNumThreads)
	number("execution_mode", 0, func(n int) error { return o.SetExecutionMode(ort.ExecutionMode(n)) })
	number("enable_mem_arena", 1, func(n int) error { return o.SetCpuMemArena(n != 0) })
	number("enable_mem_pattern", 1, func(n int) error { return o.SetMemPattern(n != 0) })
	level, ok := map[int32]ort.GraphOptimizationLevel{
		-1: ort.GraphOptimizationLevelEnableBasic, 0: ort.GraphOptimizationLevelEnableAll,
		1: ort.GraphOptimizationLevelEnableExtended, 2: ort.GraphOptimizationLevelDisableAll,
	}[m.Config.GetOptimization().GetGraph().GetLevel()]
	if !ok {
		faults = append(faults, refuse("optimization.graph.level %d is not one of -1, 0, 1, 2", m.Config.GetOptimization().GetGraph().GetLevel()))
	} else {
		note("optimization.graph.level", o.SetGraphOptimizationLevel(level))
	}
	entries := map[string]string{spin: "0", spinInter: "0"}
	for key := range m.Config.GetParameters() {
		if strings.HasPrefix(key, "session.") {
			entries[key] = m.Parameter(key, "")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		note(key, o.AddSessionConfigEntry(key, entries[key]))
	}
	if m.Parameter("memory.enable_memory_arena_shrinkage", "") != "" {
		note("memory.enable_memory_arena_shrinkage", errors.New("not available: give enable_mem_arena 0 where memory is short"))
	}
	if len(faults) > 0 {
		_ = o.Destroy() // frees memory, cannot fail
		return nil, errors.Join(faults...)
	}
	return o, nil
}
