package perf

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/infer/tensor"
)

// maxData bounds a file of input data.
const maxData = 1 << 30

// document is a file of input data as perf_analyzer reads it. Data and Expected hold requests, or lists of them: each
// list is a sequence of a model that keeps state.
type document struct {
	Data     []json.RawMessage `json:"data"`
	Expected []json.RawMessage `json:"validation_data"`
}

// step is the tensors of one request, by name, without the batch dimension.
type step map[string]value

// value is one tensor: a list of elements, {"content": a list or {"b64": bytes}, "shape": dimensions}, or
// {"b64": bytes}. It is read when the tensor's type is known.
type value struct {
	content json.RawMessage
	b64     *string
	shape   []int64
}

// UnmarshalJSON reads any of the three forms.
func (v *value) UnmarshalJSON(text []byte) error {
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		v.content = slices.Clone(text)
		return nil
	}
	var form struct {
		Content json.RawMessage `json:"content"`
		Shape   []int64         `json:"shape"`
		B64     *string         `json:"b64"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&form); err != nil {
		return err
	}
	v.content, v.shape, v.b64 = form.Content, form.Shape, form.B64
	if inner := bytes.TrimSpace(v.content); len(inner) > 0 && inner[0] == '{' {
		var bytes struct {
			B64 *string `json:"b64"`
		}
		if err := json.Unmarshal(inner, &bytes); err != nil {
			return err
		}
		v.content, v.b64 = nil, bytes.B64
	}
	if (v.content == nil) == (v.b64 == nil) {
		return errors.New(`a tensor is {"content": [...], "shape": [...]} or {"b64": "..."}`)
	}
	for _, d := range v.shape {
		if d < 0 {
			return fmt.Errorf("shape %v: a dimension is negative", v.shape)
		}
	}
	return nil
}

// ParseData reads input data in perf_analyzer's JSON: the sequences of requests, and what they should be answered, if
// that is said.
func ParseData(text []byte) (*Data, error) {
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("input data: %w", err)
	}
	if len(doc.Data) == 0 {
		return nil, errors.New(`input data: there is no "data": [{"INPUT": [...]}, ...]`)
	}
	d := &Data{}
	var err error
	if d.streams, err = streams(doc.Data); err != nil {
		return nil, fmt.Errorf("input data: data%w", err)
	}
	if len(doc.Expected) == 0 {
		return d, nil
	}
	if d.expected, err = streams(doc.Expected); err != nil {
		return nil, fmt.Errorf("input data: validation_data%w", err)
	}
	same := slices.EqualFunc(d.streams, d.expected, func(a, b []step) bool { return len(a) == len(b) })
	if !same {
		return nil, errors.New("input data: validation_data has not as many entries as data")
	}
	return d, nil
}

// Data is input data in the order in which it is sent.
type Data struct {
	streams, expected [][]step
	folder            bool // a file for each input, for outputs if one likes, and any others
}

// add appends the requests of another file.
func (d *Data) add(o *Data) error {
	if d.folder || o.folder {
		return errors.New("only one folder can be sent")
	}
	if (d.expected == nil) != (o.expected == nil) {
		return errors.New("validation_data must be in all files or in none")
	}
	d.streams, d.expected = append(d.streams, o.streams...), append(d.expected, o.expected...)
	return nil
}

// streams reads a list of requests, or of lists of them.
func streams(list []json.RawMessage) ([][]step, error) {
	var out [][]step
	var flat []step
	for i, text := range list {
		if text = bytes.TrimSpace(text); len(text) > 0 && text[0] == '[' {
			var steps []step
			if err := json.Unmarshal(text, &steps); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			if len(steps) == 0 {
				return nil, fmt.Errorf("[%d]: a sequence without requests", i)
			}
			out = append(out, steps)
			continue
		}
		var s step
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		flat = append(flat, s)
	}
	if len(out) > 0 && len(flat) > 0 {
		return nil, errors.New(": requests and lists of requests are mixed")
	}
	if len(flat) > 0 {
		out = [][]step{flat}
	}
	return out, nil
}

// readData reads a file of input data, or a folder with a file for every input: bytes as they lie in memory, or a line
// for each string.
func readData(path string) (*Data, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("input data: %w", err)
	}
	if info.IsDir() {
		return readFolder(path)
	}
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("input data: %w", err)
	}
	d, err := ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// readFile reads a file, which may be a pipe, up to a bound.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxData+1))
	if err == nil && len(text) > maxData {
		err = fmt.Errorf("%s has more than %d bytes, which are the most that are read", path, maxData)
	}
	return text, err
}

// readFolder reads a file for each tensor.
func readFolder(path string) (*Data, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("input data: %w", err)
	}
	s := step{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxData {
			continue
		}
		b, err := readFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("input data: %w", err)
		}
		raw := base64.StdEncoding.EncodeToString(b)
		lines, err := json.Marshal(strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"))
		if err != nil {
			return nil, fmt.Errorf("input data: %w", err)
		}
		s[e.Name()] = value{content: lines, b64: &raw}
	}
	return &Data{streams: [][]step{{s}}, folder: true}, nil
}

// tensor makes the tensor that v is of an input with these dimensions, of which open ones are -1 unless given says.
func (v value) tensor(name string, t tensor.DataType, dims, given []int64) (tensor.Tensor, error) {
	out := tensor.Tensor{Name: name, DataType: t}
	var n int64 // elements
	var err error
	switch {
	case t == tensor.Bytes && v.content != nil:
		var all []string
		if all, err = flatten[string](v.content); err != nil {
			return out, err
		}
		out.Data, n = tensor.EncodeStrings(all...), int64(len(all))
	case v.b64 != nil:
		b, err := base64.StdEncoding.DecodeString(*v.b64)
		if err != nil {
			return out, err
		}
		if out.Data = b; t == tensor.Bytes {
			// As perf_analyzer has it, the bytes hold the lengths of the strings; else they are one string.
			if n, err = tensor.CountElements(b); err != nil || n == 0 {
				out.Data, n = tensor.AppendElement(nil, b), 1
			}
		} else if n = int64(len(b) / t.Size()); len(b)%t.Size() != 0 {
			return out, fmt.Errorf("%d bytes are no number of %s", len(b), t)
		}
	case t == tensor.Bool:
		if out.Data, n, err = truths(v.content); err != nil {
			return out, err
		}
	default:
		all, err := flatten[json.Number](v.content)
		if err != nil {
			return out, fmt.Errorf("these are no numbers: %w", err)
		}
		n = int64(len(all))
		out.Data = make([]byte, int(n)*t.Size())
		for i, number := range all {
			if err := putNumber(out.Data[i*t.Size():], t, number.String()); err != nil {
				return out, err
			}
		}
	}
	if out.Shape, err = shapeFor(n, v.shape, dims, given); err != nil {
		return out, err
	}
	return out, nil
}

// shapeFor finds the shape of n elements: the one that is said, or the input's, whose only open dimension is what is left.
func shapeFor(n int64, said, dims, given []int64) ([]int64, error) {
	shape := said
	if shape == nil {
		shape = slices.Clone(dims)
		if len(given) == len(dims) {
			copy(shape, given)
		}
		known, open := int64(1), -1
		for i, d := range shape {
			switch {
			case d >= 0:
				known *= d
			case open >= 0:
				return nil, fmt.Errorf(`shape %s has several open dimensions: say "shape"`, tensor.FormatShape(dims))
			default:
				open = i
			}
		}
		if open >= 0 && known > 0 {
			shape[open] = n / known
		}
	}
	count, err := tensor.ElementCount(shape)
	if err != nil {
		return nil, err
	}
	if count != n {
		return nil, fmt.Errorf("%d elements do not fill shape %s", n, tensor.FormatShape(shape))
	}
	return shape, nil
}

// flatten reads a list, nested or not.
func flatten[T any](text json.RawMessage) ([]T, error) {
	var out []T
	var walk func(json.RawMessage) error
	walk = func(text json.RawMessage) error {
		if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '[' {
			var one T
			if err := json.Unmarshal(text, &one); err != nil {
				return err
			}
			out = append(out, one)
			return nil
		}
		var list []T
		if json.Unmarshal(text, &list) == nil {
			out = append(out, list...)
			return nil
		}
		var inner []json.RawMessage
		if err := json.Unmarshal(text, &inner); err != nil {
			return err
		}
		for _, i := range inner {
			if err := walk(i); err != nil {
				return err
			}
		}
		return nil
	}
	return out, walk(text)
}

// truths reads true and false, or 0 and 1.
func truths(text json.RawMessage) ([]byte, int64, error) {
	all, err := flatten[any](text)
	if err != nil {
		return nil, 0, err
	}
	out := make([]byte, 0, len(all))
	var add func(v any) error
	add = func(v any) error {
		switch v := v.(type) {
		case bool:
			out = append(out, 0)
			if v {
				out[len(out)-1] = 1
			}
			return nil
		case float64:
			return add(v != 0)
		case []any:
			for _, e := range v {
				if err := add(e); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("%v is neither true nor false", v)
	}
	for _, v := range all {
		if err := add(v); err != nil {
			return nil, 0, err
		}
	}
	return out, int64(len(out)), nil
}

// putNumber writes a number of a JSON text as t.
func putNumber(at []byte, t tensor.DataType, text string) error {
	le, bits := binary.LittleEndian, 8*t.Size()
	switch t {
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		switch t {
		case tensor.FP16:
			le.PutUint16(at, tensor.Float32ToFP16(float32(f)))
		case tensor.BF16:
			le.PutUint16(at, tensor.Float32ToBF16(float32(f)))
		case tensor.FP32:
			le.PutUint32(at, math.Float32bits(float32(f)))
		default:
			le.PutUint64(at, math.Float64bits(f))
		}
		return nil
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		u, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return fmt.Errorf("%s is no %s", text, t)
		}
		putInteger(at[:t.Size()], u)
		return nil
	default:
		i, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return fmt.Errorf("%s is no %s", text, t)
		}
		putInteger(at[:t.Size()], uint64(i))
		return nil
	}
}

func putInteger(at []byte, v uint64) {
	for i := range at {
		at[i] = byte(v >> (8 * i))
	}
}

// letters makes a random string.
func letters(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}
