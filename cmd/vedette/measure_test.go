package main_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/backend/prepare"
	"github.com/vedette/vedette/infer/tensor"
)

// measure makes this package's measurements run; they take minutes and assert nothing. make bench gives it.
var measure = flag.Bool("measure", false, "print the measures of the whole pipeline with their budgets")

// report prints one measure in the form every measurement of the project has.
func report(name string, value float64, unit string, budget float64) {
	verdict := "ok"
	if value > budget {
		verdict = "over"
	}
	fmt.Printf("%s %.3f %s <=%.3f %s\n", name, value, unit, budget, verdict)
}

// line is the straight line through points by least squares, y = fixed + each·x, and the share of y's variance that is left.
func line(points [][2]float64) (fixed, each, left float64) {
	var x, y, xx, xy, yy float64
	n := float64(len(points))
	for _, p := range points {
		x, y = x+p[0]/n, y+p[1]/n
	}
	for _, p := range points {
		xx, xy, yy = xx+(p[0]-x)*(p[0]-x), xy+(p[0]-x)*(p[1]-y), yy+(p[1]-y)*(p[1]-y)
	}
	each = xy / xx
	return y - each*x, each, (yy - each*xy) / yy
}

// TestMeasurePipelineCost compares the processor time that the three processes spend on a frame, every frame
// analysed, with the sum of the parts that cannot be avoided: ffmpeg's decoding, prepare alone, and a bare
// session of ONNX Runtime, each measured on the same clip and model in the same run.
func TestMeasurePipelineCost(t *testing.T) {
	if !*measure {
		t.Skip("make bench measures")
	}
	lib := onnxruntime(t)
	models, model, clip := measuredModels(t)
	width, height := clipSize(t, clip)

	decode, frames := decodeCost(t, clip)
	pre := prepareCost(t, clip, width, height)
	session := sessionCost(t, lib, model)
	parts := decode + pre + session

	p := launch(t, t.TempDir(), "--onnxruntime", lib, "--models", models)
	p.until("the models", 60*time.Second, func() bool { return strings.Contains(p.output(), "models are loaded") })
	pids := []int{p.cmd.Process.Pid, p.child("vedette-ingest"), p.child("vedette-infer")}
	before := processorTime(t, pids)
	p.cli("camera", "add", "clip", "file://"+clip, "--every-frame")
	analysed := 0
	p.until("the whole clip", 5*time.Minute, func() bool {
		var c struct {
			Status struct{ AnalysedFrames string }
		}
		if err := p.get("/v1/cameras/clip", &c); err != nil {
			return false
		}
		analysed, _ = strconv.Atoi(c.Status.AnalysedFrames)
		return analysed >= frames-1
	})
	whole := (processorTime(t, pids) - before) / time.Duration(analysed)

	for _, part := range []struct {
		name string
		cost time.Duration
	}{{"decode", decode}, {"prepare", pre}, {"session", session}, {"parts", parts}, {"whole", whole}} {
		fmt.Printf("# %s: %.3f ms of processor time a frame\n", part.name, float64(part.cost.Microseconds())/1000)
	}
	report("pipeline_cpu_over_parts", float64(whole)/float64(parts), "ratio", 1.15)
}

// measuredModels is a repository with YOLOX-nano as its detector where the test data are there, else the one that
// ships; the detector's file; and an absolute path of a clip.
func measuredModels(t *testing.T) (models, detector, clip string) {
	t.Helper()
	data := os.Getenv("VEDETTE_TEST_DATA")
	if data == "" {
		data = filepath.Join(root, "../shared/data")
	}
	nano := filepath.Join(data, "models/yolox_nano.onnx")
	if _, err := os.Stat(nano); err != nil {
		fmt.Println("# no test data: the detector that ships on the demo clip")
		return absolute(t, filepath.Join(root, "models")), absolute(t, filepath.Join(root, "models/detector/1/model.onnx")),
			absolute(t, filepath.Join(root, "appliance/demo/clip/street.h264"))
	}
	return nanoModels(t, data), absolute(t, nano), absolute(t, filepath.Join(data, "video/vtest.mp4"))
}

func clipSize(t *testing.T, clip string) (width, height int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "stream=width,height", "-of", "csv=p=0", clip).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(strings.TrimSpace(string(out)), "%d,%d", &width, &height); err != nil {
		t.Fatal(err)
	}
	return width, height
}

// decodeCost is ffmpeg's processor time a frame, with one thread, the frames thrown away.
func decodeCost(t *testing.T, clip string) (perFrame time.Duration, frames int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-threads", "1", "-i", clip, "-fps_mode", "passthrough", "-f", "null", "-progress", "-", "-")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "frame="); ok {
			frames, _ = strconv.Atoi(n)
		}
	}
	if frames == 0 {
		t.Fatalf("ffmpeg counted no frame:\n%s", out)
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(frames), frames
}

func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processorTime is what the processes have spent, in user and system mode, from /proc/PID/stat.
func processorTime(t *testing.T, pids []int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	var sum time.Duration
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		sum += time.Duration(user+system) * tick
	}
	return sum
}

// lone answers the jobs of one instance.
type lone struct {
	t    *testing.T
	pool tensor.Pool
}

func (o *lone) NewResponse(*backend.Job) *infer.Response  { return infer.NewResponse(&o.pool, nil) }
func (o *lone) Respond(_ *backend.Job, r *infer.Response) { r.Release() }
func (o *lone) RespondError(j *backend.Job, err error)    { o.Fail(j, err) }
func (o *lone) Fail(_ *backend.Job, err error)            { o.t.Error(err) }
func (*lone) Finish(*backend.Job)                         {}
func (*lone) Reschedule(*backend.Job)                     {}
func (*lone) Cancelled(*backend.Job) bool                 { return false }
func (*lone) Wants(*backend.Job, string) bool             { return true }

// prepareCost is the processor time of prepare alone on the clip's frames.
func prepareCost(t *testing.T, clip string, width, height int) time.Duration {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-i", clip, "-frames:v", "100", "-pix_fmt", "yuv420p", "-f", "rawvideo", "-")
	raw, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	b := prepare.New()
	m := &backend.Model{Name: "prepare", Version: 1, Logger: slog.New(slog.DiscardHandler), Config: &inference.ModelConfig{
		Name: "prepare", Backend: "prepare", MaxBatchSize: 1,
		Parameters: map[string]*inference.ModelParameter{"family": {StringValue: "yolox"}, "size": {StringValue: "416"}},
	}}
	if err := b.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	in, err := b.NewInstance(t.Context(), m, backend.Placement{CPUThreads: 1, GPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	size := frame.I420.Size(width, height)
	info := frame.Info{Format: frame.I420, Width: width, Height: height, Generation: 2}.Values()
	owner := &lone{t: t}
	const rounds = 10
	before, n := ownTime(t), 0
	for range rounds {
		for at := 0; at+size <= len(raw); at += size {
			n++
			in.Execute(t.Context(), []*backend.Job{{
				Request: &infer.Request{}, Owner: owner, Timing: &backend.Timing{}, Batch: 1,
				Inputs: []tensor.Tensor{
					{Name: "FRAME", DataType: tensor.Uint8, Shape: []int64{1, int64(size)}, Data: raw[at : at+size]},
					{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: []int64{1, 8}, Data: tensor.AsBytes(info[:])},
				},
			}})
		}
	}
	return (ownTime(t) - before) / time.Duration(n)
}

// sessionCost is the processor time of a bare session, one thread, on an input that stays where it is.
func sessionCost(t *testing.T, lib, model string) time.Duration {
	t.Helper()
	ort.SetSharedLibraryPath(lib)
	if err := ort.InitializeEnvironment(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ort.DestroyEnvironment() }()
	options, err := ort.NewSessionOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = options.Destroy() }()
	if err := options.SetIntraOpNumThreads(1); err != nil {
		t.Fatal(err)
	}
	in, err := ort.NewEmptyTensor[float32](ort.NewShape(1, 3, 416, 416))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Destroy() }()
	session, err := ort.NewDynamicAdvancedSession(model, []string{"images"}, []string{"output"}, options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Destroy() }()
	run := func() {
		out := []ort.Value{nil}
		if err := session.Run([]ort.Value{in}, out); err != nil {
			t.Fatal(err)
		}
		_ = out[0].Destroy()
	}
	run()
	const n = 300
	before := ownTime(t)
	for range n {
		run()
	}
	return (ownTime(t) - before) / n
}
