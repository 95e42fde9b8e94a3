package v2grpc

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

const (
	paramRegion    = "shared_memory_region"
	paramOffset    = "shared_memory_offset"
	paramSize      = "shared_memory_byte_size"
	paramClasses   = "classification"
	paramEmptyEnd  = "triton_enable_empty_final_response"
	paramFinal     = "triton_final_response"
	reservedParam  = "triton_"
	maxCorrelation = 128
)

// resolve turns the parsed message into a request: parameters get their meaning, inputs their bytes.
func (c *call) resolve(ctx context.Context) error {
	version, err := parseVersion(c.version)
	if err != nil {
		return err
	}
	c.req.ID, c.req.Model, c.req.Version, c.req.Scope = c.id, c.model, version, c.server.cfg.Scope
	for i := range c.params {
		if err := c.parameter(&c.params[i]); err != nil {
			return err
		}
	}
	if re := c.server.cfg.ForwardHeaders; re != nil {
		if err := c.forward(ctx); err != nil {
			return err
		}
	}
	if err := c.resolveInputs(); err != nil {
		return err
	}
	if err := c.resolveOutputs(); err != nil {
		return err
	}
	c.req.Inputs, c.req.Outputs = c.tensors, c.specs
	return nil
}

// parseVersion reads a version as the protocol writes it: "" is the policy's choice.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArgument,
			"failed to get model version from specified version string '%s' (details: stoll), version should be an integral value > 0", s)
	}
	if v <= 0 {
		return 0, infer.Errorf(infer.InvalidArgument, "invalid model version specified '%s' , version should be an integral value > 0", s)
	}
	return v, nil
}

func wrongType(key, expected string) error {
	return infer.Errorf(infer.InvalidArgument, "invalid value type for '%s' parameter, expected %s.", key, expected)
}

func (c *call) parameter(p *param) error {
	r := &c.req
	switch p.key {
	case "sequence_id":
		switch p.kind {
		case int64Param, uint64Param:
			r.Correlation = infer.CorrelationID{Num: p.num}
		case stringParam:
			if len(p.str) > maxCorrelation {
				return infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelation)
			}
			r.Correlation = infer.CorrelationID{Str: p.str}
		default:
			return wrongType(p.key, "int64_param or string_param")
		}
	case "sequence_start", "sequence_end":
		if p.kind != boolParam {
			return wrongType(p.key, "bool_param")
		}
		if p.key == "sequence_start" {
			r.SequenceStart = p.num != 0
		} else {
			r.SequenceEnd = p.num != 0
		}
	case "priority":
		if p.kind != int64Param && p.kind != uint64Param {
			return wrongType(p.key, "int64_param or uint64_param")
		}
		if p.kind == int64Param && int64(p.num) < 0 {
			return infer.Errorf(infer.InvalidArgument, "invalid value for 'priority', expected value >= 0.")
		}
		r.Priority = p.num
	case "timeout":
		if p.kind != int64Param {
			return wrongType(p.key, "int64_param")
		}
		if int64(p.num) < 0 {
			return infer.Errorf(infer.InvalidArgument, "invalid value for 'timeout', expected value >= 0.")
		}
		r.Timeout = microseconds(p.num)
	case paramEmptyEnd:
		if p.kind != boolParam {
			return wrongType(p.key, "bool_param")
		}
		c.wantEnd = p.num != 0
	default:
		return c.custom(p)
	}
	return nil
}

// microseconds converts a time-out; what is longer than a Duration holds is as long as one.
func microseconds(us uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}

func (c *call) custom(p *param) error {
	if strings.HasPrefix(p.key, reservedParam) {
		return infer.Errorf(infer.InvalidArgument,
			"parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
	}
	if p.kind == noParam || p.kind == uint64Param {
		return wrongType(p.key, "bool_param, int64_param, double_param, or string_param")
	}
	if c.req.Parameters == nil {
		c.req.Parameters = make(map[string]any, len(c.params))
	}
	c.req.Parameters[p.key] = p.value()
	return nil
}

func (c *call) forward(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for key, values := range md {
		if len(values) == 0 || strings.HasPrefix(key, ":") || !c.server.cfg.ForwardHeaders.MatchString(key) {
			continue
		}
		switch {
		case key == "sequence_id", key == "priority", key == "timeout", key == "headers", key == "binary_data_output",
			strings.HasPrefix(key, reservedParam):
			return infer.Errorf(infer.InvalidArgument, "Header '%s' is reserved for Triton usage and cannot be forwarded.", key)
		}
		if c.req.Parameters == nil {
			c.req.Parameters = make(map[string]any)
		}
		c.req.Parameters[key] = values[0]
	}
	return nil
}

func (c *call) resolveInputs() error {
	next := 0
	for i := range c.inputs {
		in := &c.inputs[i]
		t, err := tensor.Parse(in.datatype)
		if err != nil {
			return infer.Errorf(infer.InvalidArgument, "invalid datatype '%s' for input '%s' for model '%s'", in.datatype, in.name, c.model)
		}
		data, err := c.inputData(in, t, &next)
		if err != nil {
			return err
		}
		c.tensors = append(c.tensors, tensor.Tensor{Name: in.name, DataType: t, Shape: in.shape, Data: data})
	}
	if c.server.cfg.Frames {
		return c.watchFrames()
	}
	return nil
}

func (c *call) inputData(in *wireInput, t tensor.DataType, next *int) ([]byte, error) {
	place, err := c.region(in.params, in.name)
	if err != nil {
		return nil, err
	}
	if place.name != "" {
		lend := c.server.cfg.Regions.Input
		if t == tensor.Bytes {
			lend = c.server.cfg.Regions.Stable
		}
		lease, err := lend(place.name, place.offset, place.size)
		if err != nil {
			return nil, err
		}
		c.leases, c.shared, c.req.Shared = append(c.leases, lease), true, true
		if in.hasContents {
			return nil, infer.Errorf(infer.InvalidArgument,
				"unexpected 'content' provided when using shared memory for input tensor '%s' for model '%s'", in.name, c.model)
		}
		return lease.Bytes, nil
	}
	c.leases = append(c.leases, nil)
	if len(c.raw) > 0 {
		if in.hasContents {
			return nil, infer.Errorf(infer.InvalidArgument,
				"contents field must not be specified when using raw_input_contents for '%s' for model '%s'", in.name, c.model)
		}
		if *next < len(c.raw) {
			*next++
			return c.raw[*next-1], nil
		}
	}
	if !in.hasContents {
		return nil, infer.Errorf(infer.InvalidArgument, "unable to find data for input tensor '%s' for model '%s' in request.", in.name, c.model)
	}
	if wrong := wrongField(in.contents, t); wrong != "" {
		return nil, infer.Errorf(infer.InvalidArgument,
			"unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', expected datatype '%s'",
			in.name, c.model, wrong, in.datatype)
	}
	b := c.server.cfg.Pool.Get(contentSize(in.contents, t))
	c.buffers = append(c.buffers, b)
	putContents(b.Bytes, in.contents, t)
	return b.Bytes, nil
}

// place is where in shared memory a tensor is; no name: nowhere.
type place struct {
	name         string
	offset, size uint64
	hasSize      bool
}

func (c *call) region(params [2]int, tensorName string) (place, error) {
	var p place
	for i := params[0]; i < params[1]; i++ {
		v := &c.allParams[i]
		expected := paramKind(0)
		switch v.key {
		case paramRegion:
			expected, p.name = stringParam, v.str
		case paramOffset:
			expected, p.offset = int64Param, v.num
		case paramSize:
			expected, p.size, p.hasSize = int64Param, v.num, true
		default:
			continue
		}
		if v.kind != expected && (expected != int64Param || v.kind != uint64Param) {
			want := "string_param"
			if expected == int64Param {
				want = "int64_param"
			}
			return place{}, infer.Errorf(infer.InvalidArgument,
				"invalid value type for '%s' parameter for tensor '%s', expected %s.", v.key, tensorName, want)
		}
	}
	if p.name != "" && !p.hasSize {
		return place{}, infer.Errorf(infer.InvalidArgument,
			"'%s' is required with '%s' for tensor '%s'", paramSize, paramRegion, tensorName)
	}
	return p, nil
}

func (c *call) resolveOutputs() error {
	for i := range c.outputs {
		out := &c.outputs[i]
		spec := infer.OutputSpec{Name: out.name}
		for _, p := range c.allParams[out.params[0]:out.params[1]] {
			switch p.key {
			case paramRegion, paramOffset, paramSize:
			case paramClasses:
				if p.kind != int64Param {
					return wrongType(p.key, "int64_param")
				}
				if int64(p.num) < 0 || int64(p.num) > 1<<31-1 {
					return infer.Errorf(infer.InvalidArgument, "invalid value for 'classification' parameter, expected a value within 0 and %d.", 1<<31-1)
				}
				spec.Classes = int(p.num)
			default:
				if spec.Parameters == nil {
					spec.Parameters = make(map[string]any)
				}
				spec.Parameters[p.key] = p.value()
			}
		}
		lease, err := c.outputLease(out, spec.Classes)
		if err != nil {
			return err
		}
		c.into = append(c.into, lease)
		if lease != nil {
			c.shared = true
			spec.Into = lease.Bytes
		}
		c.specs = append(c.specs, spec)
	}
	return nil
}

func (c *call) outputLease(out *wireOutput, classes int) (*shm.Lease, error) {
	place, err := c.region(out.params, out.name)
	if err != nil || place.name == "" {
		return nil, err
	}
	if classes > 0 {
		return nil, infer.Errorf(infer.InvalidArgument, "output '%s' cannot be written to shared memory as a classification", out.name)
	}
	return c.server.cfg.Regions.Output(place.name, place.offset, place.size)
}

// frameCheck is a frame's slot and the generation it was announced with.
type frameCheck struct {
	input      string
	memory     shm.Mapping
	header     int
	generation uint64
	read       atomic.Bool // and it was intact then
	kept       atomic.Bool // and is read until the request has ended
}

// watchFrames finds the inputs that lie in slots of frames. FRAME_INFO says which frame was meant.
func (c *call) watchFrames() error {
	for i, l := range c.leases {
		if l == nil {
			continue
		}
		memory, offset, ok := l.Frame()
		if !ok {
			continue
		}
		layout, err := frame.ParseLayout(memory)
		if err != nil {
			continue // ordinary tensors in sealed memory
		}
		info := c.frameInfo()
		if info == nil {
			return infer.Errorf(infer.InvalidArgument,
				"input '%s' lies in a frame's slot: the request needs an input FRAME_INFO INT64[%d]", c.tensors[i].Name, frame.InfoLen)
		}
		slot := int(info[frame.InfoSlot])
		if slot < 0 || slot >= layout.Slots || offset != uint64(layout.PixelOffset(slot)) || len(l.Bytes) > layout.SlotBytes {
			return infer.Errorf(infer.InvalidArgument, "input '%s' is not the frame in slot %d that FRAME_INFO names", c.tensors[i].Name, slot)
		}
		c.frames = append(c.frames, &frameCheck{
			input: c.tensors[i].Name, memory: memory, header: layout.HeaderOffset(slot), generation: uint64(info[frame.InfoGeneration]),
		})
	}
	if len(c.frames) > 0 {
		c.req.Guard = c
	}
	return c.checkFrames()
}

func (c *call) frameInfo() []int64 {
	for i := range c.tensors {
		if t := &c.tensors[i]; t.Name == "FRAME_INFO" && t.DataType == tensor.Int64 {
			if v := tensor.View[int64](t.Data); len(v) == frame.InfoLen {
				return v
			}
		}
	}
	return nil
}

// checkFrames tells whether every frame that may still be read is the one that was announced.
func (c *call) checkFrames() error {
	for _, f := range c.frames {
		if (f.kept.Load() || !f.read.Load()) && f.overwritten() {
			return infer.Errorf(infer.Unavailable, "%s", frame.ErrOverwritten.Error())
		}
	}
	return nil
}

// Intact tells it of the frame in one input, which is not read any more. A long inference outlives the lease of its frame.
func (c *call) Intact(input string) error {
	for _, f := range c.frames {
		if f.input != input {
			continue
		}
		if f.overwritten() {
			return infer.Errorf(infer.Unavailable, "%s", frame.ErrOverwritten.Error())
		}
		f.read.Store(true)
	}
	return nil
}

// Keep says that the frame in one input is read to the end all the same.
func (c *call) Keep(input string) {
	for _, f := range c.frames {
		if f.input == input {
			f.kept.Store(true)
		}
	}
}

func (f *frameCheck) overwritten() bool { return f.memory.LoadUint64(f.header) != f.generation }
