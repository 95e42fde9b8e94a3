package pipeline

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vedette/vedette/ingest/ingestclient"
)

// The stages every frame passes besides the steps of its model, in order. Each is named for what ends with it.
const (
	StageReceive = "receive" // capture to its last packet
	StageDecode  = "decode"
	StageQueue   = "queue" // copied, announced and waited until it was sent to inference
	StageCommit  = "commit"
)

// Stamp is the end of a stage, counted from the frame's capture.
type Stamp struct {
	Stage string
	End   time.Duration
}

// Timed is the way of one committed frame.
type Timed struct {
	Camera   string
	Sequence int64
	Number   int64
	Capture  time.Time
	Stamps   []Stamp
}

// Timing is where the time of a camera's newest frames went.
type Timing struct {
	// Stages in the order frames pass them; the last is named "total".
	Stages []StageTiming
	// Frames, newest first.
	Frames []Timed
}

// StageTiming is how long frames stayed in a stage.
type StageTiming struct {
	Stage         string
	P50, P99, Max time.Duration
	Frames        int
}

// kept is how many frames a camera's timing looks back.
const kept = 256

// timings joins what is known of frames before their commit with the commit.
type timings struct {
	mu      sync.Mutex // guards what follows
	pending map[frameKey]Timed
	done    map[string][]Timed // newest last, at most kept
}

type frameKey struct{ sequence, number int64 }

// maxPending bounds frames whose commit is awaited; those of detections that are shed on a full disk never come.
const maxPending = 4096

func newTimings() *timings {
	return &timings{pending: map[frameKey]Timed{}, done: map[string][]Timed{}}
}

// await keeps a frame until it is committed.
func (t *timings) await(f Timed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) >= maxPending {
		clear(t.pending)
	}
	t.pending[frameKey{f.Sequence, f.Number}] = f
}

// committed completes a frame; ok is false when nothing is known of it.
func (t *timings) committed(sequence, number int64, at time.Time) (f Timed, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := frameKey{sequence, number}
	if f, ok = t.pending[key]; !ok {
		return f, false
	}
	delete(t.pending, key)
	f.Stamps = append(f.Stamps, Stamp{StageCommit, at.Sub(f.Capture)})
	list := t.done[f.Camera]
	if len(list) >= kept {
		list = slices.Delete(list, 0, len(list)-kept+1)
	}
	t.done[f.Camera] = append(list, f)
	return f, true
}

func (t *timings) forget(camera string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.done, camera)
}

// Timing tells where the time of a camera's newest frames went.
func (p *Pipeline) Timing(camera string) Timing {
	p.timings.mu.Lock()
	frames := slices.Clone(p.timings.done[camera])
	p.timings.mu.Unlock()
	slices.Reverse(frames)
	return Timing{Stages: summarise(frames), Frames: frames[:min(len(frames), 32)]}
}

// summarise takes the stages' names from the newest frame.
func summarise(frames []Timed) []StageTiming {
	if len(frames) == 0 {
		return nil
	}
	stays := map[string][]time.Duration{}
	for i := range frames {
		last := time.Duration(0)
		for _, s := range frames[i].Stamps {
			stays[s.Stage] = append(stays[s.Stage], s.End-last)
			last = s.End
		}
		stays["total"] = append(stays["total"], last)
	}
	stages := make([]StageTiming, 0, len(frames[0].Stamps)+1)
	for _, s := range append(slices.Clone(frames[0].Stamps), Stamp{Stage: "total"}) {
		list := stays[s.Stage]
		slices.Sort(list)
		stages = append(stages, StageTiming{
			Stage: s.Stage, P50: list[len(list)/2], P99: list[min(len(list)*99/100, len(list)-1)], Max: list[len(list)-1], Frames: len(list),
		})
	}
	return stages
}

// timed writes down the way of an answered frame so far. Sent is on the machine's monotonic clock, as what the answer
// tells of its steps is.
func (q *sequence) timed(camera string, n ingestclient.Frame, sent int64, steps []stepTime) Timed {
	capture := time.Unix(0, n.GetCaptureTimeNs())
	received := time.Duration(n.GetReceiveTimeNs() - n.GetCaptureTimeNs())
	end := func(mono int64) time.Duration { return received + time.Duration(mono-n.GetReceiveMonotonicNs()) }
	f := Timed{Camera: camera, Sequence: q.id, Number: int64(n.GetNumber()), Capture: capture, Stamps: []Stamp{{StageReceive, received}}}
	if d := n.GetDecodedMonotonicNs(); d != 0 {
		f.Stamps = append(f.Stamps, Stamp{StageDecode, end(d)})
	}
	f.Stamps = append(f.Stamps, Stamp{StageQueue, end(sent)})
	for _, s := range steps {
		f.Stamps = append(f.Stamps, Stamp{cmp.Or(q.model.stages[s.model], s.model), end(s.mono)})
	}
	return f
}

// stepTime is when a step of a model ended, in nanoseconds of the machine's monotonic clock.
type stepTime struct {
	model string
	mono  int64
}

// readSteps reads what the parameter step_times says: model=nanoseconds, separated by commas. What cannot be read is
// left out.
func readSteps(text string) []stepTime {
	var steps []stepTime
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		mono, err := strconv.ParseInt(value, 10, 64)
		if ok && err == nil && name != "" {
			steps = append(steps, stepTime{name, mono})
		}
	}
	return steps
}
