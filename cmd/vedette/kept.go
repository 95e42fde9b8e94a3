package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"github.com/vedette/vedette/store"
	"github.com/vedette/vedette/store/transfer"
	"github.com/vedette/vedette/tracker/eval"
)

// openBackup restores a backup into a folder of its own and lets the evaluator read it.
func openBackup(ctx context.Context, backup string) (read func(string, eval.Info, time.Time) ([]byte, error), closing func() error, err error) {
	dir, err := os.MkdirTemp("", "vedette-eval-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	if _, err := store.Restore(ctx, backup, dir); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	s := store.New(store.Config{Dir: dir, Retention: store.Retention{MinFree: -1}})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	closing = func() error {
		stop()
		return errors.Join(<-ended, remove())
	}
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		return nil, nil, errors.Join(err, closing())
	}
	return func(camera string, info eval.Info, start time.Time) ([]byte, error) {
		var text bytes.Buffer
		_, err := transfer.ExportDetections(ctx, s, store.Query{Cameras: []string{camera}}, transfer.MOT, transfer.MOTConfig{
			Width: info.Width, Height: info.Height, Start: start, Interval: time.Duration(float64(time.Second) / info.FrameRate),
		}, &text)
		return text.Bytes(), err
	}, closing, nil
}
