package remote

import (
	"context"
	"time"

	"github.com/vedette/vedette/api/inference"
)

// watch asks every server from time to time whether it would answer, so that no request has to find out. One server
// alone is used whatever it says.
func (in *instance) watch(ctx context.Context) {
	if in.health == 0 || len(in.servers) < 2 {
		return
	}
	ctx, in.stop = context.WithCancel(ctx)
	for _, s := range in.servers {
		in.checking.Go(func() {
			t := time.NewTicker(in.health)
			defer t.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-t.C:
				}
				check, cancel := context.WithTimeout(ctx, max(in.health, time.Second))
				ready := s.ready(check, in.model, in.version)
				cancel()
				if ctx.Err() == nil {
					s.checked(time.Now(), ready, in.health)
				}
			}
		})
	}
}

// ready asks whether the model there can serve.
func (s *server) ready(ctx context.Context, model string, version int64) bool {
	r, err := s.tell().ModelReady(ctx, &inference.ModelReadyRequest{Name: model, Version: versionText(version)})
	return err == nil && r.GetReady()
}

// checked notes what a check found. A server that is not ready is passed over until the next but one.
func (s *server) checked(now time.Time, ready bool, every time.Duration) {
	if ready {
		s.heard(now, true)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := now.Add(2*every + time.Second); until.After(s.until) {
		s.until = until
	}
}
