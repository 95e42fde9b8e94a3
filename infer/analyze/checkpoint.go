package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
)

// checkpoint keeps points in a file, which is replaced as a whole after each.
type checkpoint struct {
	path string

	Model  string          `json:"model"`
	Config json.RawMessage `json:"config"` // as it is on disk: points are of no use for another
	Points []Point         `json:"points"`
}

// restore opens a checkpoint, or begins it.
func restore(path string, original *inference.ModelConfig) (*checkpoint, error) {
	c := &checkpoint{path: path, Model: original.GetName(), Config: modelconfig.AppendJSON(nil, original)}
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
	if old.Model != c.Model || string(old.Config) != string(c.Config) {
		return nil, fmt.Errorf("checkpoint %s is of model %q with another configuration: remove it, or name another file", path, old.Model)
	}
	return old, nil
}

// find looks for the point that was measured with what p asks for.
func (c *checkpoint) find(p Point) (Point, bool) {
	for _, k := range c.Points {
		if k.Settings == p.Settings && k.Concurrency == p.Concurrency && k.Batch == p.Batch {
			return k, true
		}
	}
	return p, false
}

func (c *checkpoint) add(p Point) error {
	c.Points = append(c.Points, p)
	if c.path == "" {
		return nil
	}
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
