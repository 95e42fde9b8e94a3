package detect_test

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer/detect"
	"github.com/vedette/vedette/infer/tensor"
)

// rounded changes every number of an ONNX file's float weights, given the largest of its tensor.
func rounded(t *testing.T, model []byte, round func(v, largest float32) float32) []byte {
	t.Helper()
	const graph, initializer, dataType, raw, float = 7, 5, 2, 9, 1
	edit := func(msg []byte, field protowire.Number, change func([]byte) []byte) []byte {
		var out []byte
		for len(msg) > 0 {
			num, typ, tag := protowire.ConsumeTag(msg)
			size := protowire.ConsumeFieldValue(num, typ, msg[tag:])
			if tag < 0 || size < 0 {
				t.Fatal("not an ONNX file")
			}
			if num == field && typ == protowire.BytesType {
				content, _ := protowire.ConsumeBytes(msg[tag:])
				out = protowire.AppendBytes(append(out, msg[:tag]...), change(content))
			} else {
				out = append(out, msg[:tag+size]...)
			}
			msg = msg[tag+size:]
		}
		return out
	}
	return edit(model, graph, func(g []byte) []byte {
		return edit(g, initializer, func(weights []byte) []byte {
			isFloat := false
			for rest := weights; len(rest) > 0; {
				num, typ, tag := protowire.ConsumeTag(rest)
				if num == dataType && typ == protowire.VarintType {
					v, _ := protowire.ConsumeVarint(rest[tag:])
					isFloat = v == float
				}
				rest = rest[tag+protowire.ConsumeFieldValue(num, typ, rest[tag:]):]
			}
			if !isFloat {
				return weights
			}
			return edit(weights, raw, func(b []byte) []byte {
				out := append([]byte(nil), b...)
				largest := float32(0)
				at := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(out[i:])) }
				for i := 0; i+4 <= len(out); i += 4 {
					largest = max(largest, at(i), -at(i))
				}
				for i := 0; i+4 <= len(out); i += 4 {
					binary.LittleEndian.PutUint32(out[i:], math.Float32bits(round(at(i), largest)))
				}
				return out
			})
		})
	})
}

// street takes pictures of the demo's clip.
func streetPictures(t *testing.T) [][]byte {
	t.Helper()
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not installed")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), ffmpeg, "-v", "error", "-i", "../../appliance/demo/clip/street.h264",
		"-vf", `select=not(mod(n\,60))`, "-fps_mode", "passthrough", "-frames:v", "6", filepath.Join(dir, "%d.jpg")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.jpg"))
	if err != nil || len(names) != 6 {
		t.Fatal(names, err)
	}
	var pictures [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, b)
	}
	return pictures
}

func TestHalfPrecisionAgreesAndFourBitsDoNot(t *testing.T) {
	pictures := streetPictures(t)
	see := func(repository string) [][]detect.Box {
		d, err := detect.Open(t.Context(), config(t, repository))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}()
		var all [][]detect.Box
		for _, p := range pictures {
			found, err := d.Detect(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found)
		}
		return all
	}
	reference := shipped(t, "", "", "")
	want := see(reference)
	model, err := os.ReadFile(filepath.Join(reference, "detector", "1", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		round func(v, largest float32) float32
		taken bool
	}{
		{"half precision", func(v, _ float32) float32 { return tensor.FP16ToFloat32(tensor.Float32ToFP16(v)) }, true},
		{"four bits", func(v, largest float32) float32 {
			if largest == 0 {
				return 0
			}
			return float32(math.Round(float64(v/largest*7))) / 7 * largest
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := shipped(t, "", "", "")
			if err := os.WriteFile(filepath.Join(dir, "detector", "1", "model.onnx"), rounded(t, model, c.round), 0o600); err != nil {
				t.Fatal(err)
			}
			var a detect.Agreement
			for i, got := range see(dir) {
				a.Add(want[i], got, 0.3)
			}
			err := a.Check(detect.DefaultLimits())
			t.Logf("%+v F1 %.3f: %v", a, a.F1(), err)
			if (err == nil) != c.taken {
				t.Errorf("%+v: %v", a, err)
			}
		})
	}
}
