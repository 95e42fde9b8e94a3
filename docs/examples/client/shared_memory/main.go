// Command shared_memory puts tensors into shared memory instead of into messages. The server must run on this
// machine, with --allow-client-shm.
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
		fmt.Fprintln(os.Stderr, "shared_memory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	pool, err := v2client.NewPool(ctx, client, 2, 4096) // two slots: one can be filled while the other is in use
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close(ctx)) }()
	slot, err := pool.Get(ctx)
	if err != nil {
		return err
	}
	defer slot.Release()
	const size = 16 * 4
	a, b := tensor.View[int32](slot.Bytes[:size]), tensor.View[int32](slot.Bytes[size:2*size]) // the memory itself
	for i := range a {
		a[i], b[i] = int32(i), 100
	}
	input := func(name string, at int) v2client.Input {
		return v2client.Input{Tensor: tensor.Tensor{Name: name, DataType: tensor.Int32, Shape: []int64{1, 16}}, Place: slot.Place(at, size)}
	}
	_, err = client.Infer(ctx, &v2client.Request{
		Model: "simple", Inputs: []v2client.Input{input("INPUT0", 0), input("INPUT1", size)},
		Outputs: []v2client.Output{{Name: "OUTPUT0", Place: slot.Place(2*size, size)}, {Name: "OUTPUT1", Place: slot.Place(3*size, size)}},
	})
	if err != nil {
		return err
	}
	sums := tensor.View[int32](slot.Bytes[2*size : 3*size])
	fmt.Println("sums:", sums)
	if sums[15] != 115 {
		return fmt.Errorf("the last sum is %d", sums[15])
	}
	return nil
}
