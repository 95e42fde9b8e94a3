// Package sinks sends what happened to where operators want it: MQTT brokers, webhooks, NATS JetStream and Kafka. It is
// the SinkService, and it delivers.
//
// The store's events are the queue. Every sink has a cursor over them that moves when the receiver has acknowledged, so
// that each event is delivered at least once and those of a camera in the order of their commit, whatever fails
// meanwhile; nothing waits for a sink but its own events. What the receiver refuses for good becomes a dead letter.
package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/store"
)

// Config is how Sinks are made. Store and Secrets are required.
type Config struct {
	Store   *store.Store
	Secrets *secret.Box
	// Box is the name of this box for receivers that hear from many; empty: "vedette".
	Box string
	// MinBackoff and MaxBackoff bound the pause after a failed attempt, which doubles; 0: 500 ms and a minute.
	MinBackoff, MaxBackoff time.Duration
	// Timeout bounds one attempt; 0: 30 s.
	Timeout time.Duration
	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now, nil: time.Now.
	Now func() time.Time
}

// Sinks knows every sink and delivers to it. Safe for concurrent use once Load has returned.
type Sinks struct {
	vedettev1.UnimplementedSinkServiceServer
	cfg Config

	changing sync.Mutex // one change at a time

	mu      sync.Mutex // guards what follows
	entries map[string]*entry
	changed chan struct{} // 1: there is something for Run to look at
}

// entry is one sink. Its proto is never changed once it is here.
type entry struct {
	sink    *vedettev1.Sink // without status
	secret  string
	running *running // nil: not delivering
	status  *status
}

// running is a delivery and what it takes to stop it.
type running struct {
	etag   string
	cancel context.CancelFunc
	done   chan struct{}
}

// self is the box as receivers know it.
type self struct{ id, name string }

// New returns an empty list of sinks.
func New(cfg Config) *Sinks {
	if cfg.Box == "" {
		cfg.Box = "vedette"
	}
	for v, standard := range map[*time.Duration]time.Duration{&cfg.MinBackoff: 500 * time.Millisecond, &cfg.MaxBackoff: time.Minute, &cfg.Timeout: 30 * time.Second} {
		if *v <= 0 {
			*v = standard
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sinks{cfg: cfg, entries: map[string]*entry{}, changed: make(chan struct{}, 1)}
}

// Load reads the sinks from the store; call it once, before anything else. A sink that cannot be read is left out, and
// logged; one whose secret cannot be opened goes on without it.
func (s *Sinks) Load(ctx context.Context) error {
	for token := ""; ; {
		page, next, err := s.cfg.Store.List(ctx, store.Sinks, "", 1000, token)
		if err != nil {
			return fmt.Errorf("load the sinks: %w", err)
		}
		for i := range page {
			e, err := s.fromResource(&page[i])
			if err != nil {
				s.cfg.Logger.Error("sink cannot be loaded as it was saved", slog.String("sink", page[i].Name), slog.Any("err", err))
			}
			if e == nil {
				continue
			}
			n, err := s.cfg.Store.CountDeadLetters(ctx, id(e.sink))
			if err != nil {
				return fmt.Errorf("load the sinks: %w", err)
			}
			e.status.dead(n)
			s.put(e)
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// Run delivers until ctx ends.
func (s *Sinks) Run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.entries))
		s.mu.Unlock()
		for _, e := range all {
			s.halt(e)
		}
	}()
	for {
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// reconcile has every enabled sink deliver as it is registered now.
func (s *Sinks) reconcile(ctx context.Context) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.entries))
	s.mu.Unlock()
	for _, e := range all {
		if r := s.runningOf(e); r != nil && r.etag == e.sink.GetEtag() && !e.sink.GetDisabled() {
			continue
		}
		s.halt(e)
		if e.sink.GetDisabled() || ctx.Err() != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		r := &running{etag: e.sink.GetEtag(), cancel: cancel, done: make(chan struct{})}
		d := &delivery{
			cfg: &s.cfg, id: id(e.sink), sink: e.sink, status: e.status, carrier: newCarrier(e.sink, e.secret, self{s.cfg.Secrets.ID(), s.cfg.Box}),
			logger: s.cfg.Logger.With(slog.String("sink", id(e.sink))),
		}
		s.mu.Lock()
		e.running = r
		s.mu.Unlock()
		go func() {
			defer close(r.done)
			d.run(ctx)
		}()
	}
}

func (s *Sinks) runningOf(e *entry) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.running
}

// halt stops a delivery and waits for its end.
func (s *Sinks) halt(e *entry) {
	r := s.runningOf(e)
	if r == nil {
		return
	}
	r.cancel()
	<-r.done
	s.mu.Lock()
	e.running = nil
	s.mu.Unlock()
}

func (s *Sinks) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Sinks) get(id string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[id]
}

// put puts a sink in place; what is known of its delivery stays.
func (s *Sinks) put(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[id(e.sink)]; old != nil {
		e.running, e.status = old.running, old.status
	}
	s.entries[id(e.sink)] = e
	s.notify()
}

// view is a sink as the API shows it. What it returns is the caller's.
func (e *entry) view() *vedettev1.Sink {
	v := proto.CloneOf(e.sink)
	v.Status = e.status.view(v.GetDisabled())
	return v
}

func id(s *vedettev1.Sink) string { return strings.TrimPrefix(s.GetName(), prefix) }
