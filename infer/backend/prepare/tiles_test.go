package prepare

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pixels"
)

const tiled = `max_batch_size: 1
output { name: "IMAGE" data_type: TYPE_FP32 dims: [3, 32, 32] } output { name: "GEOMETRY" data_type: TYPE_FP32 dims: 6 }
output { name: "TILE" data_type: TYPE_FP32 dims: 4 }
`

const withROI = `input { name: "FRAME" data_type: TYPE_UINT8 dims: -1 } input { name: "FRAME_INFO" data_type: TYPE_INT64 dims: 8 }
input { name: "ROI" data_type: TYPE_FP32 dims: 4 optional: true } `

func TestTilesShowWhatTheirPartOfTheFrameShows(t *testing.T) {
	const w, h = 200, 120
	src, info := smooth(rand.New(rand.NewPCG(3, 4)), w, h), frame.Info{Format: frame.I420, Width: w, Height: h}.Values()
	r, err := run(t, mustLoad(t, tiled+set("tiles", "3x2")), src, info)
	if err != nil {
		t.Fatal(err)
	}
	image, geometry, tile := r.Output("IMAGE"), r.Output("GEOMETRY"), tensor.Float32s(r.Output("TILE").Data)
	if !slices.Equal(image.Shape, []int64{7, 3, 32, 32}) || !slices.Equal(geometry.Shape, []int64{7, 6}) {
		t.Fatalf("IMAGE %v, GEOMETRY %v: want 7 rows", image.Shape, geometry.Shape)
	}
	if whole := tile[24:]; !slices.Equal(whole, []float32{0, 0, w, h}) {
		t.Errorf("the last shows %v, not the whole", whole)
	}
	alone := mustLoad(t, withROI+tiled)
	for i := range 7 {
		one, err := run(t, alone, src, info, floats("ROI", tile[4*i:][:4]))
		if err != nil {
			t.Fatal(err)
		}
		for name, row := range map[string][]byte{"IMAGE": image.Data[i*12*32*32:][:12*32*32], "GEOMETRY": geometry.Data[i*24:][:24]} {
			if !bytes.Equal(one.Output(name).Data, row) {
				t.Errorf("%s of tile %d is not that of the region %v", name, i, tile[4*i:][:4])
			}
		}
	}
}

func floats(name string, v []float32) tensor.Tensor {
	return tensor.Tensor{Name: name, DataType: tensor.FP32, Shape: []int64{1, int64(len(v))}, Data: tensor.AsBytes(v)}
}

func TestTilesCoverTheFrameAndOverlap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		ts := tiling{columns: 1 + rnd.IntN(5), rows: 1 + rnd.IntN(5), overlap: rnd.Float64() / 2}
		area := pixels.Rect{X: rnd.IntN(50), Y: rnd.IntN(50), W: 1 + rnd.IntN(400), H: 1 + rnd.IntN(400)}
		right, bottom := area.X, area.Y
		for i := range ts.count() {
			p := ts.tile(i, area)
			if p.W < 1 || p.H < 1 || p.X < area.X || p.Y < area.Y || p.X+p.W > area.X+area.W || p.Y+p.H > area.Y+area.H {
				t.Fatalf("%+v: tile %d of %v is %v", ts, i, area, p)
			}
			if i%ts.columns == 0 {
				right = area.X
				if p.Y > bottom {
					t.Fatalf("%+v: rows of %v leave a gap before %v", ts, area, p)
				}
				bottom = p.Y + p.H
			}
			if p.X > right {
				t.Fatalf("%+v: columns of %v leave a gap before %v", ts, area, p)
			}
			right = p.X + p.W
			if i%ts.columns == ts.columns-1 && right != area.X+area.W {
				t.Fatalf("%+v: a row of %v ends at %d", ts, area, right)
			}
		}
		if bottom != area.Y+area.H {
			t.Fatalf("%+v: the rows of %v end at %d", ts, area, bottom)
		}
	}
}

func TestTilesThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{tiled + set("tiles", "9x9"), "at most 64 tiles"},
		{tiled + set("tiles", "two"), "is not COLUMNSxROWS"},
		{tiled + set("tiles", "2x2", "tile_overlap", "0.7"), "parameters[tile_overlap]"},
		{tiled + set("tiles", "2x2", "tile_whole", "perhaps"), "parameters[tile_whole]"},
		{strings.Replace(tiled, "max_batch_size: 1", "", 1) + set("tiles", "2x2"), "set max_batch_size"},
	} {
		if _, err := load(t, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestTheMaskTellsThePictureFromItsPadding(t *testing.T) {
	const letterboxed = `output { name: "IMAGE" data_type: TYPE_FP32 dims: [3, 64, 64] } output { name: "PIXEL_MASK" data_type: TYPE_INT64 dims: [4, 4] } `
	r, err := run(t, mustLoad(t, letterboxed+set("family", "detr", "resize", "letterbox")), make([]byte, 128*64), [frame.InfoLen]int64{FormatGray, 128, 64})
	if err != nil {
		t.Fatal(err)
	}
	mask := r.Output("PIXEL_MASK")
	want := []int64{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}
	if got := tensor.View[int64](mask.Data); !slices.Equal(got, want) || !slices.Equal(mask.Shape, []int64{4, 4}) {
		t.Errorf("got %v of shape %v, want %v", got, mask.Shape, want)
	}
	if _, err := load(t, `output { name: "IMAGE" data_type: TYPE_FP32 dims: [3, 64, 64] } output { name: "PIXEL_MASK" data_type: TYPE_INT64 dims: [4] }`); err == nil ||
		!strings.Contains(err.Error(), "PIXEL_MASK") {
		t.Errorf("a mask of one dimension: %v", err)
	}
}
