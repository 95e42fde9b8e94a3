package av_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"os/exec"
	"testing"

	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

// What people see has the colours that ffmpeg's own picture of the same stream has.
func TestJPEGHasTheColoursOfTheStream(t *testing.T) {
	const side, boxes = 128, "drawbox=x=64:w=64:h=64:c=0xC03028:t=fill,drawbox=y=64:w=64:h=64:c=0x2848B0:t=fill,drawbox=x=64:y=64:w=64:h=64:c=0xE0C040:t=fill"
	flags := func(matrix, range_ string, more ...string) []string {
		return append([]string{"-vf", boxes + ",scale=out_color_matrix=" + matrix + ":out_range=" + range_ + ":flags=accurate_rnd", "-color_range", range_}, more...)
	}
	for _, c := range []struct {
		name   string
		codec  string
		extra  []string
		matrix av.Matrix
		full   bool
	}{
		{"BT.601", "h264", flags("bt601", "tv", "-colorspace", "smpte170m"), av.BT601, false},
		{"nothing said", "h264", []string{"-vf", boxes}, av.BT601, false},
		{"BT.709", "h264", flags("bt709", "tv", "-colorspace", "bt709"), av.BT709, false},
		{"BT.709, full range", "h264", flags("bt709", "pc", "-colorspace", "bt709"), av.BT709, true},
		{"BT.2020, 10 bit", "h265", flags("bt2020", "tv", "-colorspace", "bt2020nc", "-pix_fmt", "yuv420p10le"), av.BT2020, false},
		{"4:4:4", "h264", flags("bt709", "tv", "-colorspace", "bt709", "-pix_fmt", "yuv444p"), av.BT709, false},
		{"monochrome", "h264", []string{"-vf", boxes, "-pix_fmt", "gray", "-color_range", "tv", "-x264opts", "fullrange=off"}, av.BT601, false},
		{"monochrome, full range", "h264", []string{"-vf", boxes, "-pix_fmt", "gray", "-color_range", "pc"}, av.BT601, true},
		{"RGB", "h264", []string{"-vf", boxes, "-c:v", "libx264rgb", "-pix_fmt", "rgb24", "-qp", "8"}, av.BT601, false},
		{"MJPEG", "mjpeg", []string{"-vf", boxes, "-q:v", "2"}, av.BT601, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clip := rtsptest.Render(t, rtsptest.ClipConfig{Codec: c.codec, Width: side, Height: side, Frames: 1, Source: "color=c=0x30A050", Extra: c.extra})
			coded, codec, form := annexB(clip.Units[0]), av.H264, "h264"
			switch c.codec {
			case "h265":
				codec, form = av.H265, "hevc"
			case "mjpeg":
				coded, codec, form = clip.Units[0].NALUs[0], av.MJPEG, "mjpeg"
			}
			d := decoder(t, av.DecoderConfig{Codec: codec})
			if err := d.Send(coded, 0); err != nil {
				t.Fatal(err)
			}
			d.Drain()
			var p av.Picture
			defer p.Close()
			if ok, err := d.Receive(&p); !ok {
				t.Fatal(err)
			}
			if p.Matrix != c.matrix || p.FullRange != c.full {
				t.Errorf("matrix %d, full range %v", p.Matrix, p.FullRange)
			}
			pixels := make([]byte, side*side*3/2)
			if err := p.I420(pixels); err != nil {
				t.Fatal(err)
			}
			b, _, err := av.JPEG(av.Still{Pixels: pixels, Width: side, Height: side, FullRange: p.FullRange, Matrix: p.Matrix}, image.Rectangle{}, 0, 98)
			if err != nil {
				t.Fatal(err)
			}
			img, err := jpeg.Decode(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-f", form, "-i", "-", "-vf", "scale=flags=accurate_rnd+full_chroma_int", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
			cmd.Stdin = bytes.NewReader(coded)
			want, err := cmd.Output()
			if err != nil || len(want) != 3*side*side {
				t.Fatalf("ffmpeg: %d bytes, %v", len(want), err)
			}
			// Away from edges, where chroma is made out of fewer samples in one way or another.
			flat := func(i int) bool {
				for _, step := range []int{-4 * side, -4, 4, 4 * side} {
					for n := range 3 {
						if j := i + step; j < 0 || j >= side*side || max(want[3*i+n], want[3*j+n])-min(want[3*i+n], want[3*j+n]) > 3 {
							return false
						}
					}
				}
				return true
			}
			seen, off := 0, 0
			for i := range side * side {
				if !flat(i) {
					continue
				}
				r, g, b, _ := img.At(i%side, i/side).RGBA()
				for n, v := range []uint32{r, g, b} {
					diff := int(v>>8) - int(want[3*i+n])
					seen, off = seen+1, off+max(diff, -diff)
				}
			}
			if mean := float64(off) / float64(seen); seen < side*side || mean > 1.5 {
				t.Errorf("%.2f levels off on average of %d values", mean, seen)
			}
		})
	}
}
