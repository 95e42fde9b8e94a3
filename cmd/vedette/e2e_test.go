package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// programs builds the three programs once, beside each other.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "vedette-programs-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"vedette", "vedette-ingest", "vedette-infer"} {
		cmd := exec.Command("go", "build", "-tags", "gocv_specific_modules", "-o", filepath.Join(dir, name), "github.com/vedette/vedette/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_LDFLAGS=-Wl,--as-needed") // as the Makefile builds
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs(); dir != "" && (err == nil || code != 0) {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

const root = "../.."

// onnxruntime is the library a checkout has.
func onnxruntime(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "third_party/onnxruntime/libonnxruntime.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("ONNX Runtime is not there: make deps fetches it")
	}
	return path
}

// process is a running "vedette run".
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	data string
	done chan error

	mu   sync.Mutex
	out  strings.Builder
	last string
}

// http is where the dashboard is; it moves when the appliance starts again with other settings.
func (p *process) http() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// launch starts the programs and waits until the appliance says that it runs.
func launch(t *testing.T, data string, args ...string) *process {
	t.Helper()
	p, err := tryLaunch(t, data, args...)
	if err != nil {
		t.Fatalf("vedette run: %v\n%s", err, p.output())
	}
	return p
}

func tryLaunch(t *testing.T, data string, args ...string) (*process, error) {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	models, err := filepath.Abs(filepath.Join(root, "models"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, data: data, done: make(chan error, 1)}
	all := append([]string{
		"run", "--data-dir", data, "--models", models, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
		"--infer-http=", "--infer-grpc=", "--infer-metrics=",
	}, args...)
	p.cmd = exec.Command(filepath.Join(dir, "vedette"), all...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{}, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		address := regexp.MustCompile(`dashboard\s+http://(\S+)/`)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m := address.FindStringSubmatch(lines.Text())
			p.mu.Lock()
			p.out.WriteString(lines.Text() + "\n")
			if m != nil {
				p.last = m[1]
			}
			p.mu.Unlock()
			if m != nil {
				select {
				case running <- struct{}{}:
				default:
				}
			}
		}
	})
	go func() {
		reader.Wait()
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	select {
	case <-running:
		return p, nil
	case err := <-p.done:
		p.done <- err
		return p, fmt.Errorf("it ended: %w", err)
	case <-time.After(60 * time.Second):
		return p, fmt.Errorf("it did not say that it runs within 60 s")
	}
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// kill ends the appliance without asking; its children notice.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	err := <-p.done
	p.done <- err
	if p.t.Failed() {
		p.t.Logf("output of vedette run:\n%s", p.output())
	}
}

// interrupt is Ctrl-C.
func (p *process) interrupt() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	err := <-p.done
	p.done <- err
	return err
}

// child is the process id of a sidecar that runs.
func (p *process) child(name string) int {
	p.t.Helper()
	pid := p.running(name)
	if pid == 0 {
		p.t.Fatalf("%s does not run", name)
	}
	return pid
}

// running is a child's process id, told by the kernel: the log does not repeat itself where one is started again and again.
// 0: it does not run.
func (p *process) running(name string) int {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		p.t.Error(err)
	}
	for _, path := range all {
		b, err := os.ReadFile(path) // PID (NAME) STATE PARENT …
		var pid, parent int
		var state string
		if err != nil || !strings.Contains(string(b), "("+name+")") {
			continue
		}
		if n, _ := fmt.Sscanf(strings.Replace(string(b), "("+name+") ", "", 1), "%d %s %d", &pid, &state, &parent); n == 3 && parent == p.cmd.Process.Pid && state != "Z" {
			return pid
		}
	}
	return 0
}

// get asks the JSON API as an admin.
func (p *process) get(path string, into any) error {
	body, err := p.text(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// text is what the appliance answers an admin.
func (p *process) text(path string) ([]byte, error) {
	token, err := os.ReadFile(filepath.Join(p.data, "admin.token"))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+p.http()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, nil
}

// cli runs the command line against the process.
func (p *process) cli(args ...string) string {
	p.t.Helper()
	out, err := p.tryCLI(args...)
	if err != nil {
		p.t.Fatalf("vedette %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *process) tryCLI(args ...string) (string, error) {
	dir, err := programs()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(filepath.Join(dir, "vedette"), append(args, "--data-dir", p.data)...).CombinedOutput()
	return string(out), err
}

// until polls until ok is true; what is the story when it never is.
func (p *process) until(what string, limit time.Duration, ok func() bool) time.Duration {
	p.t.Helper()
	began := time.Now()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		if time.Since(began) > limit {
			p.t.Fatalf("%s: not within %s\n%s", what, limit, p.output())
		}
		select {
		case <-poll.C:
		case err := <-p.done:
			p.done <- err
			p.t.Fatalf("%s: vedette ended: %v\n%s", what, err, p.output())
		}
	}
	return time.Since(began)
}

type track struct {
	Name, Camera, Class, State string
	StartTime, EndTime         time.Time
}

type detection struct {
	CaptureTime time.Time
	Sequence    string
	Track       string
	Class       string
	Box         struct{ XMin, YMin, XMax, YMax float64 }
}

func (p *process) tracks(filter string) []track {
	var r struct{ Tracks []track }
	if err := p.get("/v1/tracks?page_size=1000&filter="+url.QueryEscape(filter), &r); err != nil {
		return nil
	}
	return r.Tracks
}

// detections are those of a camera from a time on, in order.
func (p *process) detections(camera string, from time.Time) []detection {
	var all []detection
	for token := ""; ; {
		var r struct {
			Detections    []detection
			NextPageToken string
		}
		filter := fmt.Sprintf("camera = %q AND time >= %q", camera, from.UTC().Format(time.RFC3339Nano))
		q := url.Values{"filter": {filter}, "page_size": {"10000"}, "order_by": {"capture_time"}, "page_token": {token}}
		if err := p.get("/v1/detections?"+q.Encode(), &r); err != nil {
			p.t.Logf("detections: %v", err)
			return nil
		}
		all = append(all, r.Detections...)
		if token = r.NextPageToken; token == "" {
			return all
		}
	}
}

func TestDemoShowsConfirmedTracksAndStopsInTime(t *testing.T) {
	data := t.TempDir()
	p := launch(t, data, "--demo", "--onnxruntime", onnxruntime(t))
	took := p.until("confirmed tracks", 60*time.Second, func() bool { return len(p.tracks("")) > 0 })
	t.Logf("first track %s after the start", took.Round(10*time.Millisecond))
	for _, tr := range p.tracks("") {
		if tr.Camera != "cameras/street" || tr.Class == "" || tr.StartTime.IsZero() || tr.EndTime.Before(tr.StartTime) {
			t.Errorf("track %+v", tr)
		}
	}
	if out := p.cli("camera", "list"); !strings.Contains(out, "street") || !strings.Contains(out, "STREAMING") {
		t.Errorf("vedette camera list says:\n%s", out)
	}
	if out := p.cli("track", "list"); !strings.Contains(out, "street") {
		t.Errorf("vedette track list says:\n%s", out)
	}
	// A visitor on loopback may look without a token, and change nothing.
	resp, err := http.Get("http://" + p.http() + "/v1/cameras/street/snapshot.jpg")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	head := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, head); err != nil || resp.StatusCode != http.StatusOK || string(head) != "\xff\xd8\xff" {
		t.Errorf("snapshot: %s, begins with %x", resp.Status, head)
	}
	if _, err := time.Parse(time.RFC3339Nano, resp.Header.Get("X-Vedette-Capture-Time")); err != nil {
		t.Errorf("snapshot without its capture time: %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+p.http()+"/v1/cameras/street", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a visitor removing a camera: %v %v", resp.Status, err)
	} else {
		_ = resp.Body.Close()
	}
	began := time.Now()
	if err := p.interrupt(); err != nil {
		t.Errorf("Ctrl-C: %v\n%s", err, p.output())
	}
	t.Logf("stopped within %s", time.Since(began).Round(time.Millisecond))
	if strings.Contains(p.output(), "is killed") {
		t.Errorf("a sidecar had to be killed:\n%s", p.output())
	}
	if entries, err := os.ReadDir(filepath.Join(data, "run")); err != nil || len(entries) > 0 {
		t.Errorf("sockets were left: %v %v", entries, err)
	}
}

// truthCamera is a demonstration camera of the test's own, whose frames it can tell by their capture time.
func truthCamera(t *testing.T) *demo.Camera {
	t.Helper()
	c, err := demo.New(demo.Config{})
	if err != nil {
		t.Fatal(err)
	}
	runCamera(t, c)
	return c
}

// runCamera runs a camera until the test ends and returns when clients can connect.
func runCamera(t *testing.T, c *demo.Camera) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("demo camera: %v", err)
		}
	})
	<-c.Ready()
}

// score compares what was kept of a camera with the truth of its frames, over those that were analysed.
func score(t *testing.T, name string, c *demo.Camera, truth *demo.GroundTruth, dets []detection) eval.Figures {
	t.Helper()
	first, ok := c.FrameAt(dets[0].CaptureTime)
	last, ok2 := c.FrameAt(dets[len(dets)-1].CaptureTime)
	if !ok || !ok2 {
		t.Fatal("detections from before the camera's start")
	}
	ids := map[string]int64{}
	var result, gt []eval.Row
	for _, d := range dets {
		k, _ := c.FrameAt(d.CaptureTime)
		if ids[d.Track] == 0 {
			ids[d.Track] = int64(len(ids) + 1)
		}
		result = append(result, eval.Row{
			Frame: int(k-first) + 1, ID: ids[d.Track], Score: 1, Class: -1, Visibility: 1,
			Box: tracker.Box{X1: d.Box.XMin * 640, Y1: d.Box.YMin * 360, X2: d.Box.XMax * 640, Y2: d.Box.YMax * 360},
		})
	}
	for k := first; k <= last; k++ {
		for _, o := range truth.Frame(k) {
			row := eval.Row{Frame: int(k-first) + 1, ID: truth.Identity(k, o) + 1, Score: 1, Class: -1, Visibility: o.Visibility}
			row.Box = tracker.Box{X1: o.Full.X0, Y1: o.Full.Y0, X2: o.Full.X1, Y2: o.Full.Y1}
			if !o.Scored { // neither asked for nor wrong
				row.Score, row.Class = 0, 8
			}
			gt = append(gt, row)
		}
	}
	r, err := eval.Score(name, gt, result)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Figures()
	t.Logf("%s: frames %d to %d, %+v", name, first, last, f)
	return f
}

func TestTracksAgreeWithTheTruth(t *testing.T) {
	c := truthCamera(t)
	p := launch(t, t.TempDir(), "--onnxruntime", onnxruntime(t))
	p.cli("camera", "add", "truth", c.URL(), "--every-frame", "--pipeline", "demo")
	p.until("detections", 60*time.Second, func() bool { return len(p.tracks(`camera = "truth"`)) > 0 })
	from := time.Now()
	p.until("30 seconds of detections", 90*time.Second, func() bool {
		d := p.detections("truth", from.Add(29*time.Second))
		return len(d) > 0
	})
	truth, err := demo.Truth()
	if err != nil {
		t.Fatal(err)
	}
	f := score(t, "the whole appliance", c, truth, p.detections("truth", from))
	if f.MOTA < 80 {
		t.Errorf("MOTA %.1f, want at least 80", f.MOTA)
	}
}

func TestTracksGoOnWhenAnyProcessIsKilled(t *testing.T) {
	c := truthCamera(t)
	data, lib := t.TempDir(), onnxruntime(t)
	p := launch(t, data, "--onnxruntime", lib)
	p.cli("camera", "add", "truth", c.URL(), "--pipeline", "demo")
	committed := func() []detection { return p.detections("truth", time.Now().Add(-time.Hour)) }
	p.until("detections", 60*time.Second, func() bool { return len(committed()) > 20 })

	goesOn := func(what string, before []detection) {
		t.Helper()
		killed := time.Now()
		last := before[len(before)-1].Sequence
		took := p.until(what, 10*time.Second, func() bool { // 3 s is the promise, on a machine with nothing else to do
			d := p.detections("truth", killed)
			return len(d) > 0 && d[len(d)-1].Sequence != last
		})
		t.Logf("%s: detections of a new sequence after %s", what, took.Round(10*time.Millisecond))
		now := committed()
		if len(now) < len(before) {
			t.Fatalf("%s: of %d committed detections %d are left", what, len(before), len(now))
		}
		for i := range before {
			if now[i] != before[i] {
				t.Fatalf("%s: committed detection %d was %+v, is %+v", what, i, before[i], now[i])
			}
		}
	}
	for _, name := range []string{"vedette-ingest", "vedette-infer"} {
		before := committed()
		if err := syscall.Kill(p.child(name), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		goesOn("kill -9 of "+name, before)
	}
	before, children := committed(), []int{p.child("vedette-ingest"), p.child("vedette-infer")}
	p.kill()
	p = launch(t, data, "--onnxruntime", lib)
	goesOn("kill -9 of vedette", before)
	for _, pid := range children {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(b), data) {
			t.Errorf("child %d of the killed appliance is still there: %s", pid, b)
		}
	}
	var open, crashed bool
	for _, tr := range p.tracks(`camera = "truth"`) {
		open = open || tr.State == "TRACK_STATE_OPEN"
		crashed = crashed || tr.State == "TRACK_STATE_ENDED"
	}
	if !open || !crashed {
		t.Errorf("tracks after the crash: some open %v, some ended %v", open, crashed)
	}
}
