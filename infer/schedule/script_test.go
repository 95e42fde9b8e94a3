package schedule

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect")

// A script is one story of a scheduler: orders (at 3ms enqueue a seq=7 start)
// and, under each, what the policy did up to the next one (expect ...). The
// first lines give the model:
//
//	model <protobuf text>            may be repeated
//	instances 2
//	hold queued=4 backlog=1
//
// Orders are enqueue NAME [seq=N|seq="S"] [scope=S] [start] [end] [batch=N]
// [priority=N] [timeout=D] [shape=S], finish INSTANCE (every job of its batch
// is answered, then it is idle), answer NAME (one job only), cancel NAME, sweep,
// stop and wait. What happens between orders, by timers, is reported with its time.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.script")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("script and scheduler differ (-script +scheduler):\n%s", diff)
			}
		})
	}
}

// stage plays a script against a policy, without goroutines or clocks.
type stage struct {
	t       *testing.T
	cfg     Config
	p       policy
	now     time.Time
	zero    time.Time
	jobs    map[string]*Job
	shapes  map[*Job]string
	running []*Batch // by instance, nil when idle
	gone    map[*Job]bool
	out     []string
}

type actor struct{ name string }

func play(t *testing.T, text string) string {
	s := &stage{
		t: t, zero: time.Unix(1000, 0), jobs: map[string]*Job{}, shapes: map[*Job]string{}, gone: map[*Job]bool{},
	}
	s.now = s.zero
	var model strings.Builder
	s.cfg.Instances = 1
	var result []string
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "expect"):
			continue
		case len(f) > 0 && f[0] == "at":
			if s.p == nil {
				s.open(model.String())
			}
			s.order(f)
			result = append(result, line)
			for _, o := range s.out {
				result = append(result, "expect "+o)
			}
			s.out = nil
			continue
		case len(f) > 0 && f[0] == "model":
			model.WriteString(strings.TrimPrefix(line, "model") + "\n")
		case len(f) > 0 && f[0] == "instances":
			s.cfg.Instances, _ = strconv.Atoi(f[1])
		case len(f) > 0 && f[0] == "hold":
			s.cfg.HoldQueued, _ = strconv.Atoi(option(f, "queued"))
			s.cfg.HoldBacklog, _ = strconv.Atoi(option(f, "backlog"))
		}
		result = append(result, line)
	}
	return strings.Join(result, "\n")
}

func option(f []string, key string) string {
	for _, w := range f {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}

func has(f []string, word string) bool {
	return slices.Contains(f, word)
}

func (s *stage) open(model string) {
	cfg := new(inference.ModelConfig)
	if err := prototext.Unmarshal([]byte(model), cfg); err != nil {
		s.t.Fatal(err)
	}
	cfg.Name = "m"
	s.cfg.Model, s.cfg.Ended = cfg, true
	s.cfg.Compatible = func(a, b *Job) bool { return s.shapes[a] == s.shapes[b] }
	s.cfg.Run = func(int, *Batch) {}
	s.cfg.Reject = func(*Job, *infer.Error) {}
	sched, err := New(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	l, _ := sched.(*loop)
	s.p = l.policy
	s.running = make([]*Batch, s.cfg.Instances)
	// The policy rejects through the loop, which is not running: listen in.
	reject := func(j *Job, err *infer.Error) {
		s.gone[j] = true
		s.report("reject %s %s: %s", name(j), err.Reason, err.Message)
	}
	switch p := s.p.(type) {
	case *dynamic:
		p.batcher.reject = reject
	case *sequencer:
		p.reject = reject
	}
}

func name(j *Job) string {
	if a, ok := j.Payload.(*actor); ok {
		return a.name
	}
	return "-"
}

func (s *stage) report(format string, args ...any) {
	s.out = append(s.out, fmt.Sprintf("%v ", s.now.Sub(s.zero))+fmt.Sprintf(format, args...))
}

func (s *stage) order(f []string) {
	at, err := time.ParseDuration(f[1])
	if err != nil {
		s.t.Fatalf("%v: %v", f, err)
	}
	s.advance(s.zero.Add(at))
	switch f[2] {
	case "wait":
	case "sweep":
		s.p.sweep(s.now)
	case "stop":
		s.p.stop()
	case "enqueue":
		s.enqueue(f)
	case "cancel":
		ctx, cancel := testContext()
		s.jobs[f[3]].Context = ctx
		cancel()
	case "answer":
		s.answer(s.jobs[f[3]])
	case "finish":
		i, _ := strconv.Atoi(f[3])
		b := s.running[i]
		if b == nil {
			s.t.Fatalf("%v: instance %d is idle", f, i)
		}
		for _, j := range b.Jobs {
			if !j.Null && !s.gone[j] {
				s.answer(j)
			}
		}
		s.running[i] = nil
	default:
		s.t.Fatalf("order %v is not known", f)
	}
	s.settle()
}

func (s *stage) answer(j *Job) {
	s.gone[j] = true
	s.p.done(s.now, j)
}

func (s *stage) enqueue(f []string) {
	j := &Job{Payload: &actor{f[3]}, Batch: 1, Enqueued: s.now, Start: has(f, "start"), End: has(f, "end")}
	if v := option(f, "batch"); v != "" {
		j.Batch, _ = strconv.Atoi(v)
	}
	if v := option(f, "priority"); v != "" {
		j.Priority, _ = strconv.ParseUint(v, 10, 64)
	}
	if v := option(f, "timeout"); v != "" {
		j.Timeout, _ = time.ParseDuration(v)
	}
	j.Key.Scope = option(f, "scope")
	if v := option(f, "seq"); strings.HasPrefix(v, `"`) {
		j.Key.ID.Str = strings.Trim(v, `"`)
	} else {
		j.Key.ID.Num, _ = strconv.ParseUint(v, 10, 64)
	}
	s.jobs[f[3]], s.shapes[j] = j, option(f, "shape")
	if _, err := s.p.enqueue(s.now, j); err != nil {
		s.report("refuse %s %s: %s", f[3], err.Reason, err.Message)
	}
}

// settle lets every idle instance take what the policy gives it.
func (s *stage) settle() {
	for again := true; again; {
		again = false
		for i, b := range s.running {
			if b != nil {
				continue
			}
			b := new(Batch)
			if !s.p.decide(s.now, i, b) {
				continue
			}
			again = true
			for _, e := range b.Ended {
				s.report("ended %s#%d %s on %d", e.Sequence.Key, e.Sequence.ID, e.Cause, i)
			}
			if len(b.Jobs) == 0 {
				continue
			}
			s.running[i] = b
			var names []string
			for _, j := range b.Jobs {
				n := name(j)
				if j.Null {
					n = "-"
				}
				names = append(names, n)
			}
			s.report("batch on %d [%s]", i, strings.Join(names, " "))
		}
	}
}

// advance lets time pass, and timers ring on the way.
func (s *stage) advance(to time.Time) {
	for range 10000 {
		at := s.p.wake()
		if at.IsZero() || at.After(to) {
			s.now = to
			return
		}
		if at.After(s.now) {
			s.now = at
		}
		s.p.expire(s.now)
		s.settle()
		if next := s.p.wake(); !next.IsZero() && !next.After(s.now) && next.Equal(at) {
			// Nothing can be done before an instance is free.
			s.now = to
			return
		}
	}
	s.t.Fatal("the policy wants to be woken without end")
}
