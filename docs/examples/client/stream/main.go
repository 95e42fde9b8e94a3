// Command stream sends over one stream without waiting, while another goroutine receives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	stream, err := client.Stream(ctx)
	if err != nil {
		return err
	}
	const requests = 8
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := range int32(requests) {
			err = errors.Join(err, stream.SendRequest(&v2client.Request{
				Model: "simple", ID: strconv.Itoa(int(i)), Inputs: []v2client.Input{numbers("INPUT0", i), numbers("INPUT1", 1)},
			}))
		}
		sent <- errors.Join(err, stream.CloseSend())
	}()
	count := 0
	for {
		resp, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		first, err := strconv.Atoi(resp.ID) // answers need not come in order
		if err != nil {
			return err
		}
		if err := check(resp, int32(first), 1); err != nil {
			return err
		}
		count++
	}
	if count != requests {
		return fmt.Errorf("%d answers to %d requests", count, requests)
	}
	return <-sent
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
