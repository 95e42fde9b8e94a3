package infer

import (
	"context"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// Catalog is what a server can say about its models, and the orders it takes
// about them. Errors are *Error with the texts clients match.
type Catalog interface {
	// Server describes the server itself.
	Server() ServerInfo
	// Ready tells whether the server would answer requests: it is not stopping
	// and, under strict readiness, every model is ready.
	Ready(ctx context.Context) bool
	// Model describes a version that can serve (version <= 0: the highest). The
	// answer is shared and must not be changed.
	Model(name string, version int64) (*ModelInfo, error)
	// ModelReady is false while a known version loads or after it failed; an
	// unknown model or version is an error.
	ModelReady(name string, version int64) (bool, error)
	// Index lists every model of the repositories, or the ready versions only.
	Index(readyOnly bool) []IndexEntry
	// Load loads or reloads a model and answers when that has ended.
	Load(ctx context.Context, name string, opts LoadOptions) error
	// Unload begins to unload a model and, if asked, what it depends on.
	Unload(ctx context.Context, name string, dependents bool) error
	// Statistics of one model, or of all when name is empty; version <= 0 is
	// every loaded version.
	Statistics(name string, version int64) ([]*inference.ModelStatistics, error)
	// Sequences lists the open sequences of every model.
	Sequences() []SequenceInfo
}

// ServerInfo is the server's metadata.
type ServerInfo struct {
	Name       string
	Version    string
	Extensions []string
	// Stopping: requests that open nothing new are still answered.
	Stopping bool
}

// ModelInfo is a model version's metadata. Shapes have -1 for what varies and
// the batch dimension in front where the model batches.
type ModelInfo struct {
	Name     string
	Version  int64
	Versions []string // ready ones, ascending
	Platform string
	Inputs   []TensorInfo
	Outputs  []TensorInfo
	// Config is normalised: defaults are filled in.
	Config    *inference.ModelConfig
	Decoupled bool
}

// TensorInfo is one input or output in a model's metadata.
type TensorInfo struct {
	Name     string
	DataType tensor.DataType
	Shape    []int64
}

// IndexEntry is one line of the repository index. A model that was never
// loaded has a name only.
type IndexEntry struct {
	Name    string
	Version string
	State   string // READY, UNAVAILABLE, LOADING, UNLOADING
	Reason  string
}

// LoadOptions override what is on disk for one load.
type LoadOptions struct {
	// Config is a whole model configuration as JSON; empty takes config.pbtxt.
	Config string
	// Files replace the model's directory: relative path to content. They need
	// Config.
	Files map[string][]byte
	// Replace makes new instances of what is loaded, whatever the mode of the repository, and lets the old ones go once
	// they have answered, should they ever.
	Replace bool
}

// SequenceInfo is one open sequence of a model.
type SequenceInfo struct {
	Model       string
	Version     int64
	Scope       string
	Correlation CorrelationID
	State       string // active, backlog
	Instance    string // where its slot is; empty in the backlog
	Index       int    // of the instance within the model
	Slot        int    // -1 in the backlog
	Queued      int    // requests that wait
	Opened      time.Time
	Last        time.Time // last arrival or completion
	Requests    uint64
	Dropped     uint64 // by the sequence's own queue policy
}
