package sidecar_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

var (
	flaps = flag.Int("flaps", 6, "least rounds of TestFlappingCamerasCostNothingThatGrows")
	soak  = flag.Duration("soak", 0, "how long TestFlappingCamerasCostNothingThatGrows goes on, printing slopes; 0: the least rounds, and nothing printed")
)

// descriptors counts what this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Cameras come, change, go and lose their connections at random while frames flow; at the end the list is
// what was asked for last, and no session and no descriptor is left open.
func TestCamerasComeAndGoUnderLoadWithoutALeak(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	var cams []*rtsptest.Camera
	for range 4 {
		cams = append(cams, rtsptest.Start(t, rtsptest.Config{Clip: clip}))
	}
	r := start(t, sidecar.Config{})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	before := descriptors(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for revision := range uint64(60) {
		var list []*ingestv1.Camera
		for i := range len(cams) + 2 {
			if rng.IntN(3) == 0 {
				continue
			}
			c := &ingestv1.Camera{
				Name: fmt.Sprintf("camera %d", i), Address: cams[min(i, len(cams)-1)].Address(), Disabled: rng.IntN(8) == 0,
				AnalysisRate: float64(rng.IntN(3) * 10), Slots: uint32(5 + rng.IntN(2)),
			}
			if i < len(cams)-1 { // those of one address share its session
				c.Username = []string{"", "a", "b"}[rng.IntN(3)]
			}
			list = append(list, c)
		}
		r.client.SetCameras(&ingestv1.SetCameras{Revision: revision + 1, Cameras: list})
		if rng.IntN(4) == 0 {
			cams[rng.IntN(len(cams))].Kick()
		}
		// Two frames or a tenth of a second's worth of counters, whichever comes first.
		for range 2 {
			select {
			case f := <-r.frames:
				f.Release()
			case <-r.counts:
			case <-r.status:
			}
		}
	}
	var last []*ingestv1.Camera
	for i := range len(cams) + 2 {
		last = append(last, &ingestv1.Camera{Name: fmt.Sprintf("camera %d", i), Address: cams[min(i, len(cams)-1)].Address()})
	}
	r.client.SetCameras(&ingestv1.SetCameras{Revision: 100, Cameras: last})
	streaming := map[string]bool{}
	next(t, r.status, "every camera streaming by the last list", func(s *ingestv1.CameraStatus) bool {
		streaming[s.GetCamera()] = s.GetRevision() == 100 && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
		all := true
		for _, c := range last {
			all = all && streaming[c.GetName()]
		}
		return all
	})
	r.set()
	for i, cam := range cams {
		if _, all, most := cam.Sessions(); most > 1 {
			t.Errorf("camera %d: %d of %d sessions at once", i, most, all)
		}
	}
	for _, cam := range cams {
		for open, _, _ := cam.Sessions(); open > 0; open, _, _ = cam.Sessions() {
			runtime.Gosched()
		}
	}
	r.mu.Lock()
	mapped := len(r.opens) // the test keeps every region's descriptor
	r.mu.Unlock()
	for descriptors(t) > before+mapped { // else the test times out
		runtime.Gosched()
	}
}

// A connection that the camera closes is noticed when it happens, not when pictures have been missing for long.
func TestAConnectionThatIsClosedIsNoticedAtOnce(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{Deadlines: camera.Deadlines{Packets: time.Hour, AccessUnits: time.Hour, Keyframes: time.Hour, Frames: time.Hour}})
	r.set(&ingestv1.Camera{Name: "door", Address: cam.Address()})
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
	cam.Kick()
	s := next(t, r.status, "failure", func(s *ingestv1.CameraStatus) bool { return s.GetError() != nil })
	if s.GetError().GetReason() != ingestv1.ErrorReason_ERROR_REASON_DISCONNECTED {
		t.Errorf("got %v", s.GetError())
	}
	r.state("door", ingestv1.CameraState_CAMERA_STATE_STREAMING)
}

// Whoever removes a camera and adds it again at once must not make it hold two sessions: many have room for one.
func TestACameraAddedAgainWaitsForItsOldSessionToEnd(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	cam := rtsptest.Start(t, rtsptest.Config{Clip: clip})
	r := start(t, sidecar.Config{})
	for n := range uint64(10) {
		r.client.SetCameras(&ingestv1.SetCameras{Revision: 2*n + 1, Cameras: []*ingestv1.Camera{{Name: "door", Address: cam.Address()}}})
		next(t, r.status, "streaming", func(s *ingestv1.CameraStatus) bool {
			return s.GetRevision() == 2*n+1 && s.GetState() == ingestv1.CameraState_CAMERA_STATE_STREAMING
		})
		r.client.SetCameras(&ingestv1.SetCameras{Revision: 2*n + 2})
	}
	if _, all, most := cam.Sessions(); most > 1 || all < 10 {
		t.Errorf("%d of %d sessions at once", most, all)
	}
}

// Sixteen cameras lose their connections over and over; what the process holds after the first rounds it holds
// after the last. `make soak-ingest` lets it go on for hours and prints what grew by the hour.
func TestFlappingCamerasCostNothingThatGrows(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	// A starved test process may answer late; a session given up for that ends when the camera notices, not before the next.
	_, backoff := fiftieth()
	w := newWard(t, camera.Deadlines{}, backoff)
	var cams []*rtsptest.Camera
	var patients []*patient
	for i := range 16 {
		cams = append(cams, rtsptest.Start(t, rtsptest.Config{Clip: clip}))
		patients = append(patients, w.admit(&ingestv1.Camera{Name: fmt.Sprintf("camera %d", i), Address: cams[i].Address(), PreRollBytes: 64 << 10}))
	}
	epochs := make([]string, len(cams))
	round := func(n int) held {
		for _, cam := range cams {
			if n > 0 {
				cam.Kick()
			}
		}
		for i, p := range patients {
			if !wait(p.frames, func(f *ingestv1.FrameNotice) bool {
				another := f.GetStreamEpoch() != epochs[i]
				epochs[i] = f.GetStreamEpoch()
				return another
			}) {
				t.Fatalf("round %d: camera %d did not come back", n, i)
			}
		}
		return holding(t)
	}
	round(0)
	first, begun := round(1), time.Now()
	// As many as tell slopes: all of them would be what grows.
	samples, rounds := append(make([]held, 0, 1000), first), 1
	for n := 2; n < *flaps+2 || time.Since(begun) < *soak; n++ {
		h := round(n)
		if rounds++; len(samples) < cap(samples) && h.at.Sub(begun) >= *soak*time.Duration(len(samples))/time.Duration(cap(samples)) {
			samples = append(samples, h)
		}
		// A camera on its way from one session to the next holds a few more, or a few less.
		if h.goroutines > first.goroutines+80 || h.descriptors > first.descriptors+48 || h.heap > first.heap+16 {
			t.Errorf("round %d: %+v; the first held %+v", n, h, first)
		}
	}
	for i, cam := range cams {
		if _, _, most := cam.Sessions(); most > 1 {
			t.Errorf("%d sessions at once on camera %d", most, i)
		}
	}
	if *soak == 0 {
		return
	}
	say("soak.rounds", float64(rounds), "rounds", ">=", 10)
	say("soak.reconnections", float64(16*rounds), "sessions", ">=", 160)
	// The first half is what a process grows to by itself.
	late := samples[len(samples)/2:]
	for _, m := range []struct {
		what, unit string
		of         func(held) float64
		budget     float64
	}{
		{"resident", "MB_per_hour", func(h held) float64 { return h.resident }, 2},
		{"heap", "MB_per_hour", func(h held) float64 { return h.heap }, 1},
		{"goroutines", "per_hour", func(h held) float64 { return float64(h.goroutines) }, 8},
		{"descriptors", "per_hour", func(h held) float64 { return float64(h.descriptors) }, 4},
	} {
		say("soak.slope."+m.what, slope(late, m.of), m.unit, "<=", m.budget)
	}
}

// held is what the process holds at a moment.
type held struct {
	at                      time.Time
	goroutines, descriptors int
	heap, resident          float64 // MB
}

func holding(t *testing.T) held {
	t.Helper()
	runtime.GC()
	runtime.GC() // what pools let go in two steps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	rss, err := memory(os.Getpid(), "RssAnon") // pages of files come and go as the machine likes
	if err != nil {
		t.Fatal(err)
	}
	return held{at: time.Now(), goroutines: runtime.NumGoroutine(), descriptors: descriptors(t), heap: float64(m.HeapAlloc) / 1e6, resident: rss}
}

// slope is how fast a value grows by the hour: the line of least squares through the least values of ten spells. What is
// on its way in a moment (pictures being read, sessions being opened) is as much as what a leak would add in an hour.
func slope(samples []held, of func(held) float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for spell := range slices.Chunk(samples, max(len(samples)/10, 1)) {
		s := slices.MinFunc(spell, func(a, b held) int { return cmp.Compare(of(a), of(b)) })
		x, y := s.at.Sub(samples[0].at).Hours(), of(s)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
