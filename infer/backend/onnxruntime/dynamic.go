package onnxruntime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	ort "github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// Many detectors are exported for a batch of one although nothing in them depends on
// it. With the parameter dynamic_batch the batch dimension is freed when such a
// model is loaded: the first dimension of inputs and outputs, and the ones that
// Reshape constants repeat. Whether the result is still the same model is not
// reasoned about but tried, by prove.

// Field numbers of the ONNX format.
const (
	modelGraph       = 7
	graphNode        = 1
	graphInitializer = 5
	graphInput       = 11
	graphOutput      = 12
	graphValueInfo   = 13
	nodeInput        = 1
	nodeOutput       = 2
	nodeOp           = 4
	nodeAttribute    = 5
	attributeTensor  = 5
	tensorInts       = 7
	tensorName       = 8
	tensorRaw        = 9
	valueName        = 1
	valueType        = 2
	typeTensor       = 1
	tensorShape      = 2
	shapeDim         = 1
	dimValue         = 1
	dimParam         = 2
)

var errFormat = errors.New("not an ONNX file")

// each calls f for every field; f gets the content of length-delimited ones.
func each(msg []byte, f func(n protowire.Number, t protowire.Type, field, content []byte) error) error {
	for len(msg) > 0 {
		num, typ, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return errFormat
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[tag:])
		if size < 0 {
			return errFormat
		}
		var content []byte
		if typ == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(msg[tag:])
		}
		if err := f(num, typ, msg[:tag+size], content); err != nil {
			return err
		}
		msg = msg[tag+size:]
	}
	return nil
}

// edit copies a message; change returns a field's new content, drop leaves it out.
func edit(msg []byte, change func(n protowire.Number, content []byte) (to []byte, drop bool, err error)) ([]byte, error) {
	out := make([]byte, 0, len(msg)+64)
	err := each(msg, func(n protowire.Number, t protowire.Type, field, content []byte) error {
		if t != protowire.BytesType {
			out = append(out, field...)
			return nil
		}
		to, drop, err := change(n, content)
		if err != nil || drop {
			return err
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, n, t), to)
		return nil
	})
	return out, err
}

// editPath edits the content of nested fields: edit of path[0], of path[1] in it …
func editPath(msg []byte, change func([]byte) ([]byte, error), path ...protowire.Number) ([]byte, error) {
	if len(path) == 0 {
		return change(msg)
	}
	return edit(msg, func(n protowire.Number, content []byte) ([]byte, bool, error) {
		if n != path[0] {
			return content, false, nil
		}
		to, err := editPath(content, change, path[1:]...)
		return to, false, err
	})
}

// freeBatch frees the first dimension of a model for a batch of one.
func freeBatch(model []byte) ([]byte, error) {
	return editPath(model, freeGraph, modelGraph)
}

func freeGraph(graph []byte) ([]byte, error) {
	shapes, given, err := survey(graph)
	if err != nil {
		return nil, err
	}
	return edit(graph, func(n protowire.Number, content []byte) ([]byte, bool, error) {
		switch n {
		case graphValueInfo:
			return nil, true, nil // they repeat the fixed shapes
		case graphInput, graphOutput:
			if given[text(content, valueName)] {
				return content, false, nil
			}
			to, err := editPath(content, freeShape, valueType, typeTensor, tensorShape)
			return to, false, err
		case graphInitializer:
			if shapes[text(content, tensorName)] {
				to, err := freeConstant(content)
				return to, false, err
			}
		case graphNode:
			if shapes[text(content, nodeOutput)] && text(content, nodeOp) == "Constant" {
				to, err := editPath(content, freeConstant, nodeAttribute, attributeTensor)
				return to, false, err
			}
		default:
		}
		return content, false, nil
	})
}

// text is the first string of a field.
func text(msg []byte, field protowire.Number) string {
	s := ""
	found := false
	_ = each(msg, func(n protowire.Number, _ protowire.Type, _, content []byte) error { // surveyed before
		if n == field && !found {
			s, found = string(content), true
		}
		return nil
	})
	return s
}

// survey finds the tensors that only say what a Reshape is to become, and the inputs
// that have a value already.
func survey(graph []byte) (shapes, given map[string]bool, err error) {
	shapes, given = map[string]bool{}, map[string]bool{}
	others := map[string]bool{}
	err = each(graph, func(n protowire.Number, _ protowire.Type, _, content []byte) error {
		switch n {
		case graphInitializer:
			given[text(content, tensorName)] = true
		case graphNode:
			reshape, k := text(content, nodeOp) == "Reshape", 0
			return each(content, func(n protowire.Number, _ protowire.Type, _, name []byte) error {
				if n != nodeInput {
					return nil
				}
				if reshape && k == 1 {
					shapes[string(name)] = true
				} else {
					others[string(name)] = true
				}
				k++
				return nil
			})
		default:
		}
		return nil
	})
	for name := range others {
		delete(shapes, name)
	}
	return shapes, given, err
}

// freeShape names the first dimension instead of fixing it at one.
func freeShape(shape []byte) ([]byte, error) {
	first := true
	return edit(shape, func(n protowire.Number, dim []byte) ([]byte, bool, error) {
		if n != shapeDim || !first {
			return dim, false, nil
		}
		first = false
		value := uint64(0)
		err := each(dim, func(n protowire.Number, t protowire.Type, field, _ []byte) error {
			if n == dimValue && t == protowire.VarintType {
				_, _, tag := protowire.ConsumeTag(field)
				value, _ = protowire.ConsumeVarint(field[tag:])
			}
			return nil
		})
		if err != nil || value > 1 {
			return nil, false, errors.Join(err, fmt.Errorf("dynamic_batch: the first dimension is %d, not 1", value))
		}
		return protowire.AppendString(protowire.AppendTag(nil, dimParam, protowire.BytesType), "batch"), false, nil
	})
}

// freeConstant lets a Reshape keep the first dimension (0) where it made it one.
func freeConstant(t []byte) ([]byte, error) {
	return edit(t, func(n protowire.Number, content []byte) ([]byte, bool, error) {
		switch {
		case n == tensorRaw && len(content) >= 8 && binary.LittleEndian.Uint64(content) == 1:
			return append(make([]byte, 8), content[8:]...), false, nil
		case n == tensorInts && len(content) > 0 && content[0] == 1:
			return append([]byte{0}, content[1:]...), false, nil
		}
		return content, false, nil
	})
}

// prove runs noise through the freed model as a batch of two and one by one; only equal
// outputs show that the batch really was a free choice.
func prove(g graph, data []byte) error {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return err
	}
	defer func() { _ = o.Destroy() }() // frees memory, cannot fail
	var ins, outs []string
	for _, p := range g.inputs {
		ins = append(ins, p.name)
	}
	for _, p := range g.outputs {
		outs = append(outs, p.name)
	}
	s, err := ort.NewDynamicAdvancedSessionWithONNXData(data, ins, outs, o)
	if err != nil {
		return err
	}
	defer func() { _ = s.Destroy() }() // frees memory, cannot fail
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([][]float32, len(g.inputs))
	for i, p := range g.inputs {
		n := 2
		for _, d := range p.dims[1:] {
			n *= int(max(d, 0))
		}
		if p.typ != tensor.FP32 || n == 0 {
			return fmt.Errorf("dynamic_batch: input '%s' is not FP32 of a fixed size, so the result cannot be tried", p.name)
		}
		noise[i] = make([]float32, n)
		for k := range noise[i] {
			noise[i][k] = rnd.Float32() * 255
		}
	}
	both, err := try(s, g, noise, 0, 2)
	if err != nil {
		return fmt.Errorf("dynamic_batch: the graph does not allow it: %w", err)
	}
	for row := range 2 {
		alone, err := try(s, g, noise, row, 1)
		if err != nil {
			return fmt.Errorf("dynamic_batch: %w", err)
		}
		for i := range alone {
			if len(both[i]) != 2*len(alone[i]) {
				return fmt.Errorf("dynamic_batch: output '%s' does not grow with the batch", outs[i])
			}
			for k, v := range alone[i] {
				w := both[i][row*len(alone[i])+k]
				if d := math.Abs(float64(v - w)); d > 1e-3+1e-3*math.Abs(float64(v)) {
					return fmt.Errorf("dynamic_batch: output '%s' of a batch differs from that of its parts by %g", outs[i], d)
				}
			}
		}
	}
	return nil
}

func try(s *ort.DynamicAdvancedSession, g graph, noise [][]float32, row, rows int) ([][]float32, error) {
	var in []ort.Value
	out := make([]ort.Value, len(g.outputs))
	defer func() {
		for _, v := range append(in, out...) {
			if v != nil {
				_ = v.Destroy() // frees memory, cannot fail
			}
		}
	}()
	for i, p := range g.inputs {
		n := len(noise[i]) / 2
		v, err := ort.NewTensor(append([]int64{int64(rows)}, p.dims[1:]...), noise[i][row*n:(row+rows)*n])
		if err != nil {
			return nil, err
		}
		in = append(in, v)
	}
	if err := s.Run(in, out); err != nil {
		return nil, err
	}
	values := make([][]float32, len(out))
	for i, v := range out {
		t, ok := v.(*ort.Tensor[float32])
		if !ok {
			return nil, fmt.Errorf("output '%s' is not FP32", g.outputs[i].name)
		}
		values[i] = t.GetData()
	}
	return values, nil
}

// freed tells whether the model asks for its batch dimension to be freed.
func freed(m *backend.Model) bool { return m.Parameter("dynamic_batch", "false") == "true" }
