package sidecar

import "image"

// sharpness is the variance of the Laplacian over a crop of the luma plane, which comes first in both pixel formats,
// without padding. Of a large crop every second, third, ... pixel is looked at, so that the cost stays that of a small
// one: what is blurred is so at every pixel.
func sharpness(pixels []byte, size image.Point, crop image.Rectangle) float64 {
	crop = crop.Intersect(image.Rect(1, 1, size.X-1, size.Y-1)) // every pixel has its neighbours
	if crop.Empty() || len(pixels) < size.X*size.Y {
		return 0
	}
	const most = 1 << 14 // pixels looked at
	step := 1
	for crop.Dx()/step*(crop.Dy()/step) > most {
		step++
	}
	var n, sum, squares float64
	for y := crop.Min.Y; y < crop.Max.Y; y += step {
		for x := crop.Min.X; x < crop.Max.X; x += step {
			at := y*size.X + x
			v := float64(4*int(pixels[at]) - int(pixels[at-1]) - int(pixels[at+1]) - int(pixels[at-size.X]) - int(pixels[at+size.X]))
			n++
			sum += v
			squares += v * v
		}
	}
	return squares/n - sum/n*(sum/n)
}
