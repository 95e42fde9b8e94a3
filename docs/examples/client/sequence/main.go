// Command sequence tells a model with state which requests belong together, with one call for each.
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
		fmt.Fprintln(os.Stderr, "sequence:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	values := []int32{11, 7, 5, 3, 2, 0, 1}
	sum := int32(0)
	for i, v := range values {
		resp, err := client.Infer(ctx, &v2client.Request{
			Model: "simple_sequence", Sequence: "one-call-each", Start: i == 0, End: i == len(values)-1, Inputs: []v2client.Input{value(v)},
		})
		if err != nil {
			return err
		}
		sum += v
		got := tensor.View[int32](resp.Output("OUTPUT").Data)[0]
		fmt.Println("so far:", got)
		if got != sum {
			return fmt.Errorf("after %d the sum is %d, not %d", v, got, sum)
		}
	}
	return nil
}

func value(v int32) v2client.Input {
	return v2client.Input{Tensor: tensor.Tensor{Name: "INPUT", DataType: tensor.Int32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]int32{v})}}
}
