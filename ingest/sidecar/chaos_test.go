package sidecar_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/sidecar"
	"github.com/vedette/vedette/internal/rtsptest"
)

var flaps = flag.Int("flaps", 6, "rounds of TestFlappingCamerasCostNothingThatGrows")

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
		for i, cam := range cams {
			if rng.IntN(3) == 0 {
				continue
			}
			list = append(list, &ingestv1.Camera{
				Name: fmt.Sprintf("camera %d", i), Address: cam.Address(), Disabled: rng.IntN(8) == 0,
				AnalysisRate: float64(rng.IntN(3) * 10), Slots: uint32(5 + rng.IntN(2)), Username: []string{"", "a", "b"}[rng.IntN(3)],
			})
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
	for i, cam := range cams {
		last = append(last, &ingestv1.Camera{Name: fmt.Sprintf("camera %d", i), Address: cam.Address()})
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

// Sixteen cameras lose their connections over and over; what the process holds after the first rounds it holds
// after the last.
func TestFlappingCamerasCostNothingThatGrows(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, Frames: 25, GOP: 5})
	w := newWard(t)
	var cams []*rtsptest.Camera
	var patients []*patient
	for i := range 16 {
		cams = append(cams, rtsptest.Start(t, rtsptest.Config{Clip: clip}))
		patients = append(patients, w.admit(&ingestv1.Camera{Name: fmt.Sprintf("camera %d", i), Address: cams[i].Address(), PreRollBytes: 64 << 10}))
	}
	epochs := make([]string, len(cams))
	round := func(n int) (goroutines, files, memory int) {
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
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), descriptors(t), int(m.HeapInuse >> 20)
	}
	round(0)
	goroutines, files, memory := round(1)
	for n := range *flaps {
		g, f, m := round(n + 2)
		// A camera on its way from one session to the next holds a few more, or a few less.
		if g > goroutines+80 || f > files+48 || m > memory+16 {
			t.Errorf("round %d: %d goroutines, %d descriptors, %d MB; the first had %d, %d, %d", n, g, f, m, goroutines, files, memory)
		}
	}
}
