// Command reuse uses one request again and again, and the memory of its answers: only what is in its tensors changes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "reuse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	a, b := make([]int32, 16), make([]int32, 16)
	shape := []int64{1, 16}
	req := &v2client.Request{Model: "simple", Inputs: []v2client.Input{
		{Tensor: tensor.Tensor{Name: "INPUT0", DataType: tensor.Int32, Shape: shape}},
		{Tensor: tensor.Tensor{Name: "INPUT1", DataType: tensor.Int32, Shape: shape}},
	}}
	for round := range int32(5) {
		for i := range a {
			a[i], b[i] = round, int32(i)
		}
		req.Inputs[0].Data, req.Inputs[1].Data = tensor.AsBytes(a), tensor.AsBytes(b)
		resp, err := client.Infer(ctx, req)
		if err != nil {
			return err
		}
		sums := tensor.View[int32](resp.Output("OUTPUT0").Data)
		fmt.Println("sums:", sums)
		if sums[15] != round+15 {
			return fmt.Errorf("the last sum is %d", sums[15])
		}
		resp.Release() // sums is a view of it
	}
	return nil
}
