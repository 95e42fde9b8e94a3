// Command simple asks once and waits: two tensors in, their sum and difference out.
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
		fmt.Fprintln(os.Stderr, "simple:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	resp, err := client.Infer(ctx, &v2client.Request{
		Model: "simple", ID: "1",
		Inputs:  []v2client.Input{numbers("INPUT0", 0), numbers("INPUT1", 100)},
		Outputs: []v2client.Output{{Name: "OUTPUT0"}, {Name: "OUTPUT1"}},
	})
	if err != nil {
		return err
	}
	return check(resp, 0, 100)
}

// numbers is a tensor of 16 numbers from first on.
func numbers(name string, first int32) v2client.Input {
	values := make([]int32, 16)
	for i := range values {
		values[i] = first + int32(i)
	}
	return v2client.Input{Tensor: tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{1, 16}, Data: tensor.AsBytes(values)}}
}

// check prints the sums and refuses wrong ones.
func check(resp *v2client.Response, a, b int32) error {
	sum, difference := tensor.View[int32](resp.Output("OUTPUT0").Data), tensor.View[int32](resp.Output("OUTPUT1").Data)
	for i := range sum {
		if sum[i] != a+b+2*int32(i) || difference[i] != a-b {
			return fmt.Errorf("element %d: the sum is %d, the difference %d", i, sum[i], difference[i])
		}
	}
	fmt.Println("sums:", sum)
	return nil
}
