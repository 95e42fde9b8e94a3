// Package backend is what someone writes to make the sidecar run a new kind of
// model: a Backend that knows the files, and Instances that execute.
//
// The server does the rest: it validates requests, batches and orders them,
// keeps implicit state, adds control inputs, filters outputs and counts. The
// conformance kit in backendtest checks that an implementation keeps its side.
package backend

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// Backend runs one kind of model. One value serves every model of its kind, so
// it is safe for concurrent use.
type Backend interface {
	// Complete fills into m.Config what the model's files say and the
	// configuration leaves out: inputs, outputs, max_batch_size, defaults. It
	// is also the place to refuse a configuration that cannot work. The
	// scheduler has not been chosen yet: Complete may add dynamic_batching.
	Complete(ctx context.Context, m *Model) error
	// NewInstance loads the model once more, at a place.
	NewInstance(ctx context.Context, m *Model, at Placement) (Instance, error)
}

// Instance is one loaded copy of a model; the server never runs two Executes
// of one instance at once.
type Instance interface {
	// Execute answers every job exactly once before it returns (Respond or
	// Fail); only decoupled models may answer later, and any number of times
	// until Finish or Fail. Ctx ends when the server gives up on the model. A
	// job must not be touched after its final answer, nor the slice after
	// Execute returned.
	Execute(ctx context.Context, jobs []*Job)
	// Close frees the instance. Every job has had its final answer by then.
	Close() error
}

// Sized is implemented by instances that know how much memory they keep beyond their executions.
type Sized interface {
	MemoryBytes() uint64
}

// Retirer is implemented by decoupled instances whose answers may go on for ever.
type Retirer interface {
	// Retire tells that no further request will come, and that those under way keep the model from going: they
	// should end soon. It may be called at the same time as Execute, and more than once.
	Retire()
}

// SequenceKeeper is implemented by instances that keep state of their own per
// sequence (Job.Sequence names it). Both methods are called between Executes,
// never at the same time as one.
type SequenceKeeper interface {
	// EndSequence tells that no further request of the sequence will come: its
	// END was answered, it sat idle too long, was cancelled or the model goes.
	// It is called once for every sequence of which the instance saw a request.
	EndSequence(sequence uint64, cause Cause)
}

// SequenceSnapshotter lets a sequence outlive a planned reload of the same
// model version.
type SequenceSnapshotter interface {
	// SnapshotSequence returns the sequence's state, nil if there is none.
	SnapshotSequence(sequence uint64) ([]byte, error)
	// RestoreSequence takes a state that the same model version returned.
	RestoreSequence(sequence uint64, state []byte) error
}

// Cause is why a sequence ended.
type Cause string

// The causes a sequence ends by.
const (
	CauseEnd       Cause = "end"       // its last request was answered
	CauseIdle      Cause = "idle"      // nothing came for the idle time-out
	CauseCancelled Cause = "cancelled" // a request of it was cancelled
	CauseReplaced  Cause = "replaced"  // a new START came under its id
	CauseUnload    Cause = "unload"    // the model or the instance goes
)

// Model is what a backend knows of the model it is to run.
type Model struct {
	Name    string
	Version int64
	// Dir is the model's directory, VersionDir the version's below it. Files
	// outside Dir are not the model's.
	Dir, VersionDir string
	// Config is normalised; only Complete may change it.
	Config *inference.ModelConfig
	// Inferer calls other models through their schedulers.
	Inferer infer.Inferer
	Logger  *slog.Logger
	// Settings are the server's for this backend: --backend-config=<name>,k=v.
	Settings map[string]string

	mu   sync.Mutex
	asks map[string]bool // the parameters that Parameter was asked for
}

// Parameter is a model parameter's string from the configuration, or def. Backends ask for every parameter they know
// before NewInstance returns: of those that nobody asked for the operator is told.
func (m *Model) Parameter(key, def string) string {
	m.mu.Lock()
	if m.asks == nil {
		m.asks = make(map[string]bool)
	}
	m.asks[key] = true
	m.mu.Unlock()
	if p := m.Config.GetParameters()[key]; p != nil {
		return p.GetStringValue()
	}
	return def
}

// Unused are the parameters of the configuration that Parameter was never asked for, and known those that it was, both
// in order.
func (m *Model) Unused() (unused, known []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.Config.GetParameters() {
		if !m.asks[key] {
			unused = append(unused, key)
		}
	}
	slices.Sort(unused)
	return unused, slices.Sorted(maps.Keys(m.asks))
}

// Placement is where an instance is to live.
type Placement struct {
	Name  string // of the instance, <group>_<index>
	Group string
	Index int // within the group
	Kind  inference.ModelInstanceGroup_Kind
	GPU   int // device number for KIND_GPU, else -1
	// CPUThreads is the instance's share of the CPU budget, at least 1.
	CPUThreads int
	// Passive instances are loaded and never executed.
	Passive bool
	// Profiles and Secondary repeat the group's settings for backends that
	// know them.
	Profiles  []string
	Secondary []*inference.ModelInstanceGroup_SecondaryDevice
}
