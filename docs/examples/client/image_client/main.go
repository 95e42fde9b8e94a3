// Command image_client opens a picture itself, fits it to the detector and reads what comes back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	_ "image/png" // the format it opens
	"os"
	"slices"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	path := flag.String("i", "", "`file` of the picture, PNG")
	flag.Parse()
	if err := run(context.Background(), *url, *path); err != nil {
		fmt.Fprintln(os.Stderr, "image_client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, path string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	picture, _, err := image.Decode(f)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	resp, err := client.Infer(ctx, &v2client.Request{Model: "detector", Inputs: []v2client.Input{{
		Tensor: tensor.Tensor{Name: "images", DataType: tensor.FP32, Shape: []int64{1, 3, side, side}, Data: tensor.AsBytes(planes(picture))},
	}}})
	if err != nil {
		return err
	}
	class, score, err := best(resp.Output("output"))
	if err != nil {
		return err
	}
	fmt.Printf("class %d, score %.3f\n", class, score)
	return nil
}

const side = 416 // of the detector's input

// planes stretches a picture and writes it as the detector wants it: blue, green and red apart, 0 to 255.
func planes(picture image.Image) []float32 {
	out := make([]float32, 3*side*side)
	b := picture.Bounds()
	for y := range side {
		for x := range side {
			red, green, blue, _ := picture.At(b.Min.X+x*b.Dx()/side, b.Min.Y+y*b.Dy()/side).RGBA()
			for c, v := range []uint32{blue, green, red} {
				out[(c*side+y)*side+x] = float32(v >> 8)
			}
		}
	}
	return out
}

// best finds the row the detector is surest of. A row is a box, how sure it is that there is something, and how
// sure of each class.
func best(rows *tensor.Tensor) (class int, score float32, err error) {
	if rows == nil || len(rows.Shape) != 3 || rows.Shape[2] < 6 {
		return 0, 0, errors.New("the answer holds no rows of boxes")
	}
	for row := range slices.Chunk(tensor.Float32s(rows.Data), int(rows.Shape[2])) {
		for c, p := range row[5:] {
			if s := row[4] * p; s > score {
				class, score = c, s
			}
		}
	}
	return class, score, nil
}
