package cameras

import (
	"context"
	"maps"
	"slices"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Watch sees every change of every camera. A slow reader misses intermediate states, never the last one, so
// its memory is bounded by the number of cameras.
type Watch struct {
	r     *Registry
	ready chan struct{} // one token: something is pending

	pending map[string]*vedettev1.CameraChange // guarded by r.mu
}

// Watch begins with every camera as it is now. Close it when done.
func (r *Registry) Watch() *Watch {
	w := &Watch{r: r, ready: make(chan struct{}, 1), pending: map[string]*vedettev1.CameraChange{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.entries {
		w.pending[id] = &vedettev1.CameraChange{Kind: vedettev1.ChangeKind_CHANGE_KIND_SNAPSHOT, Camera: r.view(e)}
	}
	r.watches[w] = struct{}{}
	w.wake()
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	delete(w.r.watches, w)
}

// Next waits for changes and returns them in order of the cameras' ids. The first call returns the snapshot at
// once, which may be empty.
func (w *Watch) Next(ctx context.Context) ([]*vedettev1.CameraChange, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-w.ready:
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	var list []*vedettev1.CameraChange
	for _, id := range slices.Sorted(maps.Keys(w.pending)) {
		list = append(list, w.pending[id])
	}
	clear(w.pending)
	return list, nil
}

func (w *Watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// notifyLocked tells every watch. Changes to one camera that a reader has not seen yet melt into one.
func (r *Registry) notifyLocked(id string, kind vedettev1.ChangeKind, camera *vedettev1.Camera) {
	for w := range r.watches {
		k := kind
		if before := w.pending[id]; before != nil && k == vedettev1.ChangeKind_CHANGE_KIND_MODIFIED {
			k = before.GetKind() // a snapshot or an addition stays one
		}
		w.pending[id] = &vedettev1.CameraChange{Kind: k, Camera: camera}
		w.wake()
	}
}
