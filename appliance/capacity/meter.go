package capacity

import (
	"maps"
	"slices"
	"time"
)

// Reading is what the counters of a box say at one moment. All counts are totals that only grow, until a process is
// started again.
type Reading struct {
	Time time.Time
	// Processor time of all three processes.
	Processor time.Duration
	// Processes tells one run of them from another.
	Processes string
	Cameras   map[string]CameraReading
}

// CameraReading is what is counted of a camera.
type CameraReading struct {
	Codec         string
	Width, Height int
	Pipeline      string
	Analysed      int64
	Decoded       int64
	Decoding      time.Duration
}

// Meter turns readings into costs.
type Meter struct {
	before Reading
}

// What a span between two readings must hold to be believed.
const (
	enoughAnalysed = 50
	enoughDecoded  = 100
	newWeight      = 0.3 // of a new figure beside the old
)

// Read takes the next reading, changes the costs by what was done since the one before, and tells whether it did.
func (m *Meter) Read(r Reading, c *Costs) bool {
	before := m.before
	m.before = r
	if before.Processes != r.Processes || before.Time.IsZero() {
		return false
	}
	changed := false
	analysed, decoding, pipelines := int64(0), time.Duration(0), map[string]bool{}
	for name, now := range r.Cameras {
		was, ok := before.Cameras[name]
		if !ok || now.Analysed < was.Analysed || now.Decoded < was.Decoded || now.Decoding < was.Decoding {
			return changed // another camera of that name, or ingest anew: the sums do not fit
		}
		if n := now.Analysed - was.Analysed; n > 0 {
			analysed += n
			pipelines[now.Pipeline] = true
		}
		decoding += now.Decoding - was.Decoding
		if n := now.Decoded - was.Decoded; n >= enoughDecoded && now.Decoding > was.Decoding && now.Width > 0 {
			c.decoded(Decoder{Codec: now.Codec, Width: now.Width, Height: now.Height, Processor: (now.Decoding - was.Decoding) / time.Duration(n), Frames: n})
			changed = true
		}
	}
	rest := r.Processor - before.Processor - decoding
	if analysed >= enoughAnalysed && len(pipelines) == 1 && rest > 0 {
		for name := range pipelines {
			c.analysed(name, rest/time.Duration(analysed))
			changed = true
		}
	}
	if changed {
		c.Time = r.Time
	}
	return changed
}

func (c *Costs) analysed(pipeline string, each time.Duration) {
	if c.Pipelines == nil {
		c.Pipelines = map[string]Pipeline{}
	}
	p := c.Pipelines[pipeline]
	p.Processor = blend(p.Processor, each)
	c.Pipelines[pipeline] = p
}

// decoded keeps what was measured at a size, beside what was measured there before.
func (c *Costs) decoded(d Decoder) {
	i := slices.IndexFunc(c.Decoders, func(o Decoder) bool { return o.Codec == d.Codec && o.Width == d.Width && o.Height == d.Height })
	if i < 0 {
		c.Decoders = append(c.Decoders, d)
		return
	}
	old := &c.Decoders[i]
	old.Processor = blend(old.Processor, d.Processor)
	old.Frames += d.Frames
}

// Reckoned takes what was measured with clips; what cameras have shown at the same size counts more.
func (c *Costs) Reckoned(list []Decoder) {
	for _, d := range list {
		if !slices.ContainsFunc(c.Decoders, func(o Decoder) bool { return o.Codec == d.Codec && o.Width == d.Width && o.Height == d.Height }) {
			c.Decoders = append(c.Decoders, d)
		}
	}
}

// RunsOn takes note of where the model of a pipeline really runs, and tells whether that is another provider than
// before: what its frames cost is then learnt anew, and of its batches what was measured there counts.
func (c *Costs) RunsOn(pipeline, model, provider string) bool {
	p := c.Pipelines[pipeline]
	if p.Model == model && p.Provider == provider {
		return false
	}
	other := Pipeline{Model: model, Provider: provider, Instances: p.Instances, Elsewhere: map[string][]Batch{}}
	switch p.Model {
	case model:
		maps.Copy(other.Elsewhere, p.Elsewhere)
		if len(p.Batches) > 0 {
			other.Elsewhere[p.Provider] = p.Batches
		}
		other.Batches = other.Elsewhere[provider]
		delete(other.Elsewhere, provider)
	case "": // its frames were learnt before their model was known
		other.Processor = p.Processor
	}
	if c.Pipelines == nil {
		c.Pipelines = map[string]Pipeline{}
	}
	c.Pipelines[pipeline] = other
	return true
}

// Clone is a copy that changes apart from c. Lists of batches are shared; they are never changed.
func (c *Costs) Clone() Costs {
	n := *c
	n.Pipelines, n.Decoders = maps.Clone(c.Pipelines), slices.Clone(c.Decoders)
	return n
}

func blend(old, now time.Duration) time.Duration {
	if old == 0 {
		return now
	}
	return old + time.Duration(newWeight*float64(now-old))
}
