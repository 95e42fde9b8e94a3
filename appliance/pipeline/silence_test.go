package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/pipeline"
)

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s until %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func TestASidecarThatSaysNothingIsNotCalledReady(t *testing.T) {
	restarts := make(chan string, 1) // the first is enough
	b := startConfigured(t, pipeline.Analysing{}, func(c *pipeline.Config) {
		c.Silence = 300 * time.Millisecond
		c.RestartIngest = func(reason string) {
			select {
			case restarts <- reason:
			default:
			}
		}
	})
	silent := func(err error) bool { return errors.Is(err, pipeline.ErrSilent) }

	until(t, "inference is ready", func() bool { return b.pipe.Inference() == nil })
	stalled := make(chan struct{})
	b.infer.mu.Lock()
	b.infer.stall = stalled
	b.infer.mu.Unlock()
	until(t, "inference is silent", func() bool { return silent(b.pipe.Inference()) })
	b.infer.mu.Lock()
	b.infer.stall = nil
	b.infer.mu.Unlock()
	close(stalled)
	until(t, "inference is ready again", func() bool { return b.pipe.Inference() == nil })

	alive := func() {
		b.ingest.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Alive{Alive: &ingestv1.Alive{}}})
	}
	until(t, "ingest is ready", func() bool { return b.pipe.Ingest() == nil })
	alive() // and no more
	until(t, "ingest is silent", func() bool { return silent(b.pipe.Ingest()) && b.silent.Load() })
	if reason := next(t, restarts); !strings.Contains(reason, "no answer") {
		t.Errorf("it is restarted because of %q", reason)
	}
	until(t, "ingest is heard again", func() bool {
		alive()
		return b.pipe.Ingest() == nil && !b.silent.Load()
	})
}
