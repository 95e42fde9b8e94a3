// Package video hands the coded pictures of cameras to viewers as they come, not transcoded. Each stream is fetched once
// from the ingest sidecar, however many look at it, over a connection of its own, so that bursts of pictures never hold
// up the notices of frames. What is over already, for clips, comes from pipeline.AccessUnits.
package video

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
)

// Config of a Hub.
type Config struct {
	// Socket is the ingest sidecar's. Required.
	Socket string
	// Linger is how long a stream is still fetched after its last viewer left: a page that is reloaded comes back.
	// 0: 3 s.
	Linger time.Duration
	// QueueBytes is how much may wait for one viewer before pictures are left out up to the next keyframe; 0: 4 MiB.
	QueueBytes int
	// Retry is the pause between attempts to connect; 0: 200 ms.
	Retry time.Duration
}

// Hub holds the streams somebody looks at. Safe for concurrent use.
type Hub struct {
	cfg     Config
	client  *ingestclient.Client
	dropped atomic.Int64

	mu    sync.Mutex // guards everything below
	feeds map[key]*feed
}

// key names a stream.
type key struct {
	camera string
	main   bool
}

// New returns a hub that Run connects.
func New(cfg Config) *Hub {
	if cfg.Linger <= 0 {
		cfg.Linger = 3 * time.Second
	}
	if cfg.QueueBytes <= 0 {
		cfg.QueueBytes = 4 << 20
	}
	h := &Hub{cfg: cfg, feeds: map[key]*feed{}}
	h.client = ingestclient.New(ingestclient.Config{
		Socket: cfg.Socket, Program: "vedette (video)", Retry: cfg.Retry,
		Handler: ingestclient.Handler{State: h.state, Camera: h.camera, Description: h.description, AccessUnit: h.unit},
	})
	return h
}

// Run keeps the connection to the sidecar until ctx ends; it returns nil.
func (h *Hub) Run(ctx context.Context) error {
	err := h.client.Run(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.feeds {
		f.end(ErrRemoved)
		if f.idle != nil {
			f.idle.Stop()
		}
	}
	clear(h.feeds)
	return err
}

// ErrRemoved says that the camera was removed while somebody looked.
var ErrRemoved = errors.New("the camera was removed")

// Watch hands take the pictures of a stream as they come, from the newest keyframe on, until ctx ends, take fails or
// the camera is removed. A description comes before the first unit and whenever the stream begins anew. While the
// camera is away nothing comes. take may block: meanwhile pictures wait, and when too many do they are left out up to
// the next keyframe, which says so.
func (h *Hub) Watch(ctx context.Context, camera string, main bool, take func(*ingestv1.StreamDescription, *ingestv1.AccessUnit) error) error {
	v := h.join(key{camera, main})
	defer h.leave(key{camera, main}, v)
	for {
		items, err := v.take()
		for _, i := range items {
			if err := take(i.description, i.unit); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-v.came:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Dropped counts the pictures left out because a viewer was too slow.
func (h *Hub) Dropped() int64 { return h.dropped.Load() }

func (h *Hub) join(k key) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[k]
	if f == nil {
		f = &feed{hub: h, viewers: map[*viewer]struct{}{}}
		h.feeds[k] = f
		h.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: k.camera, Main: k.main})
	}
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	v := &viewer{limit: h.cfg.QueueBytes, came: make(chan struct{}, 1), waiting: true}
	f.viewers[v] = struct{}{}
	for i, u := range f.group {
		var d *ingestv1.StreamDescription
		if i == 0 {
			d = f.description
		}
		v.put(d, u)
	}
	return v
}

func (h *Hub) leave(k key, v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[k]
	if f == nil {
		return
	}
	if delete(f.viewers, v); len(f.viewers) > 0 {
		return
	}
	f.idle = time.AfterFunc(h.cfg.Linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.feeds[k] == f && len(f.viewers) == 0 {
			delete(h.feeds, k)
			h.client.WatchAccessUnits(&ingestv1.WatchAccessUnits{Camera: k.camera, Main: k.main, Stop: true})
		}
	})
}

// state forgets what was there before the connection ended: what comes next does not follow it.
func (h *Hub) state(s ingestclient.State, _ *ingestv1.Hello, _ error) {
	if s == ingestclient.Connected {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.feeds {
		f.reset()
	}
}

func (h *Hub) camera(s *ingestv1.CameraStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, f := range h.feeds {
		if k.camera != s.GetCamera() {
			continue
		}
		if s.GetRemoved() {
			f.end(ErrRemoved)
			continue
		}
		of := s
		if k.main {
			of = s.GetMain()
		}
		if of.GetState() != ingestv1.CameraState_CAMERA_STATE_STREAMING {
			f.reset() // what is kept shows the past
		}
	}
}

func (h *Hub) description(d *ingestv1.StreamDescription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.feeds[key{d.GetCamera(), d.GetMain()}]; f != nil {
		f.description, f.described = d, false
		f.reset()
	}
}

func (h *Hub) unit(u *ingestv1.AccessUnit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.feeds[key{u.GetCamera(), u.GetMain()}]; f != nil {
		f.add(u)
	}
}
