package adopt_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/appliance/demo/scene"
	"github.com/vedette/vedette/infer/adopt"
	"github.com/vedette/vedette/infer/tensor"
)

// street are pictures of the demo's street, which the demo's detector knows.
func street(t *testing.T, frames ...int) (pictures [][]byte) {
	t.Helper()
	s := scene.New(1)
	for _, n := range frames {
		img := image.NewYCbCr(image.Rect(0, 0, scene.Width, scene.Height), image.YCbCrSubsampleRatio420)
		pixels := make([]byte, scene.Width*scene.Height*3/2)
		s.Draw(n, pixels)
		y := scene.Width * scene.Height
		copy(img.Y, pixels[:y])
		copy(img.Cb, pixels[y:y+y/4])
		copy(img.Cr, pixels[y+y/4:])
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, b.Bytes())
	}
	return pictures
}

// rewrite copies a message; change returns what stands in the place of a field that has a length.
func rewrite(t *testing.T, msg []byte, change func(n protowire.Number, content []byte) []byte) []byte {
	t.Helper()
	var out []byte
	for len(msg) > 0 {
		n, typ, tag := protowire.ConsumeTag(msg)
		size := protowire.ConsumeFieldValue(n, typ, msg[tag:])
		if tag < 0 || size < 0 {
			t.Fatal("no protobuf message")
		}
		if typ == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(msg[tag:])
			out = append(out, change(n, content)...)
		} else {
			out = append(out, msg[:tag+size]...)
		}
		msg = msg[tag+size:]
	}
	return out
}

func field(n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), content)
}

func varint(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

// halved keeps a model's weights as half floats, each widened by a Cast when it is needed; change may damage them.
func halved(t *testing.T, model []byte, change func(float32) float32) []byte {
	t.Helper()
	return rewrite(t, model, func(n protowire.Number, graph []byte) []byte {
		if n != 7 {
			return field(n, graph)
		}
		var casts []byte
		graph = rewrite(t, graph, func(n protowire.Number, part []byte) []byte {
			if n != 5 {
				return field(n, part)
			}
			var name, raw []byte
			weights := rewrite(t, part, func(n protowire.Number, content []byte) []byte {
				switch n {
				case 8:
					name = content
					return field(8, append(bytes.Clone(content), "_half"...))
				case 9:
					raw = content
					return nil
				default:
				}
				return field(n, content)
			})
			// Small and whole ones stay as they are.
			if len(raw) < 64 || !bytes.Contains(part, []byte{2 << 3, 1}) {
				return field(n, part)
			}
			var small []byte
			for ; len(raw) >= 4; raw = raw[4:] {
				v := change(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
				small = binary.LittleEndian.AppendUint16(small, tensor.Float32ToFP16(v))
			}
			weights = append(weights, field(9, small)...)
			weights = append(weights, varint(2, 10)...) // the last type counts
			to := append(append(field(1, []byte("to")), varint(3, 1)...), varint(20, 2)...)
			cast := field(1, append(bytes.Clone(name), "_half"...))
			cast = append(cast, field(2, name)...)
			cast = append(cast, field(4, []byte("Cast"))...)
			cast = append(cast, field(5, to)...)
			casts = append(casts, field(1, cast)...)
			return field(n, weights)
		})
		return field(n, append(casts, graph...))
	})
}

func TestAModelOfLowerPrecisionHasToAgreeWithItsReference(t *testing.T) {
	model, err := os.ReadFile(demoDetector)
	if err != nil {
		t.Fatal(err)
	}
	variant := func(change func(float32) float32) string {
		path := filepath.Join(t.TempDir(), "half.onnx")
		if err := os.WriteFile(path, halved(t, model, change), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := variant(func(v float32) float32 { return v })
	blind := variant(func(v float32) float32 { return float32(math.Round(float64(4*v)) / 4) })
	labels := scene.Classes()
	run := func(file, reference string, unchecked bool, pictures [][]byte) (*adopt.Report, error) {
		cfg := config(t, file, "x")
		cfg.Labels, cfg.Reference, cfg.Unchecked, cfg.Pictures = labels, reference, unchecked, pictures
		return adopt.Run(t.Context(), cfg)
	}
	pictures := street(t, 0, 300, 600)
	if r, err := run(good, demoDetector, false, pictures); err != nil || r.Precision != "fp16" || r.Agreement < 0.95 {
		t.Errorf("a good variant: %+v, %v", r, err)
	}
	for _, c := range []struct {
		name, file, reference, want string
		pictures                    [][]byte
	}{
		{"a blind variant", blind, demoDetector, "eyesight", pictures},
		{"no reference", good, "", "compare it with", pictures},
		{"nothing to see", good, demoDetector, "too little", [][]byte{grey(t)}},
		{"a reference that is none", good, "agree_test.go", "the reference:", pictures},
	} {
		if _, err := run(c.file, c.reference, false, c.pictures); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := run(blind, "", true, pictures); err != nil {
		t.Errorf("unchecked: %v", err)
	}
}
