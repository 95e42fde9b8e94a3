// Command sequence_stream sends two sequences over one stream, one with a number for its name and one with a text.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "sequence_stream:", err)
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
	values := []int32{11, 7, 5, 3, 2, 0, 1}
	sums := make(map[string]int32)
	for i, v := range values {
		for id, sequence := range map[string]any{"number": uint64(1007), "text": "camera-7"} {
			factor := map[string]int32{"number": 1, "text": -1}[id]
			err := stream.SendRequest(&v2client.Request{
				Model: "simple_sequence", ID: id, Sequence: sequence, Start: i == 0, End: i == len(values)-1, Inputs: []v2client.Input{value(factor * v)},
			})
			if err != nil {
				return err
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		resp, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		sums[resp.ID] = tensor.View[int32](resp.Output("OUTPUT").Data)[0]
	}
	fmt.Println("sums:", sums["number"], sums["text"])
	if sums["number"] != 29 || sums["text"] != -29 {
		return fmt.Errorf("the sums are %v, not 29 and -29", sums)
	}
	return nil
}

func value(v int32) v2client.Input {
	return v2client.Input{Tensor: tensor.Tensor{Name: "INPUT", DataType: tensor.Int32, Shape: []int64{1, 1}, Data: tensor.AsBytes([]int32{v})}}
}
