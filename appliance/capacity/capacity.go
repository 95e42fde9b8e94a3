// Package capacity works out how many cameras fit on a box, from what decoding and analysing a frame has cost on this
// very box. It is pure: what was read from the machine is an argument.
package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Limit is the share of the box above which a new camera is refused: what is left is for pictures, viewers and the
// moments when every gate opens.
const Limit = 0.9

// Costs are what was measured on a box. The zero value knows nothing.
type Costs struct {
	// Time of the newest measurement.
	Time time.Time `json:"time"`
	// Cores of the box.
	Cores float64 `json:"cores"`
	// Pipelines by name.
	Pipelines map[string]Pipeline `json:"pipelines"`
	Decoders  []Decoder           `json:"decoders"`
}

// Pipeline is what one analysed frame costs.
type Pipeline struct {
	// Model that takes the time, and where it really runs: "cpu", "cuda", ...
	Model    string `json:"model,omitempty"`
	Provider string `json:"provider,omitempty"`
	// Instances of it.
	Instances int `json:"instances,omitempty"`
	// Processor time of all processes for a frame, decoding excepted; 0: not known.
	Processor time.Duration `json:"processor_ns"`
	// Batches on Provider by size, growing; empty: not measured.
	Batches []Batch `json:"batches,omitempty"`
	// Elsewhere are those measured on other providers, on which the model ran before.
	Elsewhere map[string][]Batch `json:"elsewhere,omitempty"`
}

// Batch is how long a model takes for so many frames at once.
type Batch struct {
	Size int           `json:"size"`
	Took time.Duration `json:"took_ns"`
}

// Decoder is what one decoded picture costs.
type Decoder struct {
	Codec  string `json:"codec"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	// Processor time, and the pictures it was measured on.
	Processor time.Duration `json:"processor_ns"`
	Frames    int64         `json:"frames"`
}

// Camera is a camera as far as it costs something.
type Camera struct {
	Name          string
	Codec         string
	Width, Height int
	// FPS is what it sends, Analysed how much of that is analysed.
	FPS, Analysed float64
	// Paused: nothing of it is analysed, and so hardly a picture is decoded.
	Paused   bool
	Pipeline string
}

// Use is the share of the box that something takes, 0 to 1.
type Use struct {
	Processor, Accelerator float64
}

// Most is the larger share.
func (u Use) Most() float64 { return max(u.Processor, u.Accelerator) }

func (u Use) plus(o Use) Use { return Use{u.Processor + o.Processor, u.Accelerator + o.Accelerator} }

// Known tells whether enough was measured to judge a pipeline's frames.
func (c *Costs) Known(pipeline string) bool {
	return c.Cores > 0 && c.Pipelines[pipeline].perFrame() > 0
}

// Unknown lists the pipelines of cameras of which too little was measured to judge their frames.
func (c *Costs) Unknown(list []Camera) []string {
	var names []string
	for i := range list {
		if l := &list[i]; l.Analysed > 0 && !c.Known(l.Pipeline) && !slices.Contains(names, l.Pipeline) {
			names = append(names, l.Pipeline)
		}
	}
	slices.Sort(names)
	return names
}

// perFrame is the processor time of a frame: what was seen of whole frames or, before any was, what the model alone
// took on the processor.
func (p Pipeline) perFrame() time.Duration {
	if p.Processor > 0 || len(p.Batches) == 0 || !p.onProcessor() {
		return p.Processor
	}
	return p.Batches[0].Took
}

func (p Pipeline) onProcessor() bool { return p.Provider == "" || p.Provider == "cpu" }

// Best is the batch size at which the model does the most frames a second, and how many that are with all instances.
func (p Pipeline) Best() (size int, perSecond float64) {
	for _, b := range p.Batches {
		if rate := float64(b.Size*max(p.Instances, 1)) / b.Took.Seconds(); b.Took > 0 && rate > 1.05*perSecond {
			size, perSecond = b.Size, rate
		}
	}
	return size, perSecond
}

// pausedFPS is how many pictures a second of a paused camera are counted as decoded: keyframes, some of them.
const pausedFPS = 1

// Of is what a camera takes of the box.
func (c *Costs) Of(cam Camera) Use {
	if c.Cores <= 0 {
		return Use{}
	}
	p := c.Pipelines[cam.Pipeline]
	decoded := cam.FPS
	if cam.Paused {
		decoded = min(decoded, pausedFPS)
	}
	busy := decoded*c.decode(cam).Seconds() + cam.Analysed*p.perFrame().Seconds()
	use := Use{Processor: busy / c.Cores}
	if _, rate := p.Best(); rate > 0 && !p.onProcessor() {
		use.Accelerator = cam.Analysed / rate
	}
	return use
}

// decode is what one picture of a camera costs: what was measured at the nearest size of its codec or, failing that,
// of any codec, by the number of pixels.
func (c *Costs) decode(cam Camera) time.Duration {
	var best *Decoder
	far := func(d *Decoder) float64 {
		distance := math.Abs(math.Log(float64(max(d.Width*d.Height, 1)) / float64(max(cam.Width*cam.Height, 1))))
		if d.Codec != cam.Codec {
			distance += 100
		}
		return distance
	}
	for i := range c.Decoders {
		if d := &c.Decoders[i]; best == nil || far(d) < far(best) {
			best = d
		}
	}
	if best == nil || best.Width*best.Height == 0 {
		return 0
	}
	return time.Duration(float64(best.Processor) * float64(cam.Width*cam.Height) / float64(best.Width*best.Height))
}

// Sum is what cameras take together.
func (c *Costs) Sum(cameras []Camera) Use {
	var sum Use
	for i := range cameras {
		sum = sum.plus(c.Of(cameras[i]))
	}
	return sum
}

// Fit is how many more cameras like one fit beside others.
func (c *Costs) Fit(like Camera, beside []Camera) int {
	one, used := c.Of(like), c.Sum(beside)
	fit := math.MaxInt32
	for _, r := range []struct{ one, used float64 }{{one.Processor, used.Processor}, {one.Accelerator, used.Accelerator}} {
		if r.one > 0 {
			fit = min(fit, int(max(Limit-r.used, 0)/r.one+1e-9))
		}
	}
	if fit == math.MaxInt32 {
		return 0 // nothing is known
	}
	return fit
}

// ExceededError says that a camera does not fit.
type ExceededError struct {
	Camera   Camera
	Pipeline Pipeline
	Cores    float64
	// Used is what the others take, Wants what this one would.
	Used, Wants Use
}

// Error implements error.
func (e *ExceededError) Error() string {
	return fmt.Sprintf("the box is full: its cameras need %.0f %% of it and this one %.0f %% more, of %.0f %% (%.4g cores; a frame of pipeline %q costs %.1f ms, as measured here)",
		100*e.Used.Most(), 100*e.Wants.Most(), 100*Limit, e.Cores, e.Camera.Pipeline, e.Pipeline.perFrame().Seconds()*1000)
}

// Admit returns nil when a camera fits beside others, or when not enough is known to tell, and an *ExceededError
// otherwise. The first camera always fits.
func (c *Costs) Admit(cam Camera, beside []Camera) error {
	if !c.Known(cam.Pipeline) || len(beside) == 0 {
		return nil
	}
	used, wants := c.Sum(beside), c.Of(cam)
	if used.plus(wants).Most() <= Limit+1e-9 {
		return nil
	}
	return &ExceededError{Camera: cam, Pipeline: c.Pipelines[cam.Pipeline], Cores: c.Cores, Used: used, Wants: wants}
}

// Usual is a camera with the mean picture of others; 640×360 at 25 in H.264 when there are none.
func Usual(others []Camera) Camera {
	pixels, fps, n := 0.0, 0.0, 0
	codecs := map[string]int{}
	for i := range others {
		if o := &others[i]; o.Width > 0 && o.FPS > 0 {
			pixels += float64(o.Width * o.Height)
			fps += o.FPS
			codecs[o.Codec]++
			n++
		}
	}
	if n == 0 {
		return Camera{Codec: "H264", Width: 640, Height: 360, FPS: 25}
	}
	codec := slices.MaxFunc(slices.Sorted(maps.Keys(codecs)), func(a, b string) int { return cmp.Compare(codecs[a], codecs[b]) })
	height := math.Sqrt(pixels / float64(n) * 9 / 16)
	return Camera{Codec: codec, Width: int(height * 16 / 9), Height: int(height), FPS: fps / float64(n)}
}
