// Command async keeps many requests under way at once and takes the answers as they come.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "async:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	type answer struct {
		first int32
		resp  *v2client.Response
		err   error
	}
	const requests = 8
	answers := make(chan answer, requests)
	var wg sync.WaitGroup
	for i := range int32(requests) {
		wg.Go(func() {
			resp, err := client.Infer(ctx, &v2client.Request{Model: "simple", Inputs: []v2client.Input{numbers("INPUT0", i), numbers("INPUT1", 1)}})
			answers <- answer{i, resp, err}
		})
	}
	wg.Wait()
	close(answers)
	for a := range answers {
		if a.err != nil {
			return fmt.Errorf("request %d: %w", a.first, a.err)
		}
		if err := check(a.resp, a.first, 1); err != nil {
			return err
		}
	}
	return nil
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
