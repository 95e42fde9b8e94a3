package main_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/internal/rtsptest"
)

// churnTime is how long clients change cameras while cameras and sidecars fail. make churn gives it.
var churnTime = flag.Duration("churn", 4*time.Second, "how long cameras are changed while everything fails")

var churnSeed = flag.Uint64("churn-seed", 1, "of what the clients do")

const (
	churners   = 8 // clients
	churnOwned = 2 // cameras each of them owns
)

// churn is the rig: what was tried, and what the box must show for it.
type churn struct {
	t         *testing.T
	p         *process
	cameras   vedettev1.CameraServiceClient
	events    vedettev1.EventServiceClient
	analytics vedettev1.AnalyticsServiceClient
	sources   []*rtsptest.Camera

	samples map[string][]churnSample // by process

	mu    sync.Mutex
	tried map[string]int
	last  map[string]int64  // newest sequence seen of a camera, by id and uid
	owner map[string]string // camera of a track
}

// TestChurn changes cameras from eight clients at once while cameras flap and sidecars are killed, and then looks
// whether anything leaked, got stuck, went back in time or was lost.
func TestChurn(t *testing.T) {
	c := &churn{t: t, samples: map[string][]churnSample{}, tried: map[string]int{}, last: map[string]int64{}, owner: map[string]string{}}
	street := "movie=" + absolute(t, filepath.Join(root, "appliance/demo/clip/street.h264")) + ",setpts=N/(10*TB),fps=10,scale=640:360"
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 640, Height: 360, Rate: 10, Frames: 100, GOP: 10, Extra: []string{"-filter_complex", street}})
	for range 4 {
		c.sources = append(c.sources, rtsptest.Start(t, rtsptest.Config{Clip: clip}))
	}
	data := t.TempDir()
	c.p = launch(t, data, "--onnxruntime", onnxruntime(t))
	c.p.until("the models", 2*time.Minute, func() bool { return strings.Contains(c.p.output(), "models are loaded") })
	conn, err := grpc.NewClient("unix:"+appliance.LocalSocket(data), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c.cameras, c.events, c.analytics = vedettev1.NewCameraServiceClient(conn), vedettev1.NewEventServiceClient(conn), vedettev1.NewAnalyticsServiceClient(conn)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching, working sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	before := c.descriptors()
	routines := c.goroutines()
	until := time.Now().Add(*churnTime)
	killing := until
	if *churnTime >= time.Minute { // then the sidecars live on, to be looked at
		killing = until.Add(-*churnTime * 2 / 3)
	}
	expected := make([]map[string]string, churners) // display names by id
	for i := range churners {
		working.Go(func() { expected[i] = c.client(ctx, i, until) })
	}
	working.Go(func() { c.flap(until) })
	working.Go(func() { c.kill(killing, until) })
	working.Go(func() { c.sample(killing, until) })
	working.Wait()

	c.lastWriteWins(ctx, expected)
	for _, phase := range []struct {
		name  string
		check func()
	}{
		{"every camera was analysed again", func() { c.nothingStuck(ctx, expected) }},
		{"every sequence was closed", func() {
			c.removeAll(ctx)
			c.sequencesClosedOnce(ctx)
		}},
		{"descriptors were given back", func() { c.nothingLeaked(before) }},
		{"goroutines have ended", func() { c.nothingRuns(routines) }},
	} {
		began := time.Now()
		phase.check()
		t.Logf("%s after %s", phase.name, time.Since(began).Round(100*time.Millisecond))
	}
	cancel()
	watching.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf("# churn: %v in %s, %d tracks seen\n", c.tried, *churnTime, len(c.owner))
	c.growth()
}

// churnSample is what a process holds at one moment.
type churnSample struct {
	at, memory, files, routines float64 // hours, MB, and counts
}

// sample looks at the processes twice a second; at the sidecars once they are not killed any more.
func (c *churn) sample(killing, until time.Time) {
	began := time.Now()
	for time.Now().Before(until) {
		time.Sleep(500 * time.Millisecond)
		for _, name := range []string{"vedette", "vedette-ingest", "vedette-infer"} {
			pid, s := c.p.cmd.Process.Pid, churnSample{at: time.Since(began).Hours()}
			if name == "vedette" {
				s.routines = float64(c.goroutines())
			} else if pid = c.p.running(name); time.Now().Before(killing) || pid == 0 {
				continue
			}
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				continue // it is about to end
			}
			s.memory, s.files = resident(c.t, pid), float64(len(entries))
			c.samples[name] = append(c.samples[name], s)
		}
	}
}

// growth prints what the processes hold more at the end than at the start, when that was long enough to tell: the straight
// line through the second half of what was seen of each, when what starting takes is over. Descriptors and goroutines swing
// with the cameras there are at a moment.
func (c *churn) growth() {
	if *churnTime < time.Minute {
		return
	}
	for _, m := range []struct {
		process, name, unit string
		of                  func(s *churnSample) float64
		budget              float64
	}{
		{"vedette", "memory", "MB", func(s *churnSample) float64 { return s.memory }, 15},
		{"vedette", "files", "files", func(s *churnSample) float64 { return s.files }, 20},
		{"vedette", "goroutines", "goroutines", func(s *churnSample) float64 { return s.routines }, 60},
		{"vedette-ingest", "memory", "MB", func(s *churnSample) float64 { return s.memory }, 15},
		{"vedette-ingest", "files", "files", func(s *churnSample) float64 { return s.files }, 20},
		{"vedette-infer", "memory", "MB", func(s *churnSample) float64 { return s.memory }, 30},
		{"vedette-infer", "files", "files", func(s *churnSample) float64 { return s.files }, 20},
	} {
		seen := c.samples[m.process]
		if seen = seen[len(seen)/2:]; len(seen) < 2 {
			c.t.Errorf("%s was not seen", m.process)
			continue
		}
		var points [][2]float64
		mean := 0.0
		for i := range seen {
			points = append(points, [2]float64{seen[i].at, m.of(&seen[i])})
			mean += m.of(&seen[i]) / float64(len(seen))
		}
		_, hourly, _ := line(points)
		span := seen[len(seen)-1].at - seen[0].at
		report("churn_"+strings.ReplaceAll(m.process, "-", "_")+"_"+m.name+"_growth", hourly*span, m.unit, m.budget)
		fmt.Printf("# %s of %s: %.1f on average, %+.1f an hour\n", m.name, m.process, mean, hourly)
	}
}

// goroutines of the appliance.
func (c *churn) goroutines() int {
	resp, err := http.Get("http://" + c.p.http() + "/metrics")
	if err != nil {
		c.t.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	c.t.Error("the metrics tell no number of goroutines")
	return 0
}

// nothingRuns waits until the appliance runs about as many goroutines as before there was a camera.
func (c *churn) nothingRuns(before int) {
	const slack = 15 // connections of this test, a commit under way
	now := 0
	c.p.until("goroutines end", time.Minute, func() bool {
		now = c.goroutines()
		return now <= before+slack
	})
	c.t.Logf("goroutines before %d, after %d", before, now)
}

func (c *churn) count(what string, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried[what]++
	switch status.Code(err) {
	case codes.OK:
		return true
	case codes.NotFound, codes.AlreadyExists, codes.Canceled:
		return false
	default:
		c.t.Errorf("%s: %v", what, err)
		return false
	}
}

// client makes and changes the cameras it owns, and meddles with those of others; what it returns is what it was last
// promised.
func (c *churn) client(ctx context.Context, number int, until time.Time) map[string]string {
	r := rand.New(rand.NewPCG(uint64(number), *churnSeed))
	names := map[string]string{} // of those that exist
	for n := 0; time.Now().Before(until); n++ {
		id := fmt.Sprintf("c%d-%d", number, r.IntN(churnOwned))
		name := fmt.Sprintf("%s as of %d", id, n)
		_, exists := names[id]
		switch k := r.IntN(10); {
		case !exists:
			_, err := c.cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: id, AllowOverload: true, Camera: &vedettev1.Camera{
				DisplayName: name, Source: &vedettev1.Source{Uri: c.sources[r.IntN(len(c.sources))].Address()}, Analysis: &vedettev1.Analysis{Fps: 5},
			}})
			if c.count("create", err) {
				names[id] = name
			}
		case k < 5:
			camera, paths := &vedettev1.Camera{Name: "cameras/" + id, DisplayName: name}, []string{"display_name"}
			if r.IntN(3) == 0 {
				camera.Source, paths = &vedettev1.Source{Uri: c.sources[r.IntN(len(c.sources))].Address()}, append(paths, "source.uri")
			}
			_, err := c.cameras.UpdateCamera(ctx, &vedettev1.UpdateCameraRequest{AllowOverload: true, Camera: camera, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
			if c.count("update", err) {
				names[id] = name
			}
		case k < 7:
			if _, err := c.cameras.DeleteCamera(ctx, &vedettev1.DeleteCameraRequest{Name: "cameras/" + id}); c.count("remove", err) {
				delete(names, id)
			}
		default:
			c.meddle(ctx, r)
		}
	}
	return names
}

// meddle switches a camera of anybody on or off, or changes its rate.
func (c *churn) meddle(ctx context.Context, r *rand.Rand) {
	name := fmt.Sprintf("cameras/c%d-%d", r.IntN(churners), r.IntN(churnOwned))
	switch r.IntN(3) {
	case 0:
		_, err := c.cameras.EnableCamera(ctx, &vedettev1.EnableCameraRequest{Name: name, AllowOverload: true})
		c.count("enable", err)
	case 1:
		_, err := c.cameras.DisableCamera(ctx, &vedettev1.DisableCameraRequest{Name: name})
		c.count("disable", err)
	default:
		_, err := c.cameras.UpdateCamera(ctx, &vedettev1.UpdateCameraRequest{
			AllowOverload: true,
			Camera:        &vedettev1.Camera{Name: name, Analysis: &vedettev1.Analysis{Fps: 1 + r.Float64()*4, Priority: vedettev1.Priority(r.IntN(4))}},
			UpdateMask:    &fieldmaskpb.FieldMask{Paths: []string{"analysis.fps", "analysis.priority"}},
		})
		c.count("rate", err)
	}
}

// flap ends the connections of cameras, one after the other.
func (c *churn) flap(until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		c.sources[n%len(c.sources)].Kick()
		c.count("flap", nil)
		time.Sleep(300 * time.Millisecond)
	}
}

// kill ends the sidecars in turn, for as long as killing lasts; in the end, when there is time, inference hangs.
func (c *churn) kill(killing, until time.Time) {
	for n := 0; ; n++ {
		time.Sleep(1500 * time.Millisecond)
		if !time.Now().Before(killing) {
			break
		}
		name := []string{"vedette-ingest", "vedette-infer"}[n%2]
		if pid := c.p.running(name); pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			c.count("kill "+name, nil)
		}
	}
	if *churnTime < 30*time.Second {
		return // it takes a quarter of a minute until it is given up
	}
	time.Sleep(time.Until(until))
	if pid := c.p.running("vedette-infer"); pid != 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil {
		c.count("stop vedette-infer", nil)
	}
}

// watch follows what is committed: no frame of a sequence may follow one of a later sequence of its camera, and no
// track may belong to two cameras.
func (c *churn) watch(ctx context.Context) {
	stream, err := c.analytics.WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{})
	if err != nil {
		c.t.Error(err)
		return
	}
	for {
		m, err := stream.Recv()
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.t.Errorf("watch: %v", err)
			return
		}
		c.mu.Lock()
		if f := m.GetFrame(); f != nil {
			if f.GetSequence() < c.last[f.GetCamera()] {
				c.t.Errorf("%s: a frame of sequence %d after one of sequence %d", f.GetCamera(), f.GetSequence(), c.last[f.GetCamera()])
			}
			c.last[f.GetCamera()] = f.GetSequence()
		}
		if tr := m.GetTrack().GetTrack(); tr != nil {
			camera, id, _ := strings.Cut(strings.TrimPrefix(tr.GetName(), "cameras/"), "/tracks/")
			if was := c.owner[id]; was != "" && was != camera {
				c.t.Errorf("track %s is of %s and of %s", id, was, camera)
			}
			c.owner[id] = camera
		}
		c.mu.Unlock()
	}
}

// list returns the cameras there are.
func (c *churn) list(ctx context.Context) map[string]*vedettev1.Camera {
	c.t.Helper()
	r, err := c.cameras.ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000})
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]*vedettev1.Camera{}
	for _, camera := range r.GetCameras() {
		all[strings.TrimPrefix(camera.GetName(), "cameras/")] = camera
	}
	return all
}

func (c *churn) lastWriteWins(ctx context.Context, expected []map[string]string) {
	have, want := c.list(ctx), 0
	for _, names := range expected {
		for id, name := range names {
			want++
			if have[id].GetDisplayName() != name {
				c.t.Errorf("%s is called %q; the last write said %q", id, have[id].GetDisplayName(), name)
			}
		}
	}
	if len(have) != want {
		c.t.Errorf("there are %d cameras, %d were left", len(have), want)
	}
}

// nothingStuck enables every camera and waits until each is analysed, or the box has said that it cannot.
func (c *churn) nothingStuck(ctx context.Context, expected []map[string]string) {
	begin := map[string]int64{}
	for _, names := range expected {
		for id := range names {
			camera, err := c.cameras.EnableCamera(ctx, &vedettev1.EnableCameraRequest{Name: "cameras/" + id, AllowOverload: true})
			if err != nil {
				c.t.Fatal(err)
			}
			begin[id] = camera.GetStatus().GetAnalysedFrames()
		}
	}
	c.p.until("every camera is analysed again", 2*time.Minute, func() bool {
		for id, camera := range c.list(ctx) {
			if camera.GetStatus().GetAnalysedFrames() <= begin[id] && camera.GetStatus().GetAnalysisReason() != "SHED" {
				return false
			}
		}
		return true
	})
}

func (c *churn) removeAll(ctx context.Context) {
	for id := range c.list(ctx) {
		if _, err := c.cameras.DeleteCamera(ctx, &vedettev1.DeleteCameraRequest{Name: "cameras/" + id}); err != nil {
			c.t.Error(err)
		}
	}
}

// sequencesClosedOnce waits until every sequence that was opened is closed, and looks that none was closed twice.
func (c *churn) sequencesClosedOnce(ctx context.Context) {
	var opened, closed map[string]int
	c.p.until("every sequence is closed", time.Minute, func() bool {
		opened, closed = map[string]int{}, map[string]int{}
		for token := ""; ; {
			r, err := c.events.ListEvents(ctx, &vedettev1.ListEventsRequest{PageSize: 1000, PageToken: token})
			if err != nil {
				return false
			}
			for _, e := range r.GetEvents() {
				switch e.GetType() {
				case "sequence_opened":
					opened[e.GetAttributes()["sequence"]]++
				case "sequence_closed":
					closed[e.GetAttributes()["sequence"]]++
				}
			}
			if token = r.GetNextPageToken(); token == "" {
				break
			}
		}
		for s := range opened {
			if closed[s] == 0 {
				return false
			}
		}
		return len(opened) > 0
	})
	for s, n := range opened {
		if n != 1 || closed[s] != 1 {
			c.t.Errorf("sequence %s was opened %d times and closed %d times", s, n, closed[s])
		}
	}
}

// descriptors are the open files of the three processes.
func (c *churn) descriptors() map[string]int {
	c.t.Helper()
	all := map[string]int{}
	for name, pid := range map[string]int{"vedette": c.p.cmd.Process.Pid, "vedette-ingest": c.p.running("vedette-ingest"), "vedette-infer": c.p.running("vedette-infer")} {
		entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
		if err == nil {
			all[name] = len(entries)
		}
	}
	return all
}

// nothingLeaked waits until the processes hold about as many files as before there was a camera.
func (c *churn) nothingLeaked(before map[string]int) {
	const slack = 12 // connections of this test, day files, the watch
	var now map[string]int
	c.p.until("descriptors are given back", time.Minute, func() bool {
		now = c.descriptors()
		for name, n := range before {
			if now[name] == 0 || now[name] > n+slack { // it is being started again, or holds too many
				return false
			}
		}
		return true
	})
	c.t.Logf("descriptors before %v, after %v", before, now)
}
