// Command repeat asks a model that answers a request any number of times.
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
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "repeat:", err)
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
	values := []int32{4, 2, 0, 1}
	delays := make([]uint32, len(values))
	n := []int64{int64(len(values))}
	err = stream.SendRequest(&v2client.Request{
		Model: "repeat_int32", Parameters: map[string]any{"triton_enable_empty_final_response": true},
		Inputs: []v2client.Input{
			{Tensor: tensor.Tensor{Name: "IN", DataType: tensor.Int32, Shape: n, Data: tensor.AsBytes(values)}},
			{Tensor: tensor.Tensor{Name: "DELAY", DataType: tensor.Uint32, Shape: n, Data: tensor.AsBytes(delays)}},
			{Tensor: tensor.Tensor{Name: "WAIT", DataType: tensor.Uint32, Shape: []int64{1}, Data: tensor.AsBytes([]uint32{0})}},
		},
	})
	if err != nil {
		return err
	}
	var got []int32
	for {
		resp, err := stream.Next()
		if err != nil {
			return err
		}
		if out := resp.Output("OUT"); out != nil {
			got = append(got, tensor.View[int32](out.Data)...)
		}
		if resp.Final {
			break
		}
	}
	fmt.Println("answers:", got)
	if !slices.Equal(got, values) {
		return fmt.Errorf("they are not %v", values)
	}
	return stream.CloseSend()
}
