package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/tensor"
)

// record is one trace: of a request, or of a step that was made on its behalf.
type record struct {
	ID, Parent uint64
	Model      string
	Version    int64
	Request    string
	Stamps     []stamp
	Tensors    []activity
}

type stamp struct {
	Name string `json:"name"`
	NS   int64  `json:"ns"`
}

type activity struct {
	name  string
	shown shownTensor
}

type shownTensor struct {
	Name  string `json:"name"`
	Data  string `json:"data"`
	Shape string `json:"shape"`
	Type  string `json:"dtype"`
}

func (r *record) mark(name string, at time.Time) {
	r.Stamps = append(r.Stamps, stamp{name, at.UnixNano()})
}

func (r *record) tensors(name string, list []tensor.Tensor) {
	for i := range list {
		t := &list[i]
		dims := make([]string, len(t.Shape))
		for i, d := range t.Shape {
			dims[i] = strconv.FormatInt(d, 10)
		}
		r.Tensors = append(r.Tensors, activity{name, shownTensor{t.Name, elements(t), strings.Join(dims, ","), t.DataType.String()}})
	}
}

// elements lists a tensor's elements, with commas between them.
func elements(t *tensor.Tensor) string {
	var out []string
	size := t.DataType.Size()
	if t.DataType == tensor.Bytes {
		for data := t.Data; len(data) >= 4; {
			n := int(uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24)
			data = data[4:]
			n = min(n, len(data))
			out, data = append(out, string(data[:n])), data[n:]
		}
		return strings.Join(out, ",")
	}
	for data := t.Data; size > 0 && len(data) >= size; data = data[size:] {
		out = append(out, element(t.DataType, data[:size]))
	}
	return strings.Join(out, ",")
}

func element(kind tensor.DataType, b []byte) string {
	var u uint64
	for i, x := range b {
		u |= uint64(x) << (8 * i)
	}
	switch kind {
	case tensor.Bool:
		return strconv.FormatBool(u != 0)
	case tensor.FP32:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(u))), 'g', -1, 32)
	case tensor.FP64:
		return strconv.FormatFloat(math.Float64frombits(u), 'g', -1, 64)
	case tensor.BF16:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(u)<<16)), 'g', -1, 32)
	case tensor.FP16:
		return strconv.FormatFloat(float64(tensor.FP16ToFloat32(uint16(u))), 'g', -1, 32)
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		shift := 64 - 8*len(b)
		return strconv.FormatInt(int64(u<<shift)>>shift, 10)
	default:
		return strconv.FormatUint(u, 10)
	}
}

// target is the file a trace goes to.
type target struct {
	path  string
	every int // traces per file; 0: all
}

func (s *Settings) target(model string) target {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.effectiveLocked(model)
	every, _ := strconv.Atoi(v[logFrequency][0])
	return target{v[file][0], every}
}

// written is the state of a file: an array that is closed after every trace, so that it can be read at any time.
type written struct {
	traces int
	number int
	size   int64
}

// write appends a trace and its steps to their file.
func (s *Settings) write(to target, records []record) {
	if to.path == "" {
		return
	}
	s.files.Lock()
	defer s.files.Unlock()
	w := s.open[to.path]
	if w == nil {
		w = new(written)
		s.open[to.path] = w
	}
	path := to.path
	if to.every > 0 {
		if w.traces >= to.every {
			*w = written{number: w.number + 1}
		}
		path += "." + strconv.Itoa(w.number)
	}
	if err := w.append(path, records); err != nil && s.failed != nil {
		s.failed(fmt.Errorf("write trace %d to %s: %w", records[0].ID, path, err))
	}
}

func (w *written) append(path string, records []record) (err error) {
	text := make([]byte, 0, 512)
	for _, r := range records {
		if text, err = r.appendTo(text); err != nil {
			return err
		}
	}
	mode := os.O_WRONLY | os.O_CREATE
	if w.size == 0 {
		mode |= os.O_TRUNC
		text[0] = '['
	}
	f, err := os.OpenFile(path, mode, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text = append(text, ']')
	if _, err := f.WriteAt(text, max(0, w.size-1)); err != nil {
		return err
	}
	w.size = max(0, w.size-1) + int64(len(text))
	w.traces++
	return nil
}

// appendTo writes the record's objects, each with a comma before it.
func (r *record) appendTo(b []byte) ([]byte, error) {
	put := func(v any) error {
		text, err := json.Marshal(v)
		b = append(append(b, ','), text...)
		return err
	}
	head := struct {
		ID      uint64 `json:"id"`
		Model   string `json:"model_name"`
		Version int64  `json:"model_version"`
		Request string `json:"request_id,omitempty"`
		Parent  uint64 `json:"parent_id,omitempty"`
	}{r.ID, r.Model, r.Version, r.Request, r.Parent}
	if err := put(head); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.Stamps, func(a, b stamp) int { return int(a.NS - b.NS) })
	if len(r.Stamps) > 0 {
		if err := put(struct {
			ID     uint64  `json:"id"`
			Stamps []stamp `json:"timestamps"`
		}{r.ID, r.Stamps}); err != nil {
			return nil, err
		}
	}
	for _, t := range r.Tensors {
		if err := put(struct {
			ID       uint64      `json:"id"`
			Activity string      `json:"activity"`
			Tensor   shownTensor `json:"tensor"`
		}{r.ID, t.name, t.shown}); err != nil {
			return nil, err
		}
	}
	return b, nil
}
