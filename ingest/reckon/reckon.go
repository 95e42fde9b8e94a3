// Package reckon measures what decoding costs on this machine: it decodes clips it brings along, one for each codec and
// size that cameras commonly have.
package reckon

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/av"
)

//go:embed clips
var clips embed.FS

// Cost is what one picture costs to decode, on one thread.
type Cost struct {
	Codec  string `json:"codec"` // H264 or H265
	Width  int    `json:"width"`
	Height int    `json:"height"`
	// Processor time of one picture, in nanoseconds.
	Processor time.Duration `json:"processor_ns"`
	// Frames it was measured on.
	Frames int64 `json:"frames"`
}

// Decode decodes each clip over and over for about as long as each, and at least once.
func Decode(ctx context.Context, each time.Duration) ([]Cost, error) {
	entries, err := clips.ReadDir("clips")
	if err != nil {
		return nil, fmt.Errorf("read the clips: %w", err)
	}
	dir, err := os.MkdirTemp("", "reckon-")
	if err != nil {
		return nil, fmt.Errorf("keep the clips: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var costs []Cost
	for _, e := range entries {
		data, err := clips.ReadFile("clips/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read a clip: %w", err)
		}
		path := filepath.Join(dir, e.Name())
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, fmt.Errorf("keep a clip: %w", err)
		}
		c, err := clip(ctx, path, each)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", e.Name(), err)
		}
		c.Codec = strings.ToUpper(strings.TrimPrefix(filepath.Ext(path), "."))
		costs = append(costs, c)
	}
	return costs, nil
}

// clip decodes one file.
func clip(ctx context.Context, path string, each time.Duration) (Cost, error) {
	file, err := av.OpenFile(path)
	if err != nil {
		return Cost{}, err
	}
	defer func() { file.Close() }()
	dec, err := av.NewDecoder(av.DecoderConfig{Codec: file.Codec, Threads: 1})
	if err != nil {
		return Cost{}, err
	}
	defer dec.Close()
	c := Cost{Width: file.Width, Height: file.Height}
	// The processor time is the thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var picture av.Picture
	defer picture.Close()
	var spent time.Duration
	for began := time.Now(); c.Frames == 0 || time.Since(began) < each; {
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		var p av.Packet
		if err := file.Read(&p); errors.Is(err, io.EOF) {
			again, err := av.OpenFile(path) // raw streams cannot be rewound
			if err != nil {
				return c, err
			}
			file.Close()
			file = again
			continue
		} else if err != nil {
			return c, err
		}
		before := threadTime()
		if err := dec.Send(p.Data, int64(p.PTS)); err != nil {
			return c, err
		}
		for {
			ok, err := dec.Receive(&picture)
			if err != nil {
				return c, err
			}
			if !ok {
				break
			}
			c.Frames++
		}
		spent += threadTime() - before
	}
	c.Processor = spent / time.Duration(c.Frames)
	return c, nil
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
