// Command ensemble_image_client sends a picture file as it is; the server opens it, fits it and runs the detector.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	path := flag.String("i", "", "`file` of the picture, JPEG or PNG")
	flag.Parse()
	if err := run(context.Background(), *url, *path); err != nil {
		fmt.Fprintln(os.Stderr, "ensemble_image_client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, path string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	resp, err := client.Infer(ctx, &v2client.Request{Model: "picture_detector", Inputs: []v2client.Input{{
		Tensor: tensor.Tensor{Name: "FILE", DataType: tensor.Bytes, Shape: []int64{1, 1}, Data: tensor.EncodeStrings(string(file))},
	}}})
	if err != nil {
		return err
	}
	class, score, err := best(resp.Output("ROWS"))
	if err != nil {
		return err
	}
	fmt.Printf("class %d, score %.3f\n", class, score)
	return nil
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
