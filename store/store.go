// Package store keeps what Vedette has seen and what it was told: cameras, rules, sinks, users and sequences in one
// small catalogue file, and detections, tracks and events in one SQLite file a day.
//
// One goroutine writes. History is queued by Append and committed a window at a time (200 ms unless configured), with
// one fsync a window; everything else (cameras, sequences, tokens, ...) is durable when its method returns. Readers
// never wait for the writer. After kill -9 or a power cut nothing committed is lost, nothing is damaged, and at most
// the last window is missing.
//
// Times are kept in UTC microseconds. A day is a UTC day; a detection and an event live in the day of their time, a
// track in the day of its start.
package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Config is how a Store is made. Only Dir is required.
type Config struct {
	Dir       string        // data directory; made when missing
	Window    time.Duration // longest wait of an appended batch for its commit; 0: 200 ms
	Readers   int           // read connections a file; 0: 4
	Queue     int           // objects, tracks and events that may wait for the writer; 0: 100 000
	Backlog   int           // committed windows kept for subscribers to catch up; 0: 256
	Retention Retention
	Logger    *slog.Logger     // nil: discard
	Now       func() time.Time // nil: time.Now
	// FreeSpace tells the free and total bytes of Dir's file system; nil asks the kernel.
	FreeSpace func(dir string) (free, total int64, err error)
}

func (c Config) withDefaults() Config {
	or := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&c.Readers, 4)
	or(&c.Queue, 100_000)
	or(&c.Backlog, 256)
	if c.Window <= 0 {
		c.Window = 200 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.FreeSpace == nil {
		c.FreeSpace = freeSpace
	}
	if c.Retention.SinkGrace == 0 {
		c.Retention.SinkGrace = 7 * 24 * time.Hour
	}
	if c.Retention.Settle == 0 {
		c.Retention.Settle = time.Hour
	}
	if c.Retention.Interval <= 0 {
		c.Retention.Interval = time.Minute
	}
	return c
}

// Store is the durable memory of one box. Its methods are safe for concurrent use; before Run is ready and after it
// has ended they return ErrClosed.
type Store struct {
	cfg     Config
	ready   chan struct{}
	stopped chan struct{}

	// Set before ready is closed, and never after.
	reader  *sql.DB // the catalogue's
	days    *days
	log     *backlog
	crashed []Sequence

	room *semaphore.Weighted
	wake chan struct{} // 1: the writer only needs to know that something waits
	ops  chan *op
	look chan int64 // 16 days that a reader found damaged; more are found again

	mu            sync.Mutex
	open          bool
	waiting       []*pending
	waitingWeight int64
	flushes       int // of those waiting, how many want to be committed now

	lastEvent atomic.Int64 // every event up to this number is durable, or never will be

	counters counters
	unspared atomic.Bool // the catalogue was changed since its last copy

	house              sync.Mutex // one pass of retention at a time; guards what it remembers of the clocks
	current            watched    // guarded by house
	lastWall, lastMono time.Time
	distrust           time.Time // monotonic: until when age deletes nothing
}

// New makes a store; it does no work.
func New(cfg Config) *Store {
	cfg = cfg.withDefaults()
	return &Store{
		cfg:     cfg,
		ready:   make(chan struct{}),
		stopped: make(chan struct{}),
		room:    semaphore.NewWeighted(int64(cfg.Queue)),
		wake:    make(chan struct{}, 1),
		ops:     make(chan *op),
		look:    make(chan int64, 16),
	}
}

// Ready is closed when the store can be used. It stays open when Run fails first.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Run opens the files (migrating and checking them), serves until ctx ends, commits what is queued and closes.
// It returns nil when asked to stop. A store runs once.
func (s *Store) Run(ctx context.Context) (err error) {
	defer close(s.stopped)
	w, err := s.start(ctx)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	s.mu.Lock()
	s.open = true
	s.mu.Unlock()
	close(s.ready)
	defer s.log.close()

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { w.run(gctx); return nil })
	g.Go(func() error { s.keepHouse(gctx); return nil })
	return g.Wait()
}

// running tells whether Run is ready and has not ended.
func (s *Store) running() error {
	select {
	case <-s.stopped:
		return ErrClosed
	default:
	}
	select {
	case <-s.ready:
		return nil
	default:
		return ErrClosed
	}
}

// op is a piece of work for the writer goroutine.
type op struct {
	run  func(ctx context.Context, w *writer) error
	done chan error
}

// do has the writer goroutine run fn between two windows. Once fn has begun, do waits for its end.
func (s *Store) do(ctx context.Context, fn func(ctx context.Context, w *writer) error) error {
	if err := s.running(); err != nil {
		return err
	}
	o := &op{run: fn, done: make(chan error, 1)}
	select {
	case s.ops <- o:
	case <-s.stopped:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-o.done
}
