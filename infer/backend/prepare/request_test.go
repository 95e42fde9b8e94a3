package prepare

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/backendtest"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/race"
)

func TestGeometryLeadsBackToTheFrame(t *testing.T) {
	for _, c := range []struct {
		name, config string
		w, h         int64
		want         [6]float32
	}{
		{"top left", yolox, 1920, 1080, [6]float32{416. / 1920, 234. / 1080, 0, 0, 1920, 1080}},
		{"centred", nanodet, 1920, 1080, [6]float32{416. / 1920, 234. / 1080, 0, 91, 1920, 1080}},
		{"stretched", set("family", "rtdetr", "size", "640x320"), 1280, 960, [6]float32{0.5, 320. / 960, 0, 0, 1280, 960}},
		{"upright", nanodet, 480, 640, [6]float32{312. / 480, 416. / 640, 52, 0, 480, 640}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := run(t, mustLoad(t, c.config), make([]byte, c.w*c.h), [frame.InfoLen]int64{FormatGray, c.w, c.h})
			if err != nil {
				t.Fatal(err)
			}
			if g := tensor.Float32s(r.Output("GEOMETRY").Data); !slices.Equal(g, c.want[:]) {
				t.Errorf("got %v, want %v", g, c.want)
			}
		})
	}
}

// set writes parameters as a configuration.
func set(kv ...string) string {
	var b strings.Builder
	for i := 0; i < len(kv); i += 2 {
		b.WriteString(`parameters { key: "` + kv[i] + `" value { string_value: "` + kv[i+1] + `" } }` + "\n")
	}
	return b.String()
}

const square = `output { name: "IMAGE" data_type: TYPE_FP32 dims: [3, 8, 8] } output { name: "GEOMETRY" data_type: TYPE_FP32 dims: 6 } `

// colours is a picture of one colour: blue 10, green 100, red 200.
func colours(w, h int) []byte { return bytes.Repeat([]byte{10, 100, 200}, w*h) }

func TestEveryConventionOfNumbersAndLayout(t *testing.T) {
	info := [frame.InfoLen]int64{FormatBGR, 16, 16}
	for _, c := range []struct {
		name, config string
		want         []float64 // of the first pixel
		step         int       // between its channels
	}{
		{"as it is", square + set("family", "yolox"), []float64{10, 100, 200}, 64},
		{"red first, 0 to 1", square + set("family", "yolov8"), []float64{200. / 255, 100. / 255, 10. / 255}, 64},
		{
			"mean and deviation", square + set("family", "rfdetr"),
			[]float64{(200./255 - 0.485) / 0.229, (100./255 - 0.456) / 0.224, (10./255 - 0.406) / 0.225},
			64,
		},
		{"grey levels with a mean", square + set("family", "nanodet"), []float64{(10 - 103.53) / 57.375, (100 - 116.28) / 57.12, (200 - 123.675) / 58.395}, 64},
		{"overridden", square + set("family", "yolox", "color", "rgb", "divide", "10", "mean", "1", "std", "2"), []float64{9.5, 4.5, 0}, 64},
		{"channels side by side", strings.Replace(square, "[3, 8, 8]", "[8, 8, 3]", 1) + set("family", "yolox"), []float64{10, 100, 200}, 1},
		{
			"bytes, channels side by side", strings.Replace(square, "TYPE_FP32 dims: [3, 8, 8]", "TYPE_UINT8 dims: [1, 8, 8, 3]", 1) + set("family", "ssd"),
			[]float64{200, 100, 10},
			1,
		},
		{"half precision", strings.Replace(square, "TYPE_FP32 dims: [3, 8, 8]", "TYPE_FP16 dims: [3, 8, 8]", 1) + set("family", "yolox"), []float64{10, 100, 200}, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := run(t, mustLoad(t, c.config), colours(16, 16), info)
			if err != nil {
				t.Fatal(err)
			}
			out := r.Output("IMAGE")
			for k, w := range c.want {
				var got float64
				switch i := k * c.step; out.DataType {
				case tensor.Uint8:
					got = float64(out.Data[i])
				case tensor.FP16:
					got = float64(tensor.FP16ToFloat32(tensor.View[uint16](out.Data)[i]))
				default:
					got = float64(tensor.Float32s(out.Data)[i])
				}
				if math.Abs(got-w) > 1e-5 {
					t.Errorf("channel %d is %g, want %g", k, got, w)
				}
			}
		})
	}
}

func TestAllFormatsShowTheSamePicture(t *testing.T) {
	const w, h = 64, 48
	rnd := rand.New(rand.NewPCG(1, 1))
	i420 := smooth(rnd, w, h)
	nv12 := slices.Clone(i420[:w*h])
	for i := range w * h / 4 {
		nv12 = append(nv12, i420[w*h+i], i420[w*h+w*h/4+i])
	}
	in := mustLoad(t, yolox)
	a, err := run(t, in, i420, frame.Info{Format: frame.I420, Width: w, Height: h}.Values())
	if err != nil {
		t.Fatal(err)
	}
	b, err := run(t, in, nv12, frame.Info{Format: frame.NV12, Width: w, Height: h}.Values())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Output("IMAGE").Data, b.Output("IMAGE").Data) {
		t.Error("NV12 and I420 of one picture differ")
	}
	bgr := make([]byte, 3*w*h)
	rgba := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		bgr[3*i], bgr[3*i+1], bgr[3*i+2] = byte(i), byte(i/7), byte(255-i/16)
		rgba.SetRGBA(i%w, i/w, color.RGBA{R: bgr[3*i+2], G: bgr[3*i+1], B: bgr[3*i], A: 255})
	}
	var file bytes.Buffer
	if err := png.Encode(&file, rgba); err != nil {
		t.Fatal(err)
	}
	c, err := run(t, in, bgr, [frame.InfoLen]int64{FormatBGR, w, h})
	if err != nil {
		t.Fatal(err)
	}
	d, err := run(t, in, file.Bytes(), [frame.InfoLen]int64{FormatEncoded})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Output("IMAGE").Data, d.Output("IMAGE").Data) || !bytes.Equal(c.Output("GEOMETRY").Data, d.Output("GEOMETRY").Data) {
		t.Error("a PNG file and its pixels differ")
	}
}

// The matrices and ranges of H.264's table E-5 turn red, green and blue into YUV; a model sees what went in
// where it is to follow the stream.
func TestColoursAreThoseOfTheStream(t *testing.T) {
	const w, h = 16, 16
	red := [3]float64{200, 50, 40}
	weights := map[frame.Flags][2]float64{0: {0.299, 0.114}, frame.BT709: {0.2126, 0.0722}, frame.BT2020: {0.2627, 0.0593}}
	picture := func(matrix frame.Flags, full bool) []byte {
		kr, kb := weights[matrix][0], weights[matrix][1]
		y := kr*red[0] + (1-kr-kb)*red[1] + kb*red[2]
		u, v := (red[2]-y)/(2*(1-kb)), (red[0]-y)/(2*(1-kr))
		if !full {
			y, u, v = 16+y*219/255, u*224/255, v*224/255
		}
		b := bytes.Repeat([]byte{byte(y + 0.5)}, w*h)
		b = append(b, bytes.Repeat([]byte{byte(u + 128.5)}, w*h/4)...)
		return append(b, bytes.Repeat([]byte{byte(v + 128.5)}, w*h/4)...)
	}
	said := mustLoad(t, square+set("family", "yolox", "color", "rgb", "matrix", "stream"))
	unset := mustLoad(t, square+set("family", "yolox", "color", "rgb"))
	fixed := map[frame.Flags]backend.Instance{}
	for matrix, name := range map[frame.Flags]string{0: "bt601", frame.BT709: "bt709", frame.BT2020: "bt2020"} {
		fixed[matrix] = mustLoad(t, square+set("family", "yolox", "color", "rgb", "matrix", name))
	}
	for matrix := range weights {
		for _, full := range []bool{false, true} {
			flags := frame.Keyframe
			if full {
				flags |= frame.FullRange
			}
			pix := picture(matrix, full)
			by := map[backend.Instance]frame.Flags{said: flags | matrix, fixed[matrix]: flags | frame.BT709}
			if matrix == 0 {
				by[unset] = flags | frame.BT709
			}
			for in, flags := range by {
				r, err := run(t, in, pix, frame.Info{Format: frame.I420, Width: w, Height: h, Flags: flags}.Values())
				if err != nil {
					t.Fatal(err)
				}
				got := tensor.Float32s(r.Output("IMAGE").Data)
				for c, want := range red {
					if d := float64(got[64*c]) - want; d > 2 || d < -2 {
						t.Errorf("matrix %d, full range %v: channel %d is %.1f, not %.0f", matrix, full, c, got[64*c], want)
					}
				}
			}
		}
	}
}

func TestARegionIsLookedAtAlone(t *testing.T) {
	const w, h = 64, 48
	pix := make([]byte, w*h)
	for y := 16; y < 32; y++ {
		for x := 32; x < 48; x++ {
			pix[y*w+x] = 200
		}
	}
	roi := tensor.Tensor{Name: "ROI", DataType: tensor.FP32, Shape: []int64{4}, Data: tensor.AsBytes([]float32{32, 16, 48, 32})}
	r, err := run(t, mustLoad(t, square+set("family", "yolox")), pix, [frame.InfoLen]int64{FormatGray, w, h}, roi)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range tensor.Float32s(r.Output("IMAGE").Data) {
		if v != 200 {
			t.Fatalf("value %d is %g: something outside the region shows", i, v)
		}
	}
	// The corner of IMAGE is the corner of the region.
	g := tensor.Float32s(r.Output("GEOMETRY").Data)
	if x, y := (0-g[2])/g[0], (0-g[3])/g[1]; x != 32 || y != 16 {
		t.Errorf("the corner lies at %g,%g, want 32,16", x, y)
	}
}

func TestExtraInputsOfSomeDetectorsAreMade(t *testing.T) {
	r, err := run(t, mustLoad(t, square+`output { name: "TARGET_SIZE" data_type: TYPE_INT64 dims: 2 } output { name: "SCALE_FACTOR" data_type: TYPE_FP32 dims: 2 }`),
		colours(4, 4), [frame.InfoLen]int64{FormatBGR, 4, 4})
	if err != nil {
		t.Fatal(err)
	}
	if v := tensor.View[int64](r.Output("TARGET_SIZE").Data); !slices.Equal(v, []int64{8, 8}) {
		t.Errorf("TARGET_SIZE %v", v)
	}
	if v := tensor.Float32s(r.Output("SCALE_FACTOR").Data); !slices.Equal(v, []float32{1, 1}) {
		t.Errorf("SCALE_FACTOR %v", v)
	}
}

func TestFramesThatDoNotFitTheirInfoAreRefused(t *testing.T) {
	var small bytes.Buffer
	if err := jpeg.Encode(&small, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Clone(small.Bytes())
	// The frame header of a baseline JPEG: FF C0, length, precision, height, width.
	at := bytes.Index(bomb, []byte{0xff, 0xc0})
	copy(bomb[at+5:], []byte{0xff, 0xff, 0xff, 0xff})
	nan := tensor.Tensor{Name: "ROI", DataType: tensor.FP32, Shape: []int64{4}, Data: tensor.AsBytes([]float32{float32(math.NaN()), 0, 1, 1})}
	outside := tensor.Tensor{Name: "ROI", DataType: tensor.FP32, Shape: []int64{4}, Data: tensor.AsBytes([]float32{100, 100, 200, 200})}
	for _, c := range []struct {
		name string
		pix  []byte
		info [frame.InfoLen]int64
		more []tensor.Tensor
		want string
	}{
		{"one byte too few", make([]byte, 23), [frame.InfoLen]int64{int64(frame.I420), 4, 4}, nil, "FRAME has 23 bytes"},
		{"a format nobody knows", make([]byte, 24), [frame.InfoLen]int64{77, 4, 4}, nil, "format 77"},
		{"a negative width", nil, [frame.InfoLen]int64{FormatBGR, -4, 4}, nil, "-4×4 pixels"},
		{"sides whose product overflows", nil, [frame.InfoLen]int64{FormatBGR, 1 << 40, 1 << 40}, nil, "must be within"},
		{"pixels of another size", make([]byte, 10), [frame.InfoLen]int64{FormatBGR, 4, 4}, nil, "which is 48"},
		{"no picture file", []byte("not a picture"), [frame.InfoLen]int64{FormatEncoded}, nil, "neither JPEG nor PNG"},
		{"a truncated file", small.Bytes()[:20], [frame.InfoLen]int64{FormatEncoded}, nil, "FRAME"},
		{"a file that would unfold", bomb, [frame.InfoLen]int64{FormatEncoded}, nil, "at most"},
		{"a region that is no rectangle", colours(4, 4), [frame.InfoLen]int64{FormatBGR, 4, 4}, []tensor.Tensor{nan}, "is not a rectangle"},
		{"a region beside the frame", colours(4, 4), [frame.InfoLen]int64{FormatBGR, 4, 4}, []tensor.Tensor{outside}, "does not meet the frame"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, mustLoad(t, yolox), c.pix, c.info, c.more...)
			if err == nil || !strings.Contains(err.Error(), c.want) || infer.CodeOf(err) != infer.InvalidArgument {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"a family there is not", square + set("family", "yolo99"), `parameters[family]: "yolo99" is not one of yolox`},
		{"a colour order there is not", square + set("color", "grb"), `parameters[color]: "grb" is not one of bgr, rgb`},
		{"a division by nothing", square + set("divide", "0"), "nothing can be divided by 0"},
		{"two numbers for three channels", square + set("mean", "1,2"), "neither one number nor three"},
		{"no size at all", "", "set output IMAGE to dims"},
		{"a size that contradicts the output", square + set("size", "416"), "contradict parameters[size] 416x416"},
		{"a size that is none", set("size", "4x-4"), "WIDTHxHEIGHT"},
		{"four channels", strings.Replace(square, "[3, 8, 8]", "[4, 8, 8]", 1), "neither [3, height, width] nor"},
		{"a free side", strings.Replace(square, "[3, 8, 8]", "[3, -1, -1]", 1), "needs a size here"},
		{"an input nobody knows", square + `input { name: "X" data_type: TYPE_FP32 dims: 1 }`, "not one of FRAME, FRAME_INFO, ROI"},
		{"whole numbers as image", strings.Replace(square, "TYPE_FP32 dims: [3", "TYPE_INT32 dims: [3", 1), "is not TYPE_FP32, TYPE_FP16 or TYPE_UINT8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestASteadyStreamOfFramesAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's pools forget; the run without it counts")
	}
	info := frame.Info{Format: frame.I420, Width: 640, Height: 360}
	in, o := mustLoad(t, yolox), &backendtest.Owner{Reuse: true}
	jobs := []*backend.Job{job(o, make([]byte, info.Format.Size(640, 360)), info.Values())}
	n := testing.AllocsPerRun(50, func() {
		in.Execute(t.Context(), jobs)
		o.Response.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(make([]byte, 24), int64(1), int64(4), int64(4))
	f.Add([]byte{0xff, 0xd8, 0xff}, int64(FormatEncoded), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, pix []byte, format, w, h int64) {
		r, err := run(t, mustLoad(t, yolox), pix, [frame.InfoLen]int64{format, w, h})
		if err != nil {
			return
		}
		for i, v := range tensor.Float32s(r.Output("IMAGE").Data) {
			if !(v >= 0 && v <= 255) {
				t.Fatalf("value %d is %g", i, v)
			}
		}
	})
}
