package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/internal/clocktest"
)

var (
	chaosTime = flag.Duration("chaos", 12*time.Second, "how long TestChaos disturbs")
	chaosSeed = flag.Uint64("chaos-seed", 0, "repeats the choices of an earlier run; 0: new ones")
)

// chaos is an appliance that is disturbed in every way at once, and what has to hold all the same.
type chaos struct {
	t      *testing.T
	rng    *rand.Rand
	data   string
	config string
	small  bool // data is on a small file system of its own, which can be filled
	cams   []*flapping
	clocks map[int]*clocktest.Clock // of processes, by their id

	mu      sync.Mutex
	p       *process
	logs    strings.Builder // of the processes before p
	tried   map[string]int
	tracks  map[string]bool // ever told by the API, so committed
	events  map[string]bool
	cameras map[string]int // by id: 1 there, 0 not there, -1 whatever (a call was cut off)
	calls   int
	broken  []string
}

// flapping is a camera whose network comes and goes; its address stays.
type flapping struct {
	id, url string
	cfg     demo.Config
	stop    context.CancelFunc
	done    chan error
}

func (f *flapping) start(t *testing.T) {
	t.Helper()
	camera, err := demo.New(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop, f.done = stop, make(chan error, 1)
	go func() { f.done <- camera.Run(ctx) }()
	select {
	case <-camera.Ready():
	case err := <-f.done:
		t.Fatalf("camera %s: %v", f.id, err)
	}
	f.cfg.Address = camera.Address()
	if f.url == "" { // it stays the same from here on, and others read it
		f.url = camera.URL()
	}
}

func (f *flapping) end(t *testing.T) {
	t.Helper()
	f.stop()
	if err := <-f.done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("camera %s: %v", f.id, err)
	}
}

func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./cmd/vedette -run TestChaos -args -chaos %v -chaos-seed %d makes the same choices again", *chaosTime, seed)
	c := &chaos{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), data: t.TempDir(), config: filepath.Join(t.TempDir(), "vedette.yaml"),
		tried: map[string]int{}, tracks: map[string]bool{}, events: map[string]bool{}, cameras: map[string]int{}, clocks: map[int]*clocktest.Clock{},
	}
	c.write("log-level: info\n")
	if err := syscall.Mount("tmpfs", c.data, "tmpfs", 0, "size=192m"); err == nil {
		c.small = true
		t.Cleanup(func() { _ = syscall.Unmount(c.data, syscall.MNT_DETACH) })
	} else {
		t.Logf("no disk is filled: a small file system cannot be mounted here (%v)", err)
	}
	c.launch()
	for _, id := range []string{"north", "south"} {
		f := &flapping{id: id}
		f.start(t)
		c.cams = append(c.cams, f)
		c.p.cli("camera", "add", id, f.url)
		c.cameras[id] = 1
	}
	t.Cleanup(func() {
		for _, clock := range c.clocks {
			_ = clock.Close()
		}
	})
	c.p.until("the first tracks of both cameras", 90*time.Second, func() bool {
		return len(c.p.tracks(`camera = "cameras/north"`)) > 0 && len(c.p.tracks(`camera = "cameras/south"`)) > 0
	})

	ctx, calm := context.WithTimeout(t.Context(), *chaosTime)
	var traffic sync.WaitGroup
	traffic.Go(func() { c.look(ctx) })
	for n := range 2 {
		traffic.Go(func() { c.change(ctx, n) })
	}
	c.disturb(ctx)
	calm()
	traffic.Wait()
	c.settle()
	c.verdict()
}

// write changes the settings. On a full disk whole days go, as they should; a clock that was set a day back makes one that
// may: what the rig counts as lost is not what was deleted for want of space.
func (c *chaos) write(settings string) {
	c.t.Helper()
	if err := os.WriteFile(c.config, []byte(settings+"min-free-gib: 0.000001\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) launch() {
	c.t.Helper()
	p := launch(c.t, c.data, "--config", c.config, "--onnxruntime", onnxruntime(c.t))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p = p
}

func (c *chaos) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.p
}

// call asks the JSON API. The status is 0 when no answer came.
func (c *chaos) call(ctx context.Context, method, path, body string, into any) int {
	p := c.process()
	token, err := os.ReadFile(filepath.Join(c.data, "admin.token"))
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.http()+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	c.mu.Lock()
	c.calls++
	c.mu.Unlock()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	if into != nil && resp.StatusCode == http.StatusOK && json.Unmarshal(answer, into) != nil {
		c.violated("%s answers what is no JSON: %.80s", path, answer)
	}
	if resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusGatewayTimeout &&
		!bytes.Contains(answer, []byte("DISK_FULL")) {
		c.violated("%s %s answers %d: %.200s", method, path, resp.StatusCode, answer)
	}
	return resp.StatusCode
}

func (c *chaos) violated(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.broken) < 20 {
		c.broken = append(c.broken, fmt.Sprintf(format, args...))
	}
}

// look reads what was seen, over and over: what was told once is committed.
func (c *chaos) look(ctx context.Context) {
	for ctx.Err() == nil {
		c.remember(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *chaos) remember(ctx context.Context) {
	var tracks struct{ Tracks []track }
	if c.call(ctx, http.MethodGet, "/v1/tracks?page_size=1000", "", &tracks) == http.StatusOK {
		c.mu.Lock()
		for _, t := range tracks.Tracks {
			c.tracks[t.Name] = true
		}
		c.mu.Unlock()
	}
	var events struct{ Events []struct{ Name string } }
	if c.call(ctx, http.MethodGet, "/v1/events?page_size=1000", "", &events) == http.StatusOK {
		c.mu.Lock()
		for _, e := range events.Events {
			c.events[e.Name] = true
		}
		c.mu.Unlock()
	}
}

// change adds, changes and removes a camera of its own. What was answered has to hold.
func (c *chaos) change(ctx context.Context, n int) {
	id := fmt.Sprintf("spare%d", n)
	set := func(status, good, state int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch status {
		case good:
			c.cameras[id] = state
		case 0, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			c.cameras[id] = -1 // it may or may not have happened
		}
	}
	for ctx.Err() == nil {
		body := fmt.Sprintf(`{"source":{"uri":%q}}`, c.cams[n%len(c.cams)].url)
		set(c.call(ctx, http.MethodPost, "/v1/cameras?camera_id="+id, body, nil), http.StatusOK, 1)
		c.call(ctx, http.MethodPatch, "/v1/cameras/"+id, `{"displayName":"changed"}`, nil)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		set(c.call(ctx, http.MethodDelete, "/v1/cameras/"+id, "", nil), http.StatusOK, 0)
	}
}

// disturb does something bad, waits a little, and does the next.
func (c *chaos) disturb(ctx context.Context) {
	bad := []struct {
		name string
		do   func(context.Context)
	}{
		{"kill vedette-ingest", func(context.Context) { c.killChild("vedette-ingest") }},
		{"kill vedette-infer", func(context.Context) { c.killChild("vedette-infer") }},
		{"kill vedette", func(context.Context) { c.killAppliance() }},
		{"camera gone", c.cameraGone},
		{"camera refuses", c.cameraRefuses},
		{"settings read again", func(context.Context) { c.reload() }},
	}
	if c.small {
		bad = append(bad, struct {
			name string
			do   func(context.Context)
		}{"disk full", c.fillDisk})
	}
	if _, err := c.clock(c.p.cmd.Process.Pid); err == nil {
		bad = append(bad, struct {
			name string
			do   func(context.Context)
		}{"clock set", c.setClock})
	} else {
		c.t.Logf("no clock is set: %v", err)
	}
	for i := 0; ctx.Err() == nil; i++ {
		b := bad[c.rng.IntN(len(bad))]
		if i < len(bad) { // each at least once
			b = bad[i]
		}
		c.mu.Lock()
		c.tried[b.name]++
		c.mu.Unlock()
		b.do(ctx)
		c.rest(ctx, time.Duration(200+c.rng.IntN(800))*time.Millisecond)
	}
}

func (c *chaos) rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c *chaos) killChild(name string) {
	pid := c.process().running(name)
	if pid == 0 {
		return // between two lives
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.violated("kill %s: %v", name, err)
	}
}

func (c *chaos) killAppliance() {
	p := c.process()
	p.kill()
	c.mu.Lock()
	c.logs.WriteString(p.output())
	c.mu.Unlock()
	c.write("log-level: info\n") // with faulty settings it would rightly refuse to start
	c.launch()
}

func (c *chaos) cameraGone(ctx context.Context) {
	f := c.cams[c.rng.IntN(len(c.cams))]
	f.end(c.t)
	c.rest(ctx, time.Duration(c.rng.IntN(1500))*time.Millisecond)
	f.start(c.t) //nolint:contextcheck // the camera outlives what disturbs it
}

func (c *chaos) cameraRefuses(ctx context.Context) {
	f := c.cams[c.rng.IntN(len(c.cams))]
	f.end(c.t)
	f.cfg.User, f.cfg.Password = "somebody", "else"
	f.start(c.t) //nolint:contextcheck // the camera outlives what disturbs it
	c.rest(ctx, time.Duration(c.rng.IntN(1500))*time.Millisecond)
	f.end(c.t)
	f.cfg.User, f.cfg.Password = "", ""
	f.start(c.t) //nolint:contextcheck // the camera outlives what disturbs it
}

func (c *chaos) reload() {
	c.write([]string{"log-level: info\n", "log-level: debug\n", "log-level: nonsense\n", "keep-days: 30\n"}[c.rng.IntN(4)])
	if err := c.process().cmd.Process.Signal(syscall.SIGHUP); err != nil {
		c.violated("SIGHUP: %v", err)
	}
}

// fillDisk leaves nothing free for a moment.
func (c *chaos) fillDisk(ctx context.Context) {
	path := filepath.Join(c.data, "filler")
	f, err := os.Create(path)
	if err != nil {
		return // full already
	}
	_, err = io.Copy(f, io.LimitReader(zeros{}, 1<<30))
	if !errors.Is(err, syscall.ENOSPC) {
		c.violated("filling the disk: %v", err)
	}
	_ = f.Close()
	c.rest(ctx, time.Duration(500+c.rng.IntN(1500))*time.Millisecond)
	_ = os.Remove(path)
}

// clock is the wall clock of a process.
func (c *chaos) clock(pid int) (*clocktest.Clock, error) {
	if clock, ok := c.clocks[pid]; ok {
		return clock, nil
	}
	clock, err := clocktest.Take(pid)
	if err != nil {
		return nil, err
	}
	c.clocks[pid] = clock
	return clock, nil
}

// setClock sets the box's clock, and right again a moment later.
func (c *chaos) setClock(ctx context.Context) {
	ahead := []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 10 * time.Second, -10 * time.Second}[c.rng.IntN(6)]
	for _, to := range []time.Duration{ahead, 0} {
		p := c.process()
		for _, pid := range []int{p.cmd.Process.Pid, p.running("vedette-ingest"), p.running("vedette-infer")} {
			if pid == 0 {
				continue
			}
			clock, err := c.clock(pid)
			if err == nil {
				err = clock.Set(to)
			}
			if err != nil && alive(pid) { // one that was killed starts again with the machine's clock
				c.violated("%v", err)
			}
		}
		if to != 0 {
			c.rest(ctx, time.Duration(500+c.rng.IntN(2500))*time.Millisecond)
		}
	}
}

// alive tells whether a process runs; one that was killed may not be gone yet.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// settle waits until everything works again by itself: nothing is restarted for it. Only a camera that refused its
// password, which is then tried rarely lest it lock the account, is tried now, as a person would who mended it.
func (c *chaos) settle() {
	c.t.Helper()
	c.write("log-level: info\n")
	for _, f := range c.cams {
		c.p.until("a mended camera is tried again", time.Minute, func() bool {
			_, off := c.p.tryCLI("camera", "disable", f.id)
			_, on := c.p.tryCLI("camera", "enable", f.id, "--allow-overload")
			return off == nil && on == nil
		})
	}
	begin := time.Now()
	for _, f := range c.cams {
		filter := fmt.Sprintf(`camera = "cameras/%s" AND start_time >= %q`, f.id, begin.UTC().Format(time.RFC3339Nano))
		c.p.until("new tracks of camera "+f.id+" after the storm", 5*time.Minute, func() bool { return len(c.p.tracks(filter)) > 0 })
	}
}

// verdict checks what has to hold, and tells what was tried.
func (c *chaos) verdict() {
	t := c.t
	t.Helper()
	keptTracks, keptEvents := map[string]bool{}, map[string]bool{}
	c.pages("/v1/tracks?page_size=1000", func(name string) { keptTracks[name] = true })
	c.pages("/v1/events?page_size=1000", func(name string) { keptEvents[name] = true })
	steps := 0
	c.pages("/v1/events?page_size=1000&filter="+url.QueryEscape(`type = "clock_step"`), func(string) { steps++ })
	lost := func(told, kept map[string]bool) (n int) {
		for name := range told {
			if !kept[name] {
				n++
				t.Logf("lost: %s", name)
			}
		}
		return n
	}
	wrong := 0
	var list struct{ Cameras []struct{ Name string } }
	if err := c.p.get("/v1/cameras?page_size=100", &list); err != nil {
		t.Error(err)
	}
	for id, want := range c.cameras {
		there := slices.ContainsFunc(list.Cameras, func(l struct{ Name string }) bool { return l.Name == "cameras/"+id })
		if want >= 0 && there != (want == 1) {
			wrong++
			t.Errorf("camera %s: there: %v, and the API's last answer was otherwise", id, there)
		}
	}
	children := []int{c.p.child("vedette-ingest"), c.p.child("vedette-infer")}
	if err := c.p.interrupt(); err != nil {
		t.Errorf("it does not stop well: %v", err)
	}
	left := 0
	for _, pid := range children {
		if syscall.Kill(pid, 0) == nil {
			left++
		}
	}
	damaged := c.integrity()
	logs := c.logs.String() + c.p.output()
	panics := strings.Count(logs, "panic: ") + strings.Count(logs, "fatal error: ") + strings.Count(logs, "DATA RACE")
	for _, b := range c.broken {
		t.Errorf("violated: %s", b)
	}

	for _, name := range slices.Sorted(maps.Keys(c.tried)) {
		fmt.Printf("chaos_%s %d times - ok\n", strings.ReplaceAll(strings.ReplaceAll(name, " ", "_"), "-", "_"), c.tried[name])
	}
	fmt.Printf("chaos_calls %d calls - ok\nchaos_told_tracks %d tracks - ok\nchaos_told_events %d events - ok\nchaos_told_clock_steps %d events - ok\n",
		c.calls, len(c.tracks), len(c.events), steps)
	for _, m := range []struct {
		name, unit string
		n          int
	}{
		{"chaos_lost_tracks", "tracks", lost(c.tracks, keptTracks)},
		{"chaos_lost_events", "events", lost(c.events, keptEvents)},
		{"chaos_wrong_cameras", "cameras", wrong},
		{"chaos_damaged_databases", "files", damaged},
		{"chaos_processes_left", "processes", left},
		{"chaos_panics", "panics", panics},
		{"chaos_wrong_answers", "answers", len(c.broken)},
	} {
		verdict := "ok"
		if m.n > 0 {
			verdict = "over"
			t.Errorf("%s: %d", m.name, m.n)
		}
		fmt.Printf("%s %d %s 0 %s\n", m.name, m.n, m.unit, verdict)
	}
}

// pages calls visit with the name of everything a list holds.
func (c *chaos) pages(path string, visit func(name string)) {
	c.t.Helper()
	for token := ""; ; {
		var page struct {
			Tracks, Events []struct{ Name string }
			NextPageToken  string
		}
		if err := c.p.get(path+"&page_token="+token, &page); err != nil {
			c.t.Fatal(err)
		}
		for _, x := range append(page.Tracks, page.Events...) {
			visit(x.Name)
		}
		if token = page.NextPageToken; token == "" {
			return
		}
	}
}

// integrity counts the databases that SQLite finds damaged.
func (c *chaos) integrity() (damaged int) {
	c.t.Helper()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		c.t.Log("sqlite3 is not here to check the databases")
		return 0
	}
	files, err := filepath.Glob(filepath.Join(c.data, "*.db"))
	if err != nil || len(files) < 2 {
		c.t.Errorf("databases %v, %v", files, err)
	}
	for _, f := range files {
		out, err := exec.Command("sqlite3", f, "PRAGMA integrity_check").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "ok" {
			damaged++
			c.t.Errorf("%s: %v: %s", filepath.Base(f), err, out)
		}
	}
	return damaged
}
