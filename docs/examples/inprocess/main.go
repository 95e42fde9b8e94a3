// Command inprocess serves a model repository inside of its own program, without a network between.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/addsub"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/tensor"
)

func main() {
	models := flag.String("models", "docs/examples/models", "`directory` of the model repository")
	flag.Parse()
	if err := run(context.Background(), *models); err != nil {
		fmt.Fprintln(os.Stderr, "inprocess:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, models string) error {
	repo, err := repository.New(repository.Config{
		Roots: []string{models}, Mode: repository.ModeExplicit, Startup: []string{"simple"},
		Backends: map[string]backend.Backend{"distributed_addsub": new(addsub.Backend)},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- repo.Run(ctx, 10*time.Second) }()
	err = ask(ctx, repo)
	stop()
	if e := <-ended; err == nil {
		err = e
	}
	return err
}

func ask(ctx context.Context, repo *repository.Repository) error {
	if err := repo.Loaded(ctx); err != nil {
		return err
	}
	values := make([]int32, 16)
	for i := range values {
		values[i] = int32(i)
	}
	in := tensor.Tensor{DataType: tensor.Int32, Shape: []int64{1, 16}, Data: tensor.AsBytes(values)}
	a, b := in, in
	a.Name, b.Name = "INPUT0", "INPUT1"
	resp, err := infer.Do(ctx, repo, &infer.Request{Model: "simple", Inputs: []tensor.Tensor{a, b}})
	if err != nil {
		return err
	}
	defer resp.Release()
	sums := tensor.View[int32](resp.Output("OUTPUT0").Data)
	fmt.Println("sums:", sums)
	if sums[15] != 30 {
		return fmt.Errorf("the last sum is %d", sums[15])
	}
	return nil
}
