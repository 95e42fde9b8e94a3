package sinks

import (
	"context"
	"sync"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// byCamera publishes events with one of each camera on its way at a time, so that none overtakes one that failed. It
// returns as deliver does.
func byCamera(ctx context.Context, events []*vedettev1.Event, publish func(context.Context, *vedettev1.Event) error) (int, error) {
	lanes := map[string][]int{}
	for i, e := range events {
		lanes[e.GetCamera()] = append(lanes[e.GetCamera()], i)
	}
	faults := make([]error, len(events))
	var wg sync.WaitGroup
	for _, lane := range lanes {
		wg.Go(func() {
			for _, i := range lane {
				if faults[i] = publish(ctx, events[i]); faults[i] != nil {
					return // what is behind comes after it in events too
				}
			}
		})
	}
	wg.Wait()
	for i, err := range faults {
		if err != nil {
			return i, err
		}
	}
	return len(events), nil
}
