package image

import (
	"bytes"
	stdimage "image"
	"image/color"
	"image/jpeg"
	"image/png"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
)

const file = `input { name: "FILE" data_type: TYPE_STRING dims: 1 } `

func model(t *testing.T, config string) *backend.Model {
	t.Helper()
	c := &inference.ModelConfig{}
	if err := prototext.Unmarshal([]byte(config), c); err != nil {
		t.Fatal(err)
	}
	return &backend.Model{Name: "open", Config: c, Logger: slog.New(slog.DiscardHandler)}
}

func run(t *testing.T, config string, batch int, files ...string) (*infer.Response, error) {
	t.Helper()
	in, err := New().NewInstance(t.Context(), model(t, config), backend.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	o := &backendtest.Owner{}
	in.Execute(t.Context(), []*backend.Job{{Request: &infer.Request{}, Owner: o, Batch: batch, Inputs: []tensor.Tensor{
		{Name: "FILE", DataType: tensor.Bytes, Shape: []int64{int64(len(files))}, Data: tensor.EncodeStrings(files...)},
	}}})
	return o.Response, o.Err
}

// plain is a file of one colour: red 200, green 100, blue 10.
func plain(t *testing.T, w, h int) string {
	t.Helper()
	m := stdimage.NewRGBA(stdimage.Rect(0, 0, w, h))
	for i := range w * h {
		m.SetRGBA(i%w, i/w, color.RGBA{R: 200, G: 100, B: 10, A: 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPicturesComeInTheFormAskedFor(t *testing.T) {
	for _, c := range []struct {
		name, config string
		shape        []int64
		want         []float32 // of the first pixel
		step         int
	}{
		{"planes of floats", `output { name: "P" data_type: TYPE_FP32 dims: [3, 4, 6] }`, []int64{3, 4, 6}, []float32{200, 100, 10}, 24},
		{"as it is", `output { name: "P" data_type: TYPE_UINT8 dims: [-1, -1, 3] }`, []int64{5, 8, 3}, []float32{200, 100, 10}, 1},
		{
			"-1 to 1", `output { name: "P" data_type: TYPE_FP32 dims: [4, 6, 3] } parameters { key: "scaling" value { string_value: "inception" } }`,
			[]int64{4, 6, 3},
			[]float32{200/127.5 - 1, 100/127.5 - 1, 10/127.5 - 1},
			1,
		},
		{
			"mean subtracted, blue first", `output { name: "P" data_type: TYPE_FP32 dims: [3, 4, 6] } parameters { key: "scaling" value { string_value: "vgg" } }
			 parameters { key: "color" value { string_value: "bgr" } }`, []int64{3, 4, 6}, []float32{10 - 104, 100 - 117, 200 - 123}, 24,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := run(t, file+c.config, 1, plain(t, 8, 5))
			if err != nil {
				t.Fatal(err)
			}
			o := r.Output("P")
			if !slices.Equal(o.Shape, c.shape) {
				t.Errorf("shape %v, want %v", o.Shape, c.shape)
			}
			for k, w := range c.want {
				got := float32(0)
				if o.DataType == tensor.Uint8 {
					got = float32(o.Data[k*c.step])
				} else {
					got = tensor.Float32s(o.Data)[k*c.step]
				}
				if math.Abs(float64(got-w)) > 1e-4 {
					t.Errorf("channel %d is %g, want %g", k, got, w)
				}
			}
		})
	}
}

func TestABatchOfFilesIsOneTensor(t *testing.T) {
	r, err := run(t, file+`max_batch_size: 4 output { name: "P" data_type: TYPE_UINT8 dims: [3, 2, 2] } output { name: "SIZE" data_type: TYPE_INT64 dims: 2 }`,
		2, plain(t, 8, 5), plain(t, 3, 3))
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Output("P").Shape; !slices.Equal(s, []int64{2, 3, 2, 2}) {
		t.Errorf("shape %v", s)
	}
	if v := tensor.View[int64](r.Output("SIZE").Data); !slices.Equal(v, []int64{8, 5, 3, 3}) {
		t.Errorf("sizes %v", v)
	}
}

func TestFilesThatAreNoPicturesAreRefused(t *testing.T) {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, stdimage.NewGray(stdimage.Rect(0, 0, 16, 16)), nil); err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Clone(b.Bytes())
	copy(bomb[bytes.Index(bomb, []byte{0xff, 0xc0})+5:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, c := range map[string]struct{ file, want string }{
		"text": {"hello", "neither JPEG nor PNG"}, "nothing": {"", "neither JPEG nor PNG"},
		"half a file": {b.String()[:30], "neither JPEG nor PNG"}, "a file that would unfold": {string(bomb), "at most"},
	} {
		_, err := run(t, file+`output { name: "P" data_type: TYPE_UINT8 dims: [3, 2, 2] }`, 1, c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) || infer.CodeOf(err) != infer.InvalidArgument {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	const picture = `output { name: "P" data_type: TYPE_UINT8 dims: [3, 2, 2] }`
	for name, c := range map[string]struct{ config, want string }{
		"no input":               {picture, "input must be one TYPE_STRING [1]"},
		"no output":              {file, "no output for the picture"},
		"two pictures":           {file + picture + picture, "there is one picture"},
		"four channels":          {file + `output { name: "P" data_type: TYPE_UINT8 dims: [4, 2, 2] }`, "neither [3, height, width]"},
		"one free side":          {file + `output { name: "P" data_type: TYPE_UINT8 dims: [3, -1, 2] }`, "must both be -1"},
		"a scaling there is not": {file + picture + `parameters { key: "scaling" value { string_value: "log" } }`, "parameters[scaling]"},
		"a batch of any size":    {file + `max_batch_size: 8 output { name: "P" data_type: TYPE_UINT8 dims: [3, -1, -1] }`, "cannot share a batch"},
	} {
		if err := New().Complete(t.Context(), model(t, c.config)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestX7Conformance(t *testing.T) {
	backendtest.Run(t, backendtest.Case{
		Backend: New(), Model: model(t, file+`output { name: "P" data_type: TYPE_FP32 dims: [3, 4, 4] } output { name: "SIZE" data_type: TYPE_INT64 dims: 2 }`),
		Inputs: func(int) []tensor.Tensor {
			return []tensor.Tensor{{Name: "FILE", DataType: tensor.Bytes, Shape: []int64{1}, Data: tensor.EncodeStrings(plain(t, 5, 5))}}
		},
	})
}
