// Package stats counts what became of the requests of each model version: how
// many there were, how long they waited and computed, and in which batches.
//
// The numbers are cumulative from the load of the version on, as the
// statistics extension of the v2 protocol has them.
package stats

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/vedette/vedette/infer"
)

// Model counts for one model version. The zero value is ready.
type Model struct {
	mu       sync.Mutex
	c        Counters
	batches  map[int]*Batch
	response []Response
	summary  *Summaries // nil: nobody wants them
}

// Configure says how first responses are counted (nil: in the reference
// server's buckets) and who takes single durations (nil: nobody). It is called
// before anything is counted.
func (m *Model) Configure(firstResponse []time.Duration, summaries *Summaries) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.FirstResponse.Bounds, m.summary = firstResponse, summaries
}

// Duration is a number of events and the time they took together.
type Duration struct {
	Count uint64
	Total time.Duration
}

func (d *Duration) add(n uint64, t time.Duration) {
	d.Count += n
	d.Total += t
}

// Counters are the sums over all requests.
type Counters struct {
	LastInference                             time.Time
	Inferences                                uint64 // sum of the batch sizes of successful requests
	Executions                                uint64 // batches run
	Success, Fail, Queue                      Duration
	ComputeInput, ComputeInfer, ComputeOutput Duration
	CacheHit, CacheMiss                       Duration
	Failures                                  [4]uint64 // by infer.Reason
	LoadTime                                  time.Duration
	Latency, FirstResponse                    Histogram
}

// Batch is what executions of one batch size took.
type Batch struct {
	Size                                      int
	ComputeInput, ComputeInfer, ComputeOutput Duration
}

// Response is what the n-th responses of decoupled requests took.
type Response struct {
	ComputeInfer, ComputeOutput, Success, Fail, Empty, Cancel Duration
}

// Execution is one batch that ran.
type Execution struct {
	Size                 int // with padding
	Inferences           int // sum of the batch sizes of those that succeeded
	Succeeded            int
	Queue, Total         time.Duration // sums over those that succeeded
	Input, Infer, Output time.Duration
	End                  time.Time
}

// Executed counts a batch. Requests that failed are counted by Failed.
func (m *Model) Executed(e Execution) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.Executions++
	m.c.LastInference = e.End
	b := m.batches[e.Size]
	if b == nil {
		if m.batches == nil {
			m.batches = make(map[int]*Batch)
		}
		b = &Batch{Size: e.Size}
		m.batches[e.Size] = b
	}
	b.ComputeInput.add(1, e.Input)
	b.ComputeInfer.add(1, e.Infer)
	b.ComputeOutput.add(1, e.Output)
	n := uint64(e.Succeeded)
	if n == 0 {
		return
	}
	m.c.Inferences += uint64(e.Inferences)
	m.c.Success.add(n, e.Total)
	m.c.Queue.add(n, e.Queue)
	m.c.ComputeInput.add(n, e.Input*time.Duration(n))
	m.c.ComputeInfer.add(n, e.Infer*time.Duration(n))
	m.c.ComputeOutput.add(n, e.Output*time.Duration(n))
	m.c.Latency.Observe(e.Total/time.Duration(n), n)
	if s := m.summary; s != nil {
		observe(s.Request, e.Total/time.Duration(n), e.Succeeded)
		observe(s.Queue, e.Queue/time.Duration(n), e.Succeeded)
		observe(s.ComputeInput, e.Input, e.Succeeded)
		observe(s.ComputeInfer, e.Infer, e.Succeeded)
		observe(s.ComputeOutput, e.Output, e.Succeeded)
	}
}

// Finished counts a decoupled request that came to its end.
func (m *Model) Finished(batch int, queue, infer, total time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.Inferences += uint64(batch)
	m.c.Success.add(1, total)
	m.c.Queue.add(1, queue)
	m.c.ComputeInput.add(1, 0)
	m.c.ComputeInfer.add(1, infer)
	m.c.ComputeOutput.add(1, 0)
	m.c.Latency.Observe(total, 1)
	if s := m.summary; s != nil {
		observe(s.Request, total, 1)
		observe(s.Queue, queue, 1)
		observe(s.ComputeInput, 0, 1)
		observe(s.ComputeInfer, infer, 1)
		observe(s.ComputeOutput, 0, 1)
	}
}

// Failed counts a request that ended with an error.
func (m *Model) Failed(reason infer.Reason, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.Fail.add(1, took)
	if int(reason) < len(m.c.Failures) {
		m.c.Failures[reason]++
	}
}

// Hit counts a request answered from the response cache.
func (m *Model) Hit(now time.Time, lookup, total time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.LastInference = now
	m.c.CacheHit.add(1, lookup)
	m.c.Success.add(1, total)
	m.c.Queue.add(1, 0)
	m.c.Latency.Observe(total, 1)
	if s := m.summary; s != nil {
		observe(s.Request, total, 1)
		observe(s.Queue, 0, 1)
		observe(s.CacheHit, lookup, 1)
	}
}

// Missed counts a lookup in the response cache that found nothing, and the time
// to store what was computed instead.
func (m *Model) Missed(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.CacheMiss.add(1, took)
	if m.summary != nil {
		observe(m.summary.CacheMiss, took, 1)
	}
}

// Loaded notes how long the version took to load.
func (m *Model) Loaded(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c.LoadTime = took
}

// Responded counts the n-th response of a decoupled request: a result, or an
// empty end. First is the time from the request on.
func (m *Model) Responded(n int, empty bool, infer, output, first time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nth(n)
	if r == nil {
		return
	}
	if n == 0 {
		if m.c.FirstResponse.Bounds == nil {
			m.c.FirstResponse.Bounds = firstResponseBounds
		}
		m.c.FirstResponse.Observe(first, 1)
	}
	r.ComputeInfer.add(1, infer)
	if empty {
		r.Empty.add(1, infer)
		return
	}
	r.ComputeOutput.add(1, output)
	r.Success.add(1, infer+output)
}

// ResponseFailed counts the n-th response of a decoupled request that was an
// error. Output is zero where no response was begun.
func (m *Model) ResponseFailed(n int, cancelled bool, infer, output time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.nth(n)
	switch {
	case r == nil:
	case cancelled:
		r.Cancel.add(1, infer)
	default:
		r.ComputeInfer.add(1, infer)
		if output > 0 {
			r.ComputeOutput.add(1, output)
		}
		r.Fail.add(1, infer+output)
	}
}

// maxResponses bounds the numbers kept for models that never stop answering.
const maxResponses = 1024

func (m *Model) nth(n int) *Response {
	if n >= maxResponses {
		return nil
	}
	for len(m.response) <= n {
		m.response = append(m.response, Response{})
	}
	return &m.response[n]
}

// Snapshot is a model version's counters at one moment.
type Snapshot struct {
	Name      string
	Namespace string // the repository, where that matters
	Version   int64
	Tags      map[string]string // metric_tags of the configuration
	GPUs      []int32           // devices its instances run on
	Pending   int               // requests that wait for execution
	Cached    bool              // the model uses the response cache
	Decoupled bool
	Counters
	Batches   []Batch
	Responses []Response
	Summaries *Summaries // nil: there are none
	Memory    []Memory
}

// Memory is what a model version occupies in one place.
type Memory struct {
	Type string // CPU or GPU
	ID   int64  // of the device
	Size uint64 // bytes
}

// Snapshot copies the counters; the caller adds what the model is.
func (m *Model) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{Counters: m.c, Responses: slices.Clone(m.response), Summaries: m.summary}
	s.Latency.Buckets = slices.Clone(s.Latency.Buckets)
	s.FirstResponse.Buckets = slices.Clone(s.FirstResponse.Buckets)
	if s.FirstResponse.Bounds == nil {
		s.FirstResponse.Bounds = firstResponseBounds
	}
	for _, b := range m.batches {
		s.Batches = append(s.Batches, *b)
	}
	slices.SortFunc(s.Batches, func(a, b Batch) int { return cmp.Compare(a.Size, b.Size) })
	return s
}
