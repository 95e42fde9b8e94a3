package capacity_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/capacity"
)

const ms = time.Millisecond

// box has two cores, on which a frame costs 15 ms and decoding 640×360 in H.264 1 ms.
func box() capacity.Costs {
	return capacity.Costs{
		Cores: 2, Pipelines: map[string]capacity.Pipeline{"pipeline": {Processor: 15 * ms}},
		Decoders: []capacity.Decoder{{Codec: "H264", Width: 640, Height: 360, Processor: ms}, {Codec: "H265", Width: 1280, Height: 720, Processor: 8 * ms}},
	}
}

func small(analysed float64) capacity.Camera {
	return capacity.Camera{Codec: "H264", Width: 640, Height: 360, FPS: 25, Analysed: analysed, Pipeline: "pipeline"}
}

func many(n int, c capacity.Camera) []capacity.Camera {
	list := make([]capacity.Camera, n)
	for i := range list {
		list[i] = c
	}
	return list
}

func TestACameraCostsItsPicturesAndItsFrames(t *testing.T) {
	c := box()
	if got, want := c.Of(small(5)).Processor, (25*0.001+5*0.015)/2; !near(got, want) {
		t.Errorf("a camera takes %.4f of the box, want %.4f", got, want)
	}
	paused := small(0)
	paused.Paused = true
	if got, want := c.Of(paused).Processor, 0.001/2; !near(got, want) {
		t.Errorf("a paused one takes %.4f, want %.4f", got, want)
	}
	// Four times the pixels of the size that was measured.
	large := small(5)
	large.Width, large.Height = 1280, 720
	if got, want := c.Of(large).Processor, (25*0.004+5*0.015)/2; !near(got, want) {
		t.Errorf("a larger one takes %.4f, want %.4f", got, want)
	}
	large.Codec = "H265"
	if got, want := c.Of(large).Processor, (25*0.008+5*0.015)/2; !near(got, want) {
		t.Errorf("in H.265 it takes %.4f, want %.4f", got, want)
	}
	large.Codec = "AV1" // never seen: as the nearest size of another
	if got := c.Of(large).Processor; got < (25*0.004+5*0.015)/2 {
		t.Errorf("in a codec nobody has seen it takes %.4f", got)
	}
}

func near(a, b float64) bool { d := a - b; return d < 1e-6 && d > -1e-6 }

func TestAsManyFitAsTheBoxHasRoomFor(t *testing.T) {
	c := box()
	if got := c.Fit(small(5), nil); got != 18 { // 0.9 / 0.05
		t.Errorf("%d fit, want 18", got)
	}
	if got := c.Fit(small(5), many(16, small(5))); got != 2 {
		t.Errorf("%d fit beside 16, want 2", got)
	}
	var nothing capacity.Costs
	if got := nothing.Fit(small(5), nil); got != 0 {
		t.Errorf("%d fit on a box nobody has measured", got)
	}
}

func TestACameraTooManyIsRefusedWithTheBudget(t *testing.T) {
	c := box()
	if err := c.Admit(small(5), many(17, small(5))); err != nil {
		t.Errorf("the eighteenth: %v", err)
	}
	err := c.Admit(small(5), many(18, small(5)))
	exceeded, ok := errors.AsType[*capacity.ExceededError](err)
	if !ok {
		t.Fatalf("the nineteenth: %v", err)
	}
	if !near(exceeded.Used.Processor, 0.9) || !near(exceeded.Wants.Processor, 0.05) {
		t.Errorf("%+v", exceeded)
	}
	if err := c.Admit(small(500), nil); err != nil {
		t.Errorf("the first camera is refused: %v", err)
	}
	unknown := small(5)
	unknown.Pipeline = "other"
	if err := c.Admit(unknown, many(100, small(5))); err != nil {
		t.Errorf("of a pipeline nobody has measured: %v", err)
	}
}

func TestAnAcceleratorIsABudgetOfItsOwn(t *testing.T) {
	c := box()
	c.Pipelines["pipeline"] = capacity.Pipeline{
		Processor: ms, Provider: "cuda", Instances: 1, Batches: []capacity.Batch{{Size: 1, Took: 10 * ms}, {Size: 4, Took: 20 * ms}, {Size: 8, Took: 40 * ms}},
	}
	if size, rate := c.Pipelines["pipeline"].Best(); size != 4 || !near(rate, 200) {
		t.Errorf("best is %d at %.1f frames a second, want 4 at 200", size, rate)
	}
	u := c.Of(small(5))
	if !near(u.Accelerator, 0.025) || !near(u.Processor, (25*0.001+5*0.001)/2) {
		t.Errorf("%+v", u)
	}
	if got := c.Fit(small(5), nil); got != 36 {
		t.Errorf("%d fit, want 36", got)
	}
}

func TestTheUsualCameraIsTheMeanOfTheOthers(t *testing.T) {
	if u := capacity.Usual(nil); u.Width != 640 || u.Codec != "H264" {
		t.Errorf("%+v", u)
	}
	large := small(5)
	large.Width, large.Height, large.FPS, large.Codec = 1920, 1080, 15, "H265"
	u := capacity.Usual([]capacity.Camera{large, large, small(5)})
	if u.Codec != "H265" || u.FPS < 18 || u.FPS > 19 || u.Height < 880 || u.Height > 920 {
		t.Errorf("%+v", u)
	}
}

func reading(at, processor time.Duration, analysed, decoded int64, decoding time.Duration) capacity.Reading {
	return capacity.Reading{
		Time: time.Unix(100, 0).Add(at), Processor: processor, Processes: "1 2 3",
		Cameras: map[string]capacity.CameraReading{"door": {
			Codec: "H264", Width: 640, Height: 360, Pipeline: "pipeline", Analysed: analysed, Decoded: decoded, Decoding: decoding,
		}},
	}
}

func TestTheMeterLearnsFromWhatIsDone(t *testing.T) {
	var m capacity.Meter
	c := capacity.Costs{Cores: 2}
	if m.Read(reading(0, time.Second, 100, 1000, 900*ms), &c) {
		t.Error("one reading is no span")
	}
	// In ten seconds: 100 frames analysed, 250 decoded in 200 ms, 1.7 s in all.
	if !m.Read(reading(10*time.Second, 2700*ms, 200, 1250, 1100*ms), &c) || c.Pipelines["pipeline"].Processor != 15*ms {
		t.Fatalf("%+v", c)
	}
	if len(c.Decoders) != 1 || c.Decoders[0].Processor != 800*time.Microsecond || c.Decoders[0].Frames != 250 {
		t.Errorf("%+v", c.Decoders)
	}
	if m.Read(reading(20*time.Second, 2800*ms, 210, 1260, 1110*ms), &c) {
		t.Error("too few frames to tell anything changed something")
	}
	// Ingest was started again: its counts begin anew.
	if m.Read(reading(30*time.Second, 2900*ms, 400, 10, 10*ms), &c) || c.Pipelines["pipeline"].Processor != 15*ms {
		t.Errorf("counts that fell were believed: %+v", c)
	}
}

func TestWhatCamerasShowedCountsMoreThanClips(t *testing.T) {
	c := box()
	c.Reckoned([]capacity.Decoder{{Codec: "H264", Width: 640, Height: 360, Processor: 9 * ms}, {Codec: "H264", Width: 1920, Height: 1080, Processor: 9 * ms}})
	if len(c.Decoders) != 3 || c.Decoders[0].Processor != ms {
		t.Errorf("%+v", c.Decoders)
	}
}

func TestWhatAnotherProviderCostIsKeptApart(t *testing.T) {
	c := box()
	on := func(p string, took time.Duration) {
		c.RunsOn("pipeline", "detector", p)
		now := c.Pipelines["pipeline"]
		now.Instances, now.Batches = 1, []capacity.Batch{{Size: 1, Took: took}}
		c.Pipelines["pipeline"] = now
	}
	on("cpu", 20*ms)
	if got := c.Pipelines["pipeline"]; got.Processor != 15*ms {
		t.Errorf("what was learnt of its frames is gone: %+v", got)
	}
	on("webgpu", 2*ms)
	if got := c.Pipelines["pipeline"]; got.Processor != 0 || c.Of(small(50)).Accelerator != 0.1 {
		t.Errorf("on an accelerator: %+v, %+v", got, c.Of(small(50)))
	}
	// The accelerator fails: what the processor needed is known.
	if !c.RunsOn("pipeline", "detector", "cpu") || c.RunsOn("pipeline", "detector", "cpu") {
		t.Error("the change was not told once")
	}
	now := c.Pipelines["pipeline"]
	if len(now.Batches) != 1 || now.Batches[0].Took != 20*ms || len(now.Elsewhere["webgpu"]) != 1 || c.Of(small(50)).Accelerator != 0 || !c.Known("pipeline") {
		t.Errorf("back on the processor: %+v", now)
	}
	c.RunsOn("pipeline", "another", "cpu")
	if now := c.Pipelines["pipeline"]; len(now.Batches)+len(now.Elsewhere) != 0 {
		t.Errorf("of another model: %+v", now)
	}
}
