package prepare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/internal/pixels"
)

// fit is how a picture of any shape comes into the square a network wants.
type fit int

const (
	fitTopLeft fit = iota // aspect kept, picture in the upper left corner, the rest padded
	fitCentred            // aspect kept, picture in the middle, the rest padded
	fitStretch            // aspect not kept
)

// convention is what a detector's authors did to a picture before they showed
// it to the network. A value of the input is (grey/divide - mean) / std.
type convention struct {
	rgb    bool
	fit    fit
	area   bool       // shrink by the mean of an area, not by the nearest neighbours
	pad    [3]float64 // grey levels, in the order the channels come out
	divide float64
	mean   [3]float64
	std    [3]float64
	matrix frame.Flags // of I420 and NV12: BT709, BT2020, or BT.601 by neither
	stream bool        // the matrix is the one that FRAME_INFO tells
}

func each(v float64) [3]float64 { return [3]float64{v, v, v} }

// conventionOf is the table of families whose exports we know; names are those
// of the box decoders.
func conventionOf(family string) (convention, bool) {
	plain := convention{rgb: true, divide: 255, std: each(1), pad: each(114)}
	imageNet := plain
	imageNet.fit, imageNet.mean, imageNet.std = fitStretch, [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	c := plain
	switch family {
	case "", "yolox", "yolox_decoded":
		c.rgb, c.divide, c.fit = false, 1, fitTopLeft
	case "yolov5", "yolov7", "yolov7_raw", "yolov8", "yolo_end2end", "yolov7_end2end", "efficient_nms":
		c.fit = fitCentred
	case "yolo_nas", "yolo_nas_flat":
		c.rgb, c.fit = false, fitCentred
	case "rtdetr", "detr_query", "rtdetr_ultralytics":
		c.fit = fitStretch
	case "rfdetr", "detr", "ppyoloe", "ppyoloe_raw", "picodet":
		c = imageNet
	case "nanodet", "nanodet_plus":
		c = convention{
			divide: 1, fit: fitCentred, area: family == "nanodet",
			mean: [3]float64{103.53, 116.28, 123.675}, std: [3]float64{57.375, 57.12, 58.395},
		}
		if family == "nanodet_plus" {
			c.fit = fitStretch
		}
	case "fastestdet":
		c.rgb, c.fit = false, fitStretch
	case "ssd", "efficientdet":
		c.divide, c.fit = 1, fitStretch
	case "faster_rcnn":
		c = convention{
			divide: 1, fit: fitTopLeft, std: each(1),
			mean: [3]float64{102.9801, 115.9465, 122.7717},
		}
	default:
		return convention{}, false
	}
	return c, true
}

// families lists the names conventionOf knows, for messages.
func families() string {
	return "yolox, yolox_decoded, yolov5, yolov7, yolov7_raw, yolov8, yolo_end2end, yolov7_end2end, efficient_nms, yolo_nas, " +
		"yolo_nas_flat, rtdetr, detr_query, rtdetr_ultralytics, rfdetr, detr, ppyoloe, ppyoloe_raw, picodet, nanodet, nanodet_plus, fastestdet, ssd, " +
		"efficientdet, faster_rcnn"
}

// parseConvention reads the model's parameters: a family, then what differs
// from it. Every fault is reported.
func parseConvention(get func(key, def string) string) (convention, error) {
	family := get("family", "")
	c, known := conventionOf(family)
	var faults []error
	if !known {
		faults = append(faults, fmt.Errorf("parameters[family]: %q is not one of %s", family, families()))
	}
	choose := func(key string, values ...string) int {
		v := get(key, "")
		if v == "" {
			return -1
		}
		i := slices.Index(values, v)
		if i < 0 {
			faults = append(faults, fmt.Errorf("parameters[%s]: %q is not one of %s", key, v, strings.Join(values, ", ")))
		}
		return i
	}
	if i := choose("color", "bgr", "rgb"); i >= 0 {
		c.rgb = i == 1
	}
	if i := choose("resize", "letterbox_topleft", "letterbox", "stretch"); i >= 0 {
		c.fit = fit(i)
	}
	if i := choose("filter", "linear", "area"); i >= 0 {
		c.area = i == 1
	}
	if i := choose("matrix", "bt601", "bt709", "bt2020", "stream"); i >= 0 {
		c.matrix, c.stream = [...]frame.Flags{0, frame.BT709, frame.BT2020, 0}[i], i == 3
	}
	numbers := func(key string, into *[3]float64) {
		v, err := parseThree(get(key, ""))
		if err != nil {
			faults = append(faults, fmt.Errorf("parameters[%s]: %w", key, err))
		} else if v != nil {
			*into = *v
		}
	}
	numbers("pad", &c.pad)
	numbers("mean", &c.mean)
	numbers("std", &c.std)
	divide := each(c.divide)
	numbers("divide", &divide)
	c.divide = divide[0]
	if c.divide == 0 || slices.Contains(c.std[:], 0) {
		faults = append(faults, errors.New("parameters[divide], parameters[std]: nothing can be divided by 0"))
	}
	return c, errors.Join(faults...)
}

// parseThree reads one number for all channels or three of them; empty is nil.
func parseThree(s string) (*[3]float64, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil //nolint:nilnil // empty means not given
	}
	words := strings.Split(s, ",")
	if len(words) != 1 && len(words) != 3 {
		return nil, fmt.Errorf("%q is neither one number nor three", s)
	}
	var v [3]float64
	for i := range v {
		f, err := strconv.ParseFloat(strings.TrimSpace(words[i%len(words)]), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%q is not a number", words[i%len(words)])
		}
		v[i] = f
	}
	return &v, nil
}

// place computes where a source of w×h pixels goes in an output of ow×oh.
func (c *convention) place(w, h, ow, oh int) pixels.Rect {
	if c.fit == fitStretch {
		return pixels.Rect{W: ow, H: oh}
	}
	r := min(float64(oh)/float64(h), float64(ow)/float64(w))
	if c.fit == fitTopLeft {
		return pixels.Rect{W: max(1, int(float64(w)*r)), H: max(1, int(float64(h)*r))}
	}
	p := pixels.Rect{
		W: max(1, min(ow, int(math.RoundToEven(float64(w)*r)))),
		H: max(1, min(oh, int(math.RoundToEven(float64(h)*r)))),
	}
	// Half a pixel goes to the right and bottom, as the training code has it.
	p.X, p.Y = (ow-p.W)/2, (oh-p.H)/2
	return p
}

// output is what the kernel needs to know, but for the picture's place.
func (c *convention) output(w, h int, bytes, interleaved bool) pixels.Output {
	o := pixels.Output{Width: w, Height: h, Bytes: bytes, Interleaved: interleaved, RGB: c.rgb, Area: c.area}
	for i := range 3 {
		scale, bias := 1/(c.divide*c.std[i]), -c.mean[i]/c.std[i]
		o.Scale[i], o.Bias[i] = float32(scale), float32(bias)
		o.Pad[i] = float32(c.pad[i]*scale + bias)
	}
	return o
}

// colours is how I420 and NV12 of a frame with these flags become red, green and blue.
func (c *convention) colours(f frame.Flags) pixels.Matrix {
	matrix, full := c.matrix, f&frame.FullRange != 0
	if c.stream {
		matrix = f & (frame.BT709 | frame.BT2020)
	}
	switch {
	case matrix == frame.BT709:
		return pixels.NewMatrix(0.2126, 0.0722, full)
	case matrix == frame.BT2020:
		return pixels.NewMatrix(0.2627, 0.0593, full)
	case full:
		return pixels.NewMatrix(0.299, 0.114, full)
	default:
		return pixels.BT601()
	}
}
