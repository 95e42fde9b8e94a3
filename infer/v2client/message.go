package v2client

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

type parameters = map[string]*inference.InferParameter

func parameter(v any) (*inference.InferParameter, error) {
	switch v := v.(type) {
	case bool:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: v}}, nil
	case int64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: v}}, nil
	case uint64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(v)}}, nil
	case float64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_DoubleParam{DoubleParam: v}}, nil
	case string:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}, nil
	}
	return nil, fmt.Errorf("a %T cannot be a parameter: it must be bool, int64, uint64, float64 or string", v)
}

// all are the request's parameters with the protocol's own among them.
func (r *Request) all() map[string]any {
	p := make(map[string]any, len(r.Parameters)+4)
	maps.Copy(p, r.Parameters)
	if r.Sequence != nil {
		p["sequence_id"] = r.Sequence
		p["sequence_start"], p["sequence_end"] = r.Start, r.End
	}
	if r.Priority > 0 {
		p["priority"] = r.Priority
	}
	if r.Timeout > 0 {
		p["timeout"] = r.Timeout.Microseconds()
	}
	return p
}

func (p Place) all() map[string]any {
	if p.Region == "" {
		return nil
	}
	all := map[string]any{"shared_memory_region": p.Region, "shared_memory_byte_size": int64(p.Size)}
	if p.Offset > 0 {
		all["shared_memory_offset"] = int64(p.Offset)
	}
	return all
}

func convert(values map[string]any) (parameters, error) {
	if len(values) == 0 {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	out := make(parameters, len(values))
	for k, v := range values {
		p, err := parameter(v)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", k, err)
		}
		out[k] = p
	}
	return out, nil
}

// message is the request as gRPC sends it.
func (r *Request) message() (*inference.ModelInferRequest, error) {
	m := &inference.ModelInferRequest{ModelName: r.Model, Id: r.ID}
	if r.Version > 0 {
		m.ModelVersion = strconv.FormatInt(r.Version, 10)
	}
	var err error
	if m.Parameters, err = convert(r.all()); err != nil {
		return nil, err
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		t := &inference.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.DataType.String(), Shape: in.Shape}
		if t.Parameters, err = convert(in.Place.all()); err != nil {
			return nil, err
		}
		m.Inputs = append(m.Inputs, t)
		if in.Place.Region == "" {
			m.RawInputContents = append(m.RawInputContents, in.Data)
		}
	}
	for _, out := range r.Outputs {
		p := out.Place.all()
		if out.Classes > 0 {
			p = map[string]any{"classification": int64(out.Classes)}
		}
		t := &inference.ModelInferRequest_InferRequestedOutputTensor{Name: out.Name}
		if t.Parameters, err = convert(p); err != nil {
			return nil, err
		}
		m.Outputs = append(m.Outputs, t)
	}
	return m, nil
}

func response(m *inference.ModelInferResponse) (*Response, error) {
	r := &Response{Model: m.GetModelName(), Version: m.GetModelVersion(), ID: m.GetId(), Final: true}
	for k, p := range m.GetParameters() {
		var v any
		switch c := p.GetParameterChoice().(type) {
		case *inference.InferParameter_BoolParam:
			v = c.BoolParam
		case *inference.InferParameter_Int64Param:
			v = c.Int64Param
		case *inference.InferParameter_Uint64Param:
			v = c.Uint64Param
		case *inference.InferParameter_DoubleParam:
			v = c.DoubleParam
		case *inference.InferParameter_StringParam:
			v = c.StringParam
		}
		if k == "triton_final_response" {
			r.Final, _ = v.(bool)
			continue
		}
		if r.Parameters == nil {
			r.Parameters = make(map[string]any)
		}
		r.Parameters[k] = v
	}
	for i, o := range m.GetOutputs() {
		t, err := tensor.Parse(o.GetDatatype())
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", o.GetName(), err)
		}
		out := tensor.Tensor{Name: o.GetName(), DataType: t, Shape: o.GetShape()}
		if i < len(m.GetRawOutputContents()) {
			out.Data = m.GetRawOutputContents()[i]
		}
		r.Outputs = append(r.Outputs, out)
	}
	return r, nil
}
