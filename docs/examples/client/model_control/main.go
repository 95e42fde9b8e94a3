// Command model_control unloads a model and loads it again, with another configuration. The server must run with
// --model-control-mode=explicit.
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
		fmt.Fprintln(os.Stderr, "model_control:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	const name = "simple_string"
	if _, err := client.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: name}); err != nil {
		return err
	}
	for { // it ends its requests first
		ready, err := client.ModelReady(ctx, &inference.ModelReadyRequest{Name: name})
		if err != nil || !ready.GetReady() {
			break
		}
	}
	load := &inference.RepositoryModelLoadRequest{ModelName: name, Parameters: map[string]*inference.ModelRepositoryParameter{
		"config": {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: config}},
	}}
	if _, err := client.RepositoryModelLoad(ctx, load); err != nil {
		return err
	}
	index, err := client.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil {
		return err
	}
	for _, m := range index.GetModels() {
		fmt.Println(m.GetName(), m.GetVersion(), m.GetState(), m.GetReason())
	}
	got, err := client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: name})
	if err != nil {
		return err
	}
	if n := got.GetConfig().GetMaxBatchSize(); n != 4 {
		return fmt.Errorf("the model takes batches of %d, not of 4", n)
	}
	_, err = client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: name}) // as it is on disk again
	return err
}

const config = `{"backend": "identity", "max_batch_size": 4,
  "input": [{"name": "INPUT0", "data_type": "TYPE_STRING", "dims": [-1]}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [-1]}]}`
