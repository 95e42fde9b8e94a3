// Package repository turns directories of models into something that answers
// requests.
//
// A model is a directory with a config.pbtxt and one directory per version.
// The repository reads them, loads versions by policy, replaces them without a
// gap, and keeps one bad model from touching the others. It is the server's
// infer.Inferer and infer.Catalog.
package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/stats"
	"github.com/vedette/vedette/infer/tensor"
)

// Mode says who decides which models are loaded.
type Mode string

// The model control modes.
const (
	ModeNone     Mode = "none"     // everything in the repositories, once
	ModeExplicit Mode = "explicit" // what Load is called for
	ModePoll     Mode = "poll"     // everything, as the directories change
)

// Config says what a repository serves. Only Roots and Backends are needed.
type Config struct {
	// Roots hold a directory for each model: local directories, or the URLs of
	// object stores and registries (modelstore.New).
	Roots []string
	// Namespaces lets several Roots have models of one name.
	Namespaces bool
	// StoreCopies keeps the copies of models from stores over restarts; empty:
	// they are temporary.
	StoreCopies string
	// Backends by the name a configuration gives.
	Backends map[string]backend.Backend
	// Settings by backend, then by key (--backend-config); those of "" are every backend's.
	Settings map[string]map[string]string

	Mode Mode // empty: none
	// Startup names the models that explicit mode loads at start; "*" is all.
	Startup []string
	// PollInterval of poll mode; 0: 15 s.
	PollInterval time.Duration
	// NoAutoComplete makes a config.pbtxt necessary.
	NoAutoComplete bool
	// ConfigName selects configs/<name>.pbtxt where a model has it.
	ConfigName string
	// LoadThreads is how many models load at once; 0: 4.
	LoadThreads int
	// LoadRetries repeats a failed load; 0: not.
	LoadRetries int
	// LooseReadiness: the server is ready although a model is not.
	LooseReadiness bool

	// Cores is the CPU budget: instances times threads stay within it unless a
	// model says otherwise; 0: what the process may use.
	Cores int
	// GPUs are the device numbers there are.
	GPUs []int32

	// RateLimit turns on the rate limiter; Resources are all that there is of
	// what its groups name; none: as much as the neediest instance wants.
	RateLimit bool
	Resources []Resource
	// CacheBytes bounds the response cache; 0: there is none, and models that
	// ask for it are served without.
	CacheBytes int

	// Summaries makes what takes the single durations of a model version's
	// requests; nil: nothing does.
	Summaries func(of stats.Snapshot) *stats.Summaries

	// HoldQueued and HoldBacklog are schedule.Config's, for test suites.
	HoldQueued, HoldBacklog int

	// Name and Version of the server in its metadata; empty: triton, and a
	// development version.
	Name, Version string
	// Pool lends the memory of responses and state; nil makes one.
	Pool   *tensor.Pool
	Logger *slog.Logger // nil: silent
}

// Repository serves the models of its directories.
type Repository struct {
	cfg    Config
	logger *slog.Logger
	roots  []root
	pool   *tensor.Pool

	responses sync.Pool
	waits     infer.Waits
	recycle   func(*infer.Response)
	sequences atomic.Uint64
	limiter   *limiter // nil: off
	cache     *cache   // nil: off

	// table is what requests see; it is replaced, never changed.
	table atomic.Pointer[map[string]*shown]

	tried map[string]attempt // poll mode: the last load of a model

	mu     sync.Mutex
	models map[string]*model
	//nolint:containedctx // the life of everything loaded, from Run to its end
	ctx     context.Context
	running sync.WaitGroup // one for each version loaded
	started chan struct{}  // closed by Run

	loaded   chan struct{} // closed when the models of the start are loaded or failed
	loadErr  error
	stopping atomic.Bool
	// How many versions were begun, and how often models have changed.
	serials, published atomic.Int64

	unknown atomic.Bool // a repository could not be read yet: what it holds is missing
}

// New checks the configuration; nothing is read before Run.
func New(cfg Config) (*Repository, error) {
	if len(cfg.Roots) == 0 {
		return nil, errors.New("open model repository: no directory was given (--model-repository)")
	}
	switch cfg.Mode {
	case "":
		cfg.Mode = ModeNone
	case ModeNone, ModeExplicit, ModePoll:
	default:
		return nil, fmt.Errorf("open model repository: control mode %q is not none, explicit or poll", cfg.Mode)
	}
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = 15 * time.Second
	}
	if cfg.LoadThreads <= 0 {
		cfg.LoadThreads = 4
	}
	if cfg.Cores <= 0 {
		cfg.Cores = runtime.GOMAXPROCS(0)
	}
	if cfg.Pool == nil {
		cfg.Pool = new(tensor.Pool)
	}
	if cfg.Name == "" {
		cfg.Name = "triton"
	}
	if cfg.Version == "" {
		cfg.Version = "2.73.0dev"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Repository{
		cfg: cfg, logger: cfg.Logger, pool: cfg.Pool, models: make(map[string]*model), tried: make(map[string]attempt),
		started: make(chan struct{}), loaded: make(chan struct{}),
	}
	if err := r.openRoots(); err != nil {
		return nil, err
	}
	if cfg.RateLimit {
		r.limiter = newLimiter(cfg.Resources)
	}
	if cfg.CacheBytes > 0 {
		r.cache = newCache(cfg.CacheBytes)
	}
	r.recycle = func(resp *infer.Response) { r.responses.Put(resp) }
	r.table.Store(&map[string]*shown{})
	return r, nil
}

// Run loads what the mode says and serves until ctx ends; then every request
// under way is answered and every model freed before it returns. Grace bounds
// that; after it requests in queues are rejected.
func (r *Repository) Run(ctx context.Context, grace time.Duration) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.mu.Lock()
	r.ctx = life
	r.mu.Unlock()
	close(r.started)
	limiting, stopLimiting := context.WithCancel(life)
	var limits sync.WaitGroup
	if r.limiter != nil {
		limits.Go(func() { r.limiter.run(limiting) })
	}

	r.loadErr = r.loadAtStart(ctx)
	close(r.loaded)
	r.poll(ctx)

	r.stopping.Store(true)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r.closeAll(life)
		r.running.Wait()
		close(done)
	})
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		end(fmt.Errorf("the server stops and waited %s for requests under way", grace))
	}
	wg.Wait()
	stopLimiting()
	limits.Wait()
	r.closeRoots()
	return nil
}

// Loaded waits until the models of the start are loaded, and says which of
// them failed.
func (r *Repository) Loaded(ctx context.Context) error {
	select {
	case <-r.loaded:
		return r.loadErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Submit implements infer.Inferer.
func (r *Repository) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	return r.submit(ctx, req, reply, never)
}

// SubmitBrief implements infer.Brief.
func (r *Repository) SubmitBrief(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	return r.submit(ctx, req, reply, whenBrief)
}

// Do implements infer.Doer: where an instance is idle the model runs on the
// caller's goroutine.
func (r *Repository) Do(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	return r.waits.Do(ctx, inline{r}, req)
}

// SubmitWaiting is Submit for a caller that waits for the answer: it may return
// only when the model has run.
func (r *Repository) SubmitWaiting(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	return r.submit(ctx, req, reply, always)
}

type inline struct{ r *Repository }

// Submit implements infer.Inferer for callers that wait anyway.
func (i inline) Submit(ctx context.Context, req *infer.Request, reply func(infer.Reply)) error {
	return i.r.submit(ctx, req, reply, always)
}

// here is whether an idle instance runs a request on the goroutine that brings it.
type here uint8

const (
	never here = iota
	whenBrief
	always
)

func (r *Repository) submit(ctx context.Context, req *infer.Request, reply func(infer.Reply), run here) error {
	for {
		v, err := r.find(req.Model, req.Version)
		if err != nil {
			return err
		}
		if v.enter() {
			return v.submit(ctx, req, reply, run == always || run == whenBrief && v.brief())
		}
		if v.replaced != nil {
			select {
			case <-v.replaced:
				continue
			case <-ctx.Done():
				return infer.Errorf(infer.Cancelled, "request cancelled")
			}
		}
		// The version was closed between find and enter. What replaced it, or
		// that nothing did, is in the table by now: closing comes after. Only
		// when the server stops nothing replaces it.
		if r.stopping.Load() {
			return infer.Errorf(infer.Unavailable, "Server is stopping, scheduler for model has stopped accepting new inference requests")
		}
	}
}

func (r *Repository) newResponse() *infer.Response {
	if resp, ok := r.responses.Get().(*infer.Response); ok {
		return resp
	}
	return infer.NewResponse(r.pool, r.recycle)
}

// Buffers lent to responses that nobody has released; 0 when all is answered.
func (r *Repository) Buffers() int64 { return r.pool.Lent() }

// Counters are the counters of every loaded version.
func (r *Repository) Counters() []stats.Snapshot {
	var out []stats.Snapshot
	for _, m := range r.sorted() {
		for _, v := range m.ready {
			out = append(out, v.snapshot())
		}
	}
	return out
}

// life is the context of what the repository does on its own account.
func (r *Repository) life() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		return context.Background() // before Run
	}
	return r.ctx
}
