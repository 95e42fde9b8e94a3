// Command health_metadata asks how a server is and what it has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "health_metadata:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ready, err := client.ServerReady(ctx, &inference.ServerReadyRequest{})
	if err != nil {
		return err
	}
	server, err := client.ServerMetadata(ctx, &inference.ServerMetadataRequest{})
	if err != nil {
		return err
	}
	model, err := client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "simple"})
	if err != nil {
		return err
	}
	conf, err := client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "simple"})
	if err != nil {
		return err
	}
	fmt.Printf("%s %s, ready: %t\n", server.GetName(), server.GetVersion(), ready.GetReady())
	for _, in := range model.GetInputs() {
		fmt.Println("input", in.GetName(), in.GetDatatype(), in.GetShape())
	}
	if !ready.GetReady() || len(model.GetInputs()) != 2 || conf.GetConfig().GetMaxBatchSize() != 8 {
		return errors.New("the model is not as it was described")
	}
	return nil
}
