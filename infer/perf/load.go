package perf

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// load sends requests.
type load struct {
	cfg    *Config
	model  *model
	client *v2client.Client // nil when everything goes over HTTP
	http   *v2client.HTTP
	pool   *v2client.Pool
	inputs int     // bytes of a slot before the outputs
	places []place // of outputs in a slot

	behind  atomic.Int64  // since the last window
	answers atomic.Int64  // of decoupled models, since then
	turn    atomic.Uint64 // of requests, or of sequences, of the input data
	sent    atomic.Int64
	limit   int64        // of those; 0: none
	working atomic.Int64 // workers that were started
	seed    atomic.Uint64

	mu     sync.Mutex
	lastID uint64
	open   map[uint64]bool // sequences under way, by correlation id
}

func newLoad(ctx context.Context, cfg *Config, c *connections, m *model) (*load, error) {
	l := &load{cfg: cfg, model: m, client: c.grpc, http: c.http, lastID: rand.Uint64() >> 1, open: make(map[uint64]bool)}
	if cfg.FirstID > 0 {
		l.lastID = cfg.FirstID - 1
	}
	if ids := cfg.LastID - cfg.FirstID + 1; m.sequence && cfg.LastID > 0 && ids < uint64(l.workers()) {
		return nil, fmt.Errorf("measure model %q: %d correlation ids are not enough for %d sequences at once", cfg.Model, ids, l.workers())
	}
	if cfg.SharedMemory {
		var err error
		if l.inputs, l.places, err = l.layOut(); err != nil {
			return nil, err
		}
		size := max(1, l.inputs)
		for _, p := range l.places {
			size += aligned(p.size)
		}
		server := v2client.Registrar(c.http)
		if c.grpc != nil {
			server = c.grpc
		}
		if l.pool, err = v2client.NewPool(ctx, server, l.workers(), size); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// place is where in a slot an output goes.
type place struct {
	name     string
	at, size int
}

// layOut divides a slot: the inputs of the largest request, then the outputs.
func (l *load) layOut() (inputs int, outputs []place, err error) {
	for _, stream := range l.model.streams {
		for _, r := range stream {
			n := 0
			for _, t := range r.inputs {
				n += aligned(len(t.Data))
			}
			inputs = max(inputs, n)
		}
	}
	at := inputs
	for _, p := range l.model.outputs {
		size := int64(l.cfg.OutputSize)
		if p.typ != tensor.Bytes && !slices.Contains(p.dims, -1) {
			if size, err = tensor.ByteSize(p.typ, append([]int64{int64(l.batch())}, p.dims...)); err != nil {
				return 0, nil, fmt.Errorf("output %q: %w", p.name, err)
			}
		}
		outputs = append(outputs, place{p.name, at, int(size)})
		at += aligned(int(size))
	}
	return inputs, outputs, nil
}

func aligned(n int) int { return (n + 63) &^ 63 }

func (l *load) close(ctx context.Context) {
	if l.pool != nil {
		_ = l.pool.Close(context.WithoutCancel(ctx))
	}
}

func (l *load) batch() int {
	if !l.model.batched {
		return 1
	}
	return l.cfg.Batch
}

// maxUnderWay bounds the requests of a rate that are under way at once.
const maxUnderWay = 256

// workers is how many there will be at most.
func (l *load) workers() int {
	switch {
	case l.cfg.timed() && l.model.sequence:
		return l.cfg.Sequences
	case l.cfg.timed():
		return maxUnderWay
	}
	return max(l.cfg.Concurrency, l.cfg.GrowTo)
}

// begin keeps the load up until limit requests were sent, if it is above 0, or stop is called, which waits for the last
// worker; the samples then end.
func (l *load) begin(ctx context.Context, limit int) (samples <-chan sample, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	l.limit = int64(limit)
	l.sent.Store(0)
	l.working.Store(0)
	l.behind.Store(0)
	l.answers.Store(0)
	out := make(chan sample, 1024) // workers should not wait for the sums
	go func() {
		l.run(ctx, out)
		close(out)
	}()
	return out, func() {
		cancel()
		for range out {
			continue
		}
	}
}

// finishing is how long the requests of sequences that are under way when the load ends may take.
const finishing = 5 * time.Second

// run keeps the load up until ctx ends or everything was sent.
func (l *load) run(ctx context.Context, samples chan<- sample) {
	var wg sync.WaitGroup
	defer wg.Wait()
	calls := ctx
	if l.model.sequence { // these are ended in order, or their slots in the server would stay taken
		lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(finishing, cancel) })()
		calls = lasting
		defer wg.Wait()
	}
	var due chan struct{} // when requests of a rate leave; nil: as soon as the last was answered
	if l.cfg.timed() {
		due = make(chan struct{}) // a request nobody is free for is late, not queued
		wg.Go(func() { l.clock(ctx, due) })
	}
	start := func(n int) {
		for range n {
			l.working.Add(1)
			wg.Go(func() { l.work(ctx, calls, due, samples) })
		}
	}
	if l.cfg.GrowTo == 0 {
		start(l.workers())
		return
	}
	// More and more at once, as answers come.
	start(l.cfg.Concurrency)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for grown := l.cfg.Concurrency; grown < l.cfg.GrowTo && !l.over(); {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.sent.Load() >= int64(grown*l.cfg.GrowEvery) {
			n := min(l.cfg.GrowBy, l.cfg.GrowTo-grown)
			start(n)
			grown += n
		}
	}
}

// over tells that nothing more is to be sent.
func (l *load) over() bool { return l.limit > 0 && l.sent.Load() >= l.limit }

// clock tells workers when to send, until everything was sent.
func (l *load) clock(ctx context.Context, due chan<- struct{}) {
	defer close(due)
	r := rand.New(rand.NewPCG(3, 4))
	next := time.Now()
	for n := 0; ; n++ {
		if list := l.cfg.Intervals; len(list) > 0 {
			next = next.Add(list[n%len(list)])
		} else {
			next = next.Add(pause(l.cfg.Rate, l.cfg.Poisson, r))
		}
		sleepUntil(ctx, next)
		if ctx.Err() != nil || l.over() {
			return
		}
		select {
		case due <- struct{}{}:
		default:
			l.behind.Add(1)
		}
	}
}

// sleepUntil wakes up at t, or when ctx ends. The runtime's timers are up to a millisecond late, which is longer than a
// request takes: they only begin the wait.
func sleepUntil(ctx context.Context, t time.Time) {
	const late = 2 * time.Millisecond
	if d := time.Until(t) - late; d > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(d):
		}
	}
	for d := time.Until(t); d > 0; d = time.Until(t) { // signals cut it short
		rest := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&rest, nil)
	}
}

// work sends one request after the other until ctx ends; calls bounds them.
func (l *load) work(ctx, calls context.Context, due <-chan struct{}, samples chan<- sample) {
	w, err := l.newWorker(calls)
	if err != nil {
		select {
		case samples <- sample{err: err}:
		case <-ctx.Done():
		}
		return
	}
	defer w.close(calls)
	for ctx.Err() == nil {
		if due != nil {
			select {
			case _, more := <-due:
				if !more {
					return
				}
			case <-ctx.Done():
				return
			}
		}
		if n := l.sent.Add(1); l.limit > 0 && n > l.limit {
			return
		}
		begin := time.Now()
		answered, err := w.send(calls)
		if ctx.Err() != nil {
			return
		}
		s := sample{begin: begin, took: time.Since(begin), err: err, answers: answered}
		s.sequence = w.sequence
		select {
		case samples <- s:
		case <-ctx.Done():
			return
		}
	}
}

// worker is one client's state.
type worker struct {
	load   *load
	req    v2client.Request
	now    *request
	list   []request // of the sequence
	slot   *v2client.Slot
	stream *v2client.Stream
	random *rand.Rand

	sequence uint64 // the correlation id
	at       int    // in the sequence
	left     int    // requests of the sequence that are to come
}

func (l *load) newWorker(ctx context.Context) (*worker, error) {
	w := &worker{load: l, random: rand.New(rand.NewPCG(5, l.seed.Add(1)))}
	w.req = v2client.Request{Model: l.cfg.Model, Version: l.cfg.Version, Parameters: l.cfg.Parameters, JSONInputs: l.cfg.JSONInputs, JSONOutputs: l.cfg.JSONOutputs}
	if l.model.decoupled {
		w.req.Parameters = map[string]any{"triton_enable_empty_final_response": true}
		maps.Copy(w.req.Parameters, l.cfg.Parameters)
	}
	if l.pool != nil {
		slot, err := l.pool.Get(ctx)
		if err != nil {
			return nil, err
		}
		w.slot = slot
		for _, p := range l.places {
			w.req.Outputs = append(w.req.Outputs, v2client.Output{Name: p.name, Place: slot.Place(p.at, p.size)})
		}
	}
	if l.cfg.Streaming {
		var err error
		if w.stream, err = l.client.Stream(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// close ends the sequence that is open, and gives back what the worker has.
func (w *worker) close(ctx context.Context) {
	if w.left > 0 {
		w.left = 1
		_, _ = w.send(ctx) // the server ends it by time otherwise
	}
	if w.slot != nil {
		w.slot.Release()
	}
}

// put makes r what is sent next.
func (w *worker) put(r *request) {
	if w.now == r {
		return
	}
	w.now, w.req.Inputs = r, w.req.Inputs[:0]
	at := 0
	for _, t := range r.inputs {
		in := v2client.Input{Tensor: t}
		if w.slot != nil {
			copy(w.slot.Bytes[at:], t.Data)
			in.Place = w.slot.Place(at, len(t.Data))
			at += aligned(len(t.Data))
		}
		w.req.Inputs = append(w.req.Inputs, in)
	}
}

// send asks once, and returns when answers came if somebody wants to know.
func (w *worker) send(ctx context.Context) (answered []time.Time, err error) {
	m := w.load.model
	if m.sequence {
		w.step()
	} else if list := m.streams[0]; len(list) == 1 {
		w.put(&list[0])
	} else {
		w.put(&list[(w.load.turn.Add(1)-1)%uint64(len(list))])
	}
	var resp *v2client.Response
	var wrong error // what is answered is not what the input data says
	switch {
	case w.stream != nil:
		if err = w.stream.SendRequest(&w.req); err == nil {
			answered, wrong, err = w.receive()
		}
	case w.load.http != nil:
		resp, err = w.load.http.Infer(ctx, &w.req)
	default:
		resp, err = w.load.client.Infer(ctx, &w.req)
	}
	if err == nil && resp != nil {
		if w.load.cfg.Keep {
			answered = []time.Time{time.Now()}
		}
		wrong = w.check(resp)
		resp.Release()
	}
	if m.sequence && (err != nil || w.left == 0) {
		w.left = 0 // one that failed is of no more use
		w.load.sequenceEnded(w.sequence)
	}
	return answered, cmp.Or(err, wrong)
}

// receive reads the answer of a request: the one there is, or all up to the last of a model that gives many.
func (w *worker) receive() (answered []time.Time, wrong, err error) {
	for {
		resp, err := w.stream.Next()
		if err != nil {
			return answered, wrong, err
		}
		if w.load.model.decoupled && len(resp.Outputs) > 0 {
			w.load.answers.Add(1)
		}
		if w.load.cfg.Keep && len(resp.Outputs) > 0 {
			answered = append(answered, time.Now())
		}
		if len(resp.Outputs) > 0 && wrong == nil {
			wrong = w.check(resp)
		}
		if resp.Release(); resp.Final || !w.load.model.decoupled {
			return answered, wrong, nil
		}
	}
}

// check compares an answer with what it should be.
func (w *worker) check(resp *v2client.Response) error {
	for _, want := range w.now.outputs {
		got := resp.Output(want.Name)
		if got != nil {
			w.fetch(got, len(want.Data))
		}
		switch {
		case got == nil:
			return fmt.Errorf("output %q is missing, which validation_data has", want.Name)
		case !slices.Equal(got.Shape, want.Shape):
			return fmt.Errorf("output %q has shape %v, in validation_data %v", want.Name, got.Shape, want.Shape)
		case !bytes.Equal(got.Data, want.Data):
			return fmt.Errorf("output %q is not what validation_data has", want.Name)
		}
	}
	return nil
}

// fetch looks at n bytes of an output where it was put.
func (w *worker) fetch(t *tensor.Tensor, n int) {
	for _, p := range w.load.places {
		if p.name == t.Name {
			t.Data = w.slot.Bytes[p.at : p.at+min(n, p.size)]
		}
	}
}

// step moves on in the worker's sequence, or begins the next: as long as its input data, or a share shorter or longer
// than the mean.
func (w *worker) step() {
	l := w.load
	w.req.Start = w.left == 0
	if w.req.Start {
		streams := l.model.streams
		w.list, w.at = streams[(l.turn.Add(1)-1)%uint64(len(streams))], 0
		w.left = len(w.list)
		if mean := l.cfg.SequenceLength; mean > 0 || !l.model.given {
			if mean == 0 {
				mean = defaultSequence
			}
			spread := int(float64(mean) * l.cfg.SequenceSpread)
			w.left = max(1, mean-spread+w.random.IntN(2*spread+1))
		}
		w.sequence = l.sequenceBegins()
		w.req.Sequence = w.sequence
		if l.model.textID {
			w.req.Sequence = strconv.FormatUint(w.sequence, 10)
		}
	}
	w.put(&w.list[w.at%len(w.list)])
	w.at++
	w.left--
	w.req.End = w.left == 0
}

// sequenceBegins picks a correlation id that no other open sequence has.
func (l *load) sequenceBegins() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.lastID++; l.cfg.LastID > 0 && l.lastID > l.cfg.LastID {
			l.lastID = l.cfg.FirstID
		}
		if !l.open[l.lastID] {
			l.open[l.lastID] = true
			return l.lastID
		}
	}
}

func (l *load) sequenceEnded(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// counters are the sums of a model's statistics.
type counters struct {
	requests, queue, input, infer, output, inferences, executions uint64
}

// statistics are those of each model.
func statistics(ctx context.Context, c v2client.Describer, models []called) ([]counters, error) {
	all := make([]counters, len(models))
	for i, m := range models {
		resp, err := c.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: m.name, Version: m.version})
		if err != nil {
			return nil, fmt.Errorf("read statistics of model %q: %w", m.name, said(err))
		}
		sum := &all[i]
		for _, m := range resp.GetModelStats() {
			s := m.GetInferenceStats()
			sum.requests += s.GetSuccess().GetCount()
			sum.queue += s.GetQueue().GetNs()
			sum.input += s.GetComputeInput().GetNs()
			sum.infer += s.GetComputeInfer().GetNs()
			sum.output += s.GetComputeOutput().GetNs()
			sum.inferences += m.GetInferenceCount()
			sum.executions += m.GetExecutionCount()
		}
	}
	return all, nil
}

func (c counters) since(b counters) Server {
	n := max(c.requests-b.requests, 1)
	each := func(now, then uint64) time.Duration { return time.Duration((now - then) / n) }
	return Server{
		Queue: each(c.queue, b.queue), ComputeInput: each(c.input, b.input), ComputeInfer: each(c.infer, b.infer),
		ComputeOutput: each(c.output, b.output), Inferences: c.inferences - b.inferences, Executions: c.executions - b.executions,
	}
}
