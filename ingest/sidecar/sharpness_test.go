package sidecar

import (
	"image"
	"testing"
)

func TestSharpnessFallsWithBlur(t *testing.T) {
	size := image.Pt(64, 48)
	board := make([]byte, size.X*size.Y) // squares of 4 pixels
	for i := range board {
		if (i%size.X/4+i/size.X/4)%2 == 0 {
			board[i] = 200
		}
	}
	blurred := make([]byte, len(board))
	for i := range board {
		sum, n := 0, 0
		for dy := -2; dy <= 2; dy++ {
			for dx := -2; dx <= 2; dx++ {
				if at := image.Pt(i%size.X+dx, i/size.X+dy); at.In(image.Rectangle{Max: size}) {
					sum += int(board[at.Y*size.X+at.X])
					n++
				}
			}
		}
		blurred[i] = byte(sum / n)
	}
	whole := image.Rectangle{Max: size}
	sharp, soft, flat := sharpness(board, size, whole), sharpness(blurred, size, whole), sharpness(make([]byte, len(board)), size, whole)
	if !(sharp > 4*soft && soft > flat && flat == 0) {
		t.Errorf("sharp %v, blurred %v, flat %v", sharp, soft, flat)
	}
	for _, crop := range []image.Rectangle{image.Rect(-10, -10, 5, 5), image.Rect(60, 40, 900, 900), image.Rect(0, 0, 1, 1), image.Rect(100, 100, 200, 200), {}} {
		if v := sharpness(board, size, crop); v < 0 {
			t.Errorf("%v: %v", crop, v)
		}
	}
}
