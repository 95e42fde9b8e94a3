// Command text sends texts of any length.
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
		fmt.Fprintln(os.Stderr, "text:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	want := []string{"one", "", "zwölf", "a\x00b"}
	resp, err := client.Infer(ctx, &v2client.Request{Model: "simple_string", Inputs: []v2client.Input{{
		Tensor: tensor.Tensor{Name: "INPUT0", DataType: tensor.Bytes, Shape: []int64{1, int64(len(want))}, Data: tensor.EncodeStrings(want...)},
	}}})
	if err != nil {
		return err
	}
	got, err := tensor.DecodeStrings(resp.Output("OUTPUT0").Data)
	if err != nil {
		return err
	}
	fmt.Printf("texts: %q\n", got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("sent %q", want)
	}
	return nil
}
