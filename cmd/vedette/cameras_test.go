package main_test

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

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/pion/rtp"

	"github.com/vedette/vedette/internal/rtsptest"
)

// What make bench-cameras measures, each as a list.
var (
	benchCameras   = flag.String("cameras", "", "print what so many cameras cost: 1,2,4,8,16,32")
	benchSizes     = flag.String("sizes", "640x360,1920x1080", "their sizes")
	benchCodecs    = flag.String("codecs", "h264,h265", "their codecs")
	benchGates     = flag.String("gates", "open,gated,still,paused", "open: every sampled frame is analysed; gated: by motion; still: by motion, of which there is none; paused: none is")
	benchDetectors = flag.String("detectors", "demo,shipped,nano", "demo: the demo's; shipped: the one for streets; nano: YOLOX-nano of the test data")
	benchWindow    = flag.Duration("window", benchPeriod*time.Second, "how long each is watched")
	benchLimit     = flag.Duration("limit", 0, "begin no measurement after so long; 0: measure all")
)

const (
	benchRate     = 25 // pictures a second of every camera
	benchAnalysed = 5  // frames a second analysed of every camera
	benchPeriod   = 12 // seconds until the clip begins again; something moves in the last third
)

// street is a still picture through which a box moves for a third of the time.
const street = "color=white:size=64x120:rate=25[box];[0:v][box]overlay=x='mod(t-8,12)*140':y=H/3:enable='gte(mod(t,12),8)':shortest=1"

// benchClip renders what cameras show; where everything is still, the box does not move through it.
func benchClip(t *testing.T, codec, size string, still bool) *rtsptest.Clip {
	t.Helper()
	width, height, _ := strings.Cut(size, "x")
	w, err1 := strconv.Atoi(width)
	h, err2 := strconv.Atoi(height)
	if err1 != nil || err2 != nil {
		t.Fatalf("%q is no size", size)
	}
	config := rtsptest.ClipConfig{
		Codec: codec, Width: w, Height: h, Rate: benchRate, Frames: benchRate * benchPeriod, GOP: 2 * benchRate, Source: "smptehdbars",
	}
	if !still {
		config.Extra = []string{"-filter_complex", street}
	}
	return rtsptest.Render(t, config)
}

// crowd is an appliance with cameras.
type crowd struct {
	t     *testing.T
	p     *process
	names []string
	seen  map[string]map[string]time.Duration // latencies by camera and frame
}

// gather starts an appliance and cameras that are out of step with one another.
func gather(t *testing.T, models string, clip *rtsptest.Clip, n int, args ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, p: launch(t, t.TempDir(), "--onnxruntime", onnxruntime(t), "--models", models), seen: map[string]map[string]time.Duration{}}
	c.p.until("the models", 2*time.Minute, func() bool { return strings.Contains(c.p.output(), "models are loaded") })
	for i := range n {
		camera := rtsptest.Start(t, rtsptest.Config{Clip: clip})
		c.add(fmt.Sprint("cam", i), camera.Address(), args...)
	}
	return c
}

func (c *crowd) add(name, address string, args ...string) {
	c.t.Helper()
	c.p.cli(append([]string{"camera", "add", name, address, "--fps", strconv.Itoa(benchAnalysed), "--allow-overload"}, args...)...)
	c.names = append(c.names, name)
}

// streaming waits until every camera is analysed, or given up on because the box can do no more.
func (c *crowd) streaming(names []string) {
	c.t.Helper()
	names = slices.Clone(names) // those that have been are not asked for again: the API has a limit of calls
	c.p.until("frames of every camera", 2*time.Minute, func() bool {
		names = slices.DeleteFunc(names, func(n string) bool {
			analysed, drops := c.counts(n)
			return analysed > 0 || drops["shed"] > 0
		})
		return len(names) == 0
	})
}

// connected waits until pictures of every camera come.
func (c *crowd) connected(names []string) {
	c.t.Helper()
	c.p.until("pictures of every camera", 2*time.Minute, func() bool {
		for _, n := range names {
			var camera struct{ Status struct{ State string } }
			if c.p.get("/v1/cameras/"+n, &camera) != nil || camera.Status.State != "CAMERA_STATE_STREAMING" {
				return false
			}
		}
		return true
	})
}

// counts are a camera's analysed frames and its drops.
func (c *crowd) counts(name string) (analysed int, drops map[string]int) {
	var camera struct {
		Status struct {
			AnalysedFrames string
			Drops          map[string]string
		}
	}
	if c.p.get("/v1/cameras/"+name, &camera) != nil {
		return 0, nil
	}
	analysed, _ = strconv.Atoi(camera.Status.AnalysedFrames)
	drops = map[string]int{}
	for cause, text := range camera.Status.Drops {
		drops[cause], _ = strconv.Atoi(text)
	}
	return analysed, drops
}

// collect takes the latencies, capture to commit, of the newest frames.
func (c *crowd) collect(names []string) {
	for _, n := range names {
		var timing struct {
			Frames []struct {
				Sequence, Frame string
				Stages          []struct{ Stage, End string }
			}
		}
		if c.p.get("/v1/cameras/"+n+":timing", &timing) != nil {
			continue
		}
		for _, f := range timing.Frames {
			if len(f.Stages) == 0 {
				continue
			}
			d, err := time.ParseDuration(f.Stages[len(f.Stages)-1].End)
			if err != nil {
				c.t.Fatal(err)
			}
			if c.seen[n] == nil {
				c.seen[n] = map[string]time.Duration{}
			}
			c.seen[n][f.Sequence+"/"+f.Frame] = d
		}
	}
}

// watch collects for a while, from now on.
func (c *crowd) watch(names []string, window time.Duration) (p50, p99 time.Duration) {
	clear(c.seen)
	c.collect(names)
	old := map[string]bool{}
	for _, frames := range c.seen {
		for f := range frames {
			old[f] = true
		}
	}
	for end := time.Now().Add(window); time.Now().Before(end); {
		time.Sleep(min(4*time.Second, time.Until(end)+10*time.Millisecond))
		c.collect(names)
	}
	var all []time.Duration
	for _, frames := range c.seen {
		for f, d := range frames {
			if !old[f] {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[min(len(all)*99/100, len(all)-1)]
}

// resident is a process's memory in MB.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	return 0
}

// benchModels is the repository of a detector; empty: it is not there.
func benchModels(t *testing.T, detector string) string {
	t.Helper()
	if detector != "nano" {
		return absolute(t, filepath.Join(root, "models"))
	}
	data := os.Getenv("VEDETTE_TEST_DATA")
	if data == "" {
		data = filepath.Join(root, "../shared/data")
	}
	if _, err := os.Stat(filepath.Join(data, "models/yolox_nano.onnx")); err != nil {
		return ""
	}
	return nanoModels(t, data)
}

// TestBenchCameras prints what cameras cost the three real processes, a line of a table for each kind and number.
func TestBenchCameras(t *testing.T) {
	if *benchCameras == "" {
		t.Skip("make bench-cameras measures")
	}
	began, left := time.Now(), 0
	fmt.Println("# | cameras | picture | codec | gate | detector | CPU % (vedette + ingest + infer) | RSS MB (same) | analysed/s | p50 ms | p99 ms | dropped/s |")
	fmt.Println("# |---:|---|---|---|---|---:|---:|---:|---:|---:|---:|")
	for detector := range strings.SplitSeq(*benchDetectors, ",") {
		models := benchModels(t, detector)
		if models == "" {
			fmt.Printf("# no test data: %s is left out\n", detector)
			continue
		}
		for size := range strings.SplitSeq(*benchSizes, ",") {
			for codec := range strings.SplitSeq(*benchCodecs, ",") {
				clip, still := benchClip(t, codec, size, false), benchClip(t, codec, size, true)
				var rows []benchResult
				for gate := range strings.SplitSeq(*benchGates, ",") {
					for count := range strings.SplitSeq(*benchCameras, ",") {
						n, err := strconv.Atoi(count)
						if err != nil {
							t.Fatal(err)
						}
						if *benchLimit > 0 && time.Since(began) >= *benchLimit {
							left++
							continue
						}
						t.Run(strings.Join([]string{detector, size, codec, gate, count}, "_"), func(t *testing.T) {
							shown := clip
							if gate == "still" {
								shown = still
							}
							rows = append(rows, benchRow(t, models, shown, n, size, codec, gate, detector))
						})
					}
				}
				benchLines(strings.Join([]string{detector, size, codec}, "_"), rows)
			}
		}
	}
	if left > 0 {
		fmt.Printf("# stopped after %s: the %d lines that would follow were not measured\n", time.Since(began).Round(time.Second), left)
	}
}

// benchResult is what the straight lines of processor time are drawn through.
type benchResult struct {
	gate     string
	cameras  int
	analysed float64 // frames a second
	spent    float64 // percent of a core, by all three processes
	over     bool    // more than the box can, so that cameras are analysed less often than asked for
}

// benchLines prints how straight processor time grows with the frames that are analysed, and what an idle camera adds.
func benchLines(name string, rows []benchResult) {
	var busy, idle [][2]float64
	for _, r := range rows {
		if r.gate == "still" || r.gate == "paused" {
			idle = append(idle, [2]float64{float64(r.cameras), r.spent})
		} else if !r.over { // what is decoded and not analysed is not part of the line
			busy = append(busy, [2]float64{r.analysed, r.spent})
		}
	}
	if len(busy) >= 3 {
		fixed, each, left := line(busy)
		fmt.Printf("# %s: %.1f %% of a core and %.2f %% for each frame analysed a second, through %d lines\n", name, fixed, each, len(busy))
		report("cameras_cpu_not_linear_"+name, left, "share", 0.05)
	}
	if len(idle) >= 2 {
		_, each, _ := line(idle)
		report("cameras_cpu_of_an_idle_one_"+name, each, "%core", 1)
	}
}

// benchRow measures one line.
func benchRow(t *testing.T, models string, clip *rtsptest.Clip, n int, size, codec, gate, detector string) benchResult {
	t.Helper()
	var args []string
	settle := 3 * time.Second // what starting cost is over
	switch gate {
	case "gated":
		args = append(args, "--motion-gate")
	case "still": // until the gate has learnt what it sees and has closed
		args, settle = append(args, "--motion-gate"), 20*time.Second
	case "paused":
		args, settle = append(args, "--paused"), 10*time.Second
	}
	if detector == "demo" {
		args = append(args, "--pipeline", "demo")
	}
	c := gather(t, models, clip, n, args...)
	if gate == "paused" {
		c.connected(c.names)
	} else {
		c.streaming(c.names)
	}
	time.Sleep(settle)
	pids := []int{c.p.cmd.Process.Pid, c.p.child("vedette-ingest"), c.p.child("vedette-infer")}
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		before[i] = processorTime(t, []int{pid})
	}
	totals := func() (analysed, dropped int) {
		for _, name := range c.names {
			a, d := c.counts(name)
			analysed += a
			for _, n := range d {
				dropped += n
			}
		}
		return analysed, dropped
	}
	analysed, dropped := totals()
	began := time.Now()
	p50, p99 := c.watch(c.names, *benchWindow)
	took := time.Since(began).Seconds()
	var cpu, rss []string
	all := 0.0
	for i, pid := range pids {
		spent := 100 * (processorTime(t, []int{pid}) - before[i]).Seconds() / took
		all += spent
		cpu = append(cpu, fmt.Sprintf("%.0f", spent))
		rss = append(rss, fmt.Sprintf("%.0f", resident(t, pid)))
	}
	analysedAfter, droppedAfter := totals()
	fps := float64(analysedAfter-analysed) / took
	fmt.Printf("# | %d | %s | %s | %s | %s | %s | %s | %.1f | %d | %d | %.1f |\n", n, size, codec, gate, detector,
		strings.Join(cpu, " + "), strings.Join(rss, " + "), fps, p50.Milliseconds(), p99.Milliseconds(), float64(droppedAfter-dropped)/took)
	over := false
	var system struct {
		Load struct {
			Level      string
			LimitedFps float64
			Shed       []string
		}
	}
	if err := c.p.get("/v1/system", &system); err != nil {
		t.Error(err)
	} else if l := system.Load; l.Level != "LOAD_LEVEL_NORMAL" {
		over = true
		fmt.Printf("# more than this box can: %s, at most %.1f frames a second of a camera, %d cameras not analysed\n", l.Level, l.LimitedFps, len(l.Shed))
	}
	if n == 16 && size == "640x360" && gate == "gated" && detector == "nano" {
		report("cameras_16_gated_"+codec+"_p99", float64(p99.Milliseconds()), "ms", 500)
	}
	return benchResult{gate, n, fps, all, over}
}

// TestBenchNeighbours measures the latency of four good cameras, alone and beside a dead, a slow and a bursty one.
func TestBenchNeighbours(t *testing.T) {
	if *benchCameras == "" {
		t.Skip("make bench-cameras measures")
	}
	clip := benchClip(t, "h264", "640x360", false)
	c := gather(t, benchModels(t, "demo"), clip, 4)
	good := slices.Clone(c.names)
	c.streaming(good)
	time.Sleep(3 * time.Second)
	_, alone := c.watch(good, *benchWindow)

	dead := rtsptest.Start(t, rtsptest.Config{Clip: clip, Request: func(method base.Method, done <-chan struct{}) *base.Response {
		if method == base.Describe {
			<-done
		}
		return nil
	}})
	c.add("dead", dead.Address())
	slow := rtsptest.Start(t, rtsptest.Config{Clip: clip, Speed: 0.2})
	c.add("slow", slow.Address())
	burst := bursts{}
	bursty := rtsptest.Start(t, rtsptest.Config{Clip: clip, Packet: burst.packet})
	c.add("bursty", bursty.Address(), "--fps", "0")
	c.streaming([]string{"slow", "bursty"})
	time.Sleep(3 * time.Second)
	_, beside := c.watch(good, *benchWindow)
	fmt.Printf("# p99 of four good cameras: %d ms alone, %d ms beside a dead, a slow and a bursty one\n", alone.Milliseconds(), beside.Milliseconds())
	report("cameras_p99_beside_bad_ones", float64(beside)/float64(alone), "ratio", 1.25)
}

// bursts holds packets back and sends them together.
type bursts struct {
	held []*rtp.Packet
	last time.Time
}

func (b *bursts) packet(p *rtp.Packet) []*rtp.Packet {
	b.held = append(b.held, p)
	if time.Since(b.last) < 700*time.Millisecond {
		return nil
	}
	b.last = time.Now()
	out := b.held
	b.held = nil
	return out
}
