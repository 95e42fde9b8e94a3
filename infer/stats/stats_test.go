package stats_test

import (
	"testing"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/stats"
)

func TestX1CountersAddUp(t *testing.T) {
	var m stats.Model
	end := time.UnixMilli(1234567)
	// Two requests of 3 and 1 in a batch padded to 6; a third of it failed.
	m.Executed(stats.Execution{
		Size: 6, Inferences: 4, Succeeded: 2, Queue: 5 * time.Millisecond, Total: 30 * time.Millisecond,
		Input: time.Millisecond, Infer: 7 * time.Millisecond, Output: 2 * time.Millisecond, End: end,
	})
	m.Failed(infer.ReasonBackend, time.Millisecond)
	m.Failed(infer.ReasonRejected, time.Millisecond)
	m.Executed(stats.Execution{Size: 2, End: end}) // nobody of it succeeded
	s := m.Snapshot()
	s.Name, s.Version = "m", 3
	p := s.Proto()
	if p.GetName() != "m" || p.GetVersion() != "3" || p.GetLastInference() != 1234567 || p.GetInferenceCount() != 4 || p.GetExecutionCount() != 2 {
		t.Errorf("counts %v", p)
	}
	i := p.GetInferenceStats()
	for name, c := range map[string]struct {
		got, count uint64
		ns         uint64
		want       time.Duration
	}{
		"success": {i.GetSuccess().GetCount(), 2, i.GetSuccess().GetNs(), 30 * time.Millisecond},
		"fail":    {i.GetFail().GetCount(), 2, i.GetFail().GetNs(), 2 * time.Millisecond},
		"queue":   {i.GetQueue().GetCount(), 2, i.GetQueue().GetNs(), 5 * time.Millisecond},
		"input":   {i.GetComputeInput().GetCount(), 2, i.GetComputeInput().GetNs(), 2 * time.Millisecond},
		"infer":   {i.GetComputeInfer().GetCount(), 2, i.GetComputeInfer().GetNs(), 14 * time.Millisecond},
		"output":  {i.GetComputeOutput().GetCount(), 2, i.GetComputeOutput().GetNs(), 4 * time.Millisecond},
	} {
		if c.got != c.count || time.Duration(c.ns) != c.want {
			t.Errorf("%s: %d in %v, want %d in %v", name, c.got, time.Duration(c.ns), c.count, c.want)
		}
	}
	if b := p.GetBatchStats(); len(b) != 2 || b[0].GetBatchSize() != 2 || b[1].GetBatchSize() != 6 || b[1].GetComputeInfer().GetNs() != uint64(7*time.Millisecond) {
		t.Errorf("batches %v", b)
	}
	if s.Failures[infer.ReasonBackend] != 1 || s.Failures[infer.ReasonRejected] != 1 {
		t.Errorf("failures %v", s.Failures)
	}
}

func TestX2HistogramPutsEachInItsBucket(t *testing.T) {
	var h stats.Histogram
	bounds := stats.Bounds()
	for _, b := range bounds {
		h.Observe(b, 1)
	}
	h.Observe(time.Hour, 2)
	for i := range bounds {
		if h.Buckets[i] != 1 {
			t.Errorf("bucket up to %v holds %d", bounds[i], h.Buckets[i])
		}
	}
	if h.Buckets[len(bounds)] != 2 || h.Count != uint64(len(bounds))+2 {
		t.Errorf("beyond all bounds: %d of %d", h.Buckets[len(bounds)], h.Count)
	}
}

func TestS12AndX1ResponsesOfStreamsAreCountedByPlace(t *testing.T) {
	var m stats.Model
	for n := range 3 {
		m.Responded(n, false, time.Millisecond, time.Millisecond, 5*time.Millisecond)
	}
	m.Responded(3, true, time.Millisecond, 0, 0)
	m.ResponseFailed(1, false, time.Millisecond, 0)
	m.ResponseFailed(1, true, time.Millisecond, 0)
	m.Responded(1<<30, false, 0, 0, 0) // beyond what is kept
	m.Finished(1, 0, time.Millisecond, 2*time.Millisecond)
	p := m.Snapshot()
	r := p.Proto().GetResponseStats()
	if len(r) != 4 || r["0"].GetSuccess().GetCount() != 1 || r["3"].GetEmptyResponse().GetCount() != 1 ||
		r["1"].GetFail().GetCount() != 1 || r["1"].GetCancel().GetCount() != 1 || p.FirstResponse.Count != 1 || p.Inferences != 1 {
		t.Errorf("responses %v", r)
	}
}
