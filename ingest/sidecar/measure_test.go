package sidecar_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

var (
	measure     = flag.Bool("measure", false, "print what the sidecar costs (TestMeasure)")
	measureLive = flag.Bool("measure-live", false, "measure live cameras alone: latency, memory, processor time")
	measureOnly = flag.String("measure-only", "", "measure this picture size alone (1080p or 360p)")
)

// TestMeasure compares the sidecar with ffmpeg on clips it renders, and prints one line for each measure:
// go test ./ingest/sidecar -run TestMeasure -args -measure.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("a measurement, not a test: give -measure")
	}
	b := &bench{dir: t.TempDir()}
	b.binary = filepath.Join(b.dir, "vedette-ingest")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", b.binary, "../../cmd/vedette-ingest").CombinedOutput(); err != nil {
		t.Fatalf("build the sidecar: %v: %s", err, out)
	}
	for _, c := range []struct {
		name          string
		width, height int
		frames        int
		memory        float64
	}{{"1080p", 1920, 1080, 500, 90}, {"360p", 640, 360, 3000, 50}} {
		if *measureOnly != "" && *measureOnly != c.name {
			continue
		}
		if *measureLive {
			if err := b.live(t, c.name, c.width, c.height, c.memory); err != nil {
				t.Fatal(err)
			}
			continue
		}
		path := filepath.Join(b.dir, c.name+".mp4")
		for _, step := range []func() error{
			func() error { return render(t.Context(), path, c.width, c.height, c.frames) },
			func() error { return b.throughput(t.Context(), c.name, path, c.frames) },
			func() error { return copies(t, c.name, path, c.frames) },
			func() error { return b.live(t, c.name, c.width, c.height, c.memory) },
			func() error { return b.skipped(t.Context(), c.name, c.width, c.height, c.frames) },
			func() error { return b.gated(t.Context(), c.name, c.width, c.height, c.frames) },
			func() error { return vectors(t.Context(), c.name, path) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type bench struct{ dir, binary string }

func say(measure string, value float64, unit, relation string, budget float64) {
	verdict := "ok"
	if (relation == ">=" && value < budget) || (relation == "<=" && value > budget) {
		verdict = "over"
	}
	fmt.Printf("%s %.3f %s %s%g %s\n", measure, value, unit, relation, budget, verdict)
}

// render makes a noisy moving picture: neither trivially small nor as dense as pure noise.
func render(ctx context.Context, path string, w, h, frames int) error {
	return encode(ctx, path, fmt.Sprintf("testsrc2=size=%dx%d:rate=25,noise=alls=8:allf=t", w, h), w*h*2, frames)
}

func encode(ctx context.Context, path, source string, rate, frames int, extra ...string) error {
	args := []string{
		"-nostdin", "-loglevel", "error", "-f", "lavfi", "-i", source, "-frames:v", strconv.Itoa(frames), "-c:v", "libx264", "-preset", "veryfast",
		"-b:v", strconv.Itoa(rate), "-bf", "0", "-g", "50", "-pix_fmt", "yuv420p",
	}
	out, err := exec.CommandContext(ctx, "ffmpeg", append(append(args, extra...), path)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("render: %w: %s", err, out)
	}
	return nil
}

// throughput compares processor time with ffmpeg's for the same clip, one decoding thread each.
func (b *bench) throughput(ctx context.Context, name, path string, frames int) error {
	for _, rate := range []float64{5, 0} {
		// Turn by turn, and the median of the turns' ratios, so that a busy machine hurts both.
		const turns = 11
		var ratios []float64
		for range turns {
			cmd := exec.CommandContext(ctx, "ffmpeg", "-nostdin", "-loglevel", "error", "-threads", "1", "-i", path, "-f", "null", "-")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("ffmpeg: %w: %s", err, out)
			}
			theirs := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			ours, seen, err := b.play(ctx, &ingestv1.Camera{Address: "file:" + path, AnalysisRate: rate})
			if err == nil && rate == 0 && seen != frames {
				err = fmt.Errorf("%d of %d frames came", seen, frames)
			}
			if err != nil {
				return err
			}
			ratios = append(ratios, theirs.Seconds()/ours.Seconds())
		}
		slices.Sort(ratios)
		label, budget := "every_frame", 0.88
		if rate > 0 {
			label, budget = "5fps", 0.97
		}
		say(fmt.Sprintf("ingest.decode.%s.%s", name, label), ratios[turns/2], "ratio_to_ffmpeg", ">=", budget)
	}
	return nil
}

// copies counts how often the pixels of a frame are copied between the decoder and its reader.
func copies(t *testing.T, name, path string, frames int) error {
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	before, size := av.Copied(), 0.0
	r.set(&ingestv1.Camera{Name: "clip", Address: "file:" + path, PreRollBytes: -1, File: &ingestv1.FilePlayback{FullSpeed: true}})
	for range frames {
		f := r.frame()
		size = float64(f.GetWidth() * f.GetHeight() * 3 / 2)
		f.Release()
	}
	say("ingest.copies."+name, float64(av.Copied()-before)/size/float64(frames), "copies_per_frame", "<=", 1)
	r.set()
	return nil
}

// process is the sidecar under test with a client.
type process struct {
	cmd    *exec.Cmd
	client *ingestclient.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (b *bench) launch(ctx context.Context, h ingestclient.Handler) (*process, error) {
	socket := filepath.Join(b.dir, fmt.Sprintf("%d.sock", time.Now().UnixNano()))
	cmd := exec.CommandContext(ctx, b.binary, "--socket", socket, "--decodes", "1", "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &process{cmd: cmd, cancel: cancel, client: ingestclient.New(ingestclient.Config{Socket: socket, Program: "bench", Handler: h, Retry: 20 * time.Millisecond})}
	s.wg.Go(func() { _ = s.client.Run(ctx) })
	return s, s.client.WaitConnected(ctx)
}

// stop ends the process and returns the processor time it took.
func (s *process) stop() (time.Duration, error) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	err := s.cmd.Wait()
	s.cancel()
	s.wg.Wait()
	return s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime(), err
}

// play reads a file at full speed and returns the sidecar's processor time and the frames that came.
func (b *bench) play(ctx context.Context, c *ingestv1.Camera) (time.Duration, int, error) {
	done := make(chan error, 1) // the one ending
	seen := 0
	s, err := b.launch(ctx, ingestclient.Handler{
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { _ = f.Close() },
		Frame:       func(f ingestclient.Frame) { seen++; f.Release() },
		Camera: func(st *ingestv1.CameraStatus) {
			if st.GetState() == ingestv1.CameraState_CAMERA_STATE_FINISHED {
				put(done, nil)
			} else if st.GetError() != nil {
				put(done, errors.New(st.GetError().GetMessage()))
			}
		},
	})
	if err != nil {
		return 0, 0, err
	}
	c.Name, c.PreRollBytes, c.File = "clip", -1, &ingestv1.FilePlayback{FullSpeed: true}
	s.client.WatchFrames(&ingestv1.WatchFrames{})
	s.client.SetCameras(&ingestv1.SetCameras{Cameras: []*ingestv1.Camera{c}})
	err = <-done
	took, werr := s.stop()
	return took, seen, errors.Join(err, werr)
}

// skipped compares the sidecar's processor time at an analysis rate with that of every frame: what is saved where
// pictures no other refers to, or all but keyframes, need not be decoded.
func (b *bench) skipped(ctx context.Context, name string, w, h, frames int) error {
	for _, c := range []struct {
		what   string
		rate   float64
		extra  []string
		budget float64
	}{
		{"non_reference", 5, []string{"-bf", "2", "-x264-params", "b-adapt=0:b-pyramid=none"}, 0.9},
		{"all_but_keyframes", 0.5, nil, 0.25},
	} {
		path := filepath.Join(b.dir, name+"-"+c.what+".mp4")
		if err := encode(ctx, path, fmt.Sprintf("testsrc2=size=%dx%d:rate=25,noise=alls=8:allf=t", w, h), w*h*2, frames, c.extra...); err != nil {
			return err
		}
		all, some := time.Hour, time.Hour
		for range 3 {
			took, _, err := b.play(ctx, &ingestv1.Camera{Address: "file:" + path})
			if err != nil {
				return err
			}
			all = min(all, took)
			if took, _, err = b.play(ctx, &ingestv1.Camera{Address: "file:" + path, AnalysisRate: c.rate}); err != nil {
				return err
			}
			some = min(some, took)
		}
		say("ingest.skip."+name+"."+c.what, some.Seconds()/all.Seconds(), "ratio_to_every_frame", "<=", c.budget)
	}
	return nil
}

// gated compares the sidecar's processor time with and without a motion gate on a noisy picture in which nothing
// happens, every frame analysed. What analysis itself is spared, is spared in other processes: frames that pass are
// counted.
func (b *bench) gated(ctx context.Context, name string, w, h, frames int) error {
	path := filepath.Join(b.dir, name+"-still.mp4")
	if err := encode(ctx, path, fmt.Sprintf("color=c=0x707070:size=%dx%d:rate=25,noise=alls=8:allf=t", w, h), w*h*2, frames); err != nil {
		return err
	}
	without, with, all, passed := time.Hour, time.Hour, 0, 0
	for range 3 {
		took, n, err := b.play(ctx, &ingestv1.Camera{Address: "file:" + path})
		if err != nil {
			return err
		}
		without, all = min(without, took), n
		if took, passed, err = b.play(ctx, &ingestv1.Camera{Address: "file:" + path, MotionGate: &ingestv1.MotionGate{}}); err != nil {
			return err
		}
		with = min(with, took)
	}
	say("ingest.gate."+name+".cpu", with.Seconds()/without.Seconds(), "ratio_to_ungated", "<=", 1.05)
	say("ingest.gate."+name+".frames_passed", float64(passed)/float64(all), "share", "<=", 0.2)
	return nil
}

// vectors compares ffmpeg's processor time with and without motion vectors handed out: what a gate that looks at them
// would add to decoding, which it cannot do without.
func vectors(ctx context.Context, name, path string) error {
	without, with := time.Hour, time.Hour
	for range 3 {
		for _, c := range []struct {
			best  *time.Duration
			flags []string
		}{{&without, nil}, {&with, []string{"-flags2", "+export_mvs"}}} {
			args := append(append([]string{"-nostdin", "-loglevel", "error", "-threads", "1"}, c.flags...), "-i", path, "-f", "null", "-")
			cmd := exec.CommandContext(ctx, "ffmpeg", args...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("ffmpeg: %w: %s", err, out)
			}
			*c.best = min(*c.best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
	}
	say("ingest.motion_vectors."+name, with.Seconds()/without.Seconds(), "ratio_to_none", "<=", 1.1)
	return nil
}

// usage is what a process uses: memory in megabytes, and processor time since it began.
type usage struct {
	memory float64
	cpu    time.Duration
}

func usageOf(pid int) (usage, error) {
	memory, err := resident(pid)
	if err != nil {
		return usage{}, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	// Behind the name, which may hold anything, the 12th and 13th field: hundredths of a second.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return usage{}, err
		}
		ticks += n
	}
	return usage{memory, time.Duration(ticks) * 10 * time.Millisecond}, nil
}

// live measures delay, memory and processor time with cameras in real time, read over RTSP.
func (b *bench) live(t *testing.T, name string, w, h int, memory float64) error {
	ctx := t.Context()
	cam := rtsptest.Start(t, rtsptest.Config{Clip: rtsptest.Render(t, rtsptest.ClipConfig{
		Width: w, Height: h, Frames: 100, GOP: 50, Extra: []string{"-vf", "noise=alls=8:allf=t", "-b:v", strconv.Itoa(w * h * 2)},
	})})
	var mu sync.Mutex
	var delays []float64
	s, err := b.launch(ctx, ingestclient.Handler{
		SlotsOpened: func(_ *ingestv1.SlotsOpened, f *os.File) { _ = f.Close() },
		Frame: func(f ingestclient.Frame) {
			mu.Lock()
			delays = append(delays, float64(int64(ingest.Now().Mono)-f.GetReceiveMonotonicNs())/1e6)
			mu.Unlock()
			f.Release()
		},
	})
	if err != nil {
		return err
	}
	pid := s.cmd.Process.Pid
	none, err := usageOf(pid)
	if err != nil {
		return err
	}
	s.client.WatchFrames(&ingestv1.WatchFrames{})
	// watch lets so many cameras run, and returns what they use and the processor time of half the time.
	const half = 10 * time.Second
	watch := func(n int) (usage, error) {
		var list []*ingestv1.Camera
		for i := range n {
			list = append(list, &ingestv1.Camera{Name: fmt.Sprint(i), Address: cam.Address()})
		}
		s.client.SetCameras(&ingestv1.SetCameras{Cameras: list})
		time.Sleep(half)
		before, err := usageOf(pid)
		if err != nil {
			return usage{}, err
		}
		time.Sleep(half)
		after, err := usageOf(pid)
		after.cpu -= before.cpu
		return after, err
	}
	one, err := watch(1)
	if err != nil {
		return err
	}
	mu.Lock()
	alone := slices.Clone(delays)
	mu.Unlock()
	const more = 4
	all, err := watch(1 + more)
	if err != nil {
		return err
	}
	if _, err := s.stop(); err != nil {
		return err
	}
	delays = alone
	slices.Sort(delays)
	if len(delays) < 100 {
		return fmt.Errorf("%d frames in %v", len(delays), 2*half)
	}
	// Decoding is part of it; the budget leaves a 1080p picture 20 ms on a slow core.
	say("ingest.latency."+name+".p50", delays[len(delays)/2], "ms", "<=", 20)
	say("ingest.latency."+name+".p99", delays[len(delays)*99/100], "ms", "<=", 60)
	say("ingest.memory."+name+".no_camera", none.memory, "MB", "<=", 40)
	say("ingest.memory."+name+".one_camera", one.memory, "MB", "<=", memory)
	say("ingest.memory."+name+".each_further_camera", (all.memory-one.memory)/more, "MB", "<=", memory-40)
	say("ingest.cpu."+name+".one_camera", 100*one.cpu.Seconds()/half.Seconds(), "percent_of_a_core", "<=", 100)
	say("ingest.cpu."+name+".each_further_camera", (all.cpu-one.cpu).Seconds()/more/one.cpu.Seconds(), "ratio_to_the_first", "<=", 1.1)
	return nil
}

// resident returns a process's memory in megabytes.
func resident(pid int) (float64, error) { return memory(pid, "VmRSS") }

// memory returns a kind of a process's memory (proc_pid_status(5)) in megabytes.
func memory(pid int, kind string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, kind+":"); ok {
			kb, err := strconv.Atoi(strings.Fields(v)[0])
			return float64(kb) / 1000, err
		}
	}
	return 0, errors.New("no " + kind)
}
