package prepare

import (
	"errors"
	"fmt"
	"math"

	"gocv.io/x/gocv"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/pixels"
)

// source is an opened FRAME: pixels the kernel can read.
type source struct {
	data          []byte
	format        pixels.Format
	width, height int
	flags         frame.Flags
	decoded       *gocv.Mat // owns data, if not nil
}

func (s *source) close() {
	if s.decoded != nil {
		_ = s.decoded.Close() // frees memory, cannot fail
	}
}

// open checks what FRAME_INFO says against the bytes of FRAME.
func open(data []byte, info []int64) (source, error) {
	if len(info) != frame.InfoLen {
		return source{}, fmt.Errorf("FRAME_INFO has %d elements, not %d", len(info), frame.InfoLen)
	}
	var f pixels.Format
	switch info[frame.InfoFormat] {
	case FormatEncoded:
		return decode(data)
	case FormatBGR:
		f = pixels.BGR
	case FormatRGB:
		f = pixels.RGB
	case FormatGray:
		f = pixels.Gray
	default:
		i, err := frame.ParseInfo(info, len(data))
		if err != nil {
			return source{}, err
		}
		f = pixels.I420
		if i.Format == frame.NV12 {
			f = pixels.NV12
		}
		return source{data: data, format: f, width: i.Width, height: i.Height, flags: i.Flags}, nil
	}
	w, h := info[frame.InfoWidth], info[frame.InfoHeight]
	if w < 1 || h < 1 || w > frame.MaxSide || h > frame.MaxSide {
		return source{}, fmt.Errorf("FRAME_INFO: %d×%d pixels, each side must be within 1 and %d", w, h, frame.MaxSide)
	}
	if n := f.Size(int(w), int(h)); n != len(data) {
		return source{}, fmt.Errorf("FRAME has %d bytes, FRAME_INFO says format %d of %d×%d pixels, which is %d",
			len(data), info[frame.InfoFormat], w, h, n)
	}
	return source{data: data, format: f, width: int(w), height: int(h)}, nil
}

// maxPixels bounds what a small file may unfold into.
const maxPixels = 64 << 20

// decode unpacks a JPEG or PNG file.
func decode(data []byte) (source, error) {
	w, h, err := encodedSize(data)
	if err != nil {
		return source{}, fmt.Errorf("FRAME: %w", err)
	}
	if w < 1 || h < 1 || w*h > maxPixels {
		return source{}, fmt.Errorf("FRAME: a picture of %d×%d pixels, at most %d are decoded", w, h, maxPixels)
	}
	m, err := gocv.IMDecode(data, gocv.IMReadColor)
	if err != nil || m.Empty() {
		return source{}, errors.New("FRAME: the picture is damaged: it could not be decoded")
	}
	b, err := m.DataPtrUint8()
	if err != nil {
		_ = m.Close()
		return source{}, fmt.Errorf("FRAME: decoded picture: %w", err)
	}
	return source{data: b, format: pixels.BGR, width: m.Cols(), height: m.Rows(), decoded: &m}, nil
}

// cropOf reads ROI: x1, y1, x2, y2 in frame pixels, clipped to the frame.
func cropOf(roi *tensor.Tensor, w, h int) (pixels.Rect, error) {
	if roi == nil {
		return pixels.Rect{W: w, H: h}, nil
	}
	v := tensor.View[float32](roi.Data)
	if len(v) != 4 {
		return pixels.Rect{}, fmt.Errorf("ROI has %d elements, not 4", len(v))
	}
	for _, x := range v {
		if math.IsNaN(float64(x)) {
			return pixels.Rect{}, fmt.Errorf("ROI %v is not a rectangle", v)
		}
	}
	clip := func(x float32, side int) int { return int(min(max(x, 0), float32(side))) }
	x1, y1, x2, y2 := clip(v[0], w), clip(v[1], h), clip(v[2], w), clip(v[3], h)
	if x2 <= x1 || y2 <= y1 {
		return pixels.Rect{}, fmt.Errorf("ROI %v does not meet the frame of %d×%d pixels", v, w, h)
	}
	return pixels.Rect{X: x1, Y: y1, W: x2 - x1, H: y2 - y1}, nil
}
