package analyze

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
)

// checkpoint keeps points in a file, which is replaced as a whole after each.
type checkpoint struct {
	path string

	Models  []string          `json:"models"`
	Sent    string            `json:"sent,omitempty"`
	Configs []json.RawMessage `json:"configs"` // as they are on disk: points are of no use for others
	Points  []*Point          `json:"points"`
}

// restore opens a checkpoint, or begins it.
func restore(cfg *Config, subjects []*inference.ModelConfig) (*checkpoint, error) {
	path := cfg.Checkpoint
	c := &checkpoint{path: path, Models: cfg.Models, Sent: cfg.Sent}
	for _, s := range subjects {
		c.Configs = append(c.Configs, modelconfig.AppendJSON(nil, s))
	}
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	old := &checkpoint{path: path}
	if err := json.Unmarshal(text, old); err != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", path, err)
	}
	same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
	if !slices.Equal(old.Models, c.Models) || !slices.EqualFunc(old.Configs, c.Configs, same) {
		return nil, fmt.Errorf("checkpoint %s is of %s with another configuration: remove it, or name another file", path, strings.Join(old.Models, ", "))
	}
	if old.Sent != c.Sent {
		return nil, fmt.Errorf("checkpoint %s is of other requests (%s): remove it, or name another file", path, cmp.Or(old.Sent, "zeros"))
	}
	// What was measured without the memory tells nothing of limits to it.
	old.Points = slices.DeleteFunc(old.Points, func(p *Point) bool { return p == nil || cfg.Memory != nil && p.Memory == 0 })
	return old, nil
}

// find looks for the point that was measured with what p asks for; nil: there is none.
func (c *checkpoint) find(p *Point) *Point {
	for _, k := range c.Points {
		if slices.Equal(k.Settings, p.Settings) && k.Concurrency == p.Concurrency && k.Batch == p.Batch {
			return k
		}
	}
	return nil
}

// add keeps a point, unless it failed: whatever the reason was may be gone the next time.
func (c *checkpoint) add(p *Point) error {
	if c.path == "" || p.Fault != "" || p.Errors > 0 {
		return nil
	}
	c.Points = append(c.Points, p)
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	next := c.path + ".next"
	if err := os.WriteFile(next, text, 0o640); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	if err := os.Rename(next, c.path); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}
