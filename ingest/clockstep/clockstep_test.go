package clockstep_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/clockstep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStepsAreToldAndSlewingIsNot(t *testing.T) {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// What the two clocks say after each setting, beginning with the first look.
	looks := []ingest.Instant{
		{Mono: 10 * time.Second, Wall: base},
		{Mono: 20 * time.Second, Wall: base.Add(10*time.Second + 50*time.Millisecond)},
		{Mono: 30 * time.Second, Wall: base.Add(time.Hour + 20*time.Second + 50*time.Millisecond)},
		{Mono: 40 * time.Second, Wall: base.Add(30 * time.Second)},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []time.Duration
	sets := 0
	w := clockstep.New(clockstep.Config{
		OnStep: func(step time.Duration, _ ingest.Instant) { got = append(got, step) },
		Now: func() ingest.Instant {
			at := looks[0]
			looks = looks[1:]
			return at
		},
		Wait: func(ctx context.Context) error {
			if sets++; sets > 3 {
				cancel()
			}
			return ctx.Err()
		},
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{time.Hour, -time.Hour - 50*time.Millisecond}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheKernelsWatchEndsWithItsContext(t *testing.T) {
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := clockstep.New(clockstep.Config{OnStep: func(time.Duration, ingest.Instant) {}}).Run(ctx); err != nil {
				t.Error(err)
			}
		})
		cancel()
		wg.Wait()
	}
}
