package decode

import (
	"context"
	"errors"
	"image"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

// faulty is a real decoder that fails where a test wants it to.
type faulty struct {
	Engine
	sends, failFrom int           // fails from this Send on; 0: never
	hang            chan struct{} // Send waits for it; nil: it does not
	hung            chan struct{} // closed when it does
}

var errDevice = errors.New("the device is gone")

func (f *faulty) Send(data []byte, pts int64) error {
	if f.hang != nil {
		close(f.hung)
		<-f.hang
	}
	if f.sends++; f.failFrom > 0 && f.sends >= f.failFrom {
		return errDevice
	}
	return f.Engine.Send(data, pts)
}

// sink collects frames.
type sink struct {
	mu     sync.Mutex
	frames []ingest.Frame
}

func (s *sink) Decoded(ingest.Frame) {}

func (s *sink) Skipped() {}

func (s *sink) FormatChanged(old *ingest.Epoch, _ image.Point) *ingest.Epoch { return old }

func (s *sink) Frame(_ context.Context, f ingest.Frame, _ *av.Picture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, f)
}

// units of a clip of 50 pictures, a keyframe every 10.
func units(t *testing.T) []Unit {
	t.Helper()
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 48, GOP: 10})
	e := &ingest.Epoch{ID: "test"}
	var us []Unit
	for i, u := range clip.Units {
		var data []byte
		for _, n := range u.NALUs {
			data = append(append(data, 0, 0, 0, 1), n...)
		}
		us = append(us, Unit{
			AccessUnit: ingest.AccessUnit{Data: data, Ticks: ingest.Ticks(u.PTS), Keyframe: u.Key}, Epoch: e, Codec: ingest.H264,
			Stamp: Stamp{Capture: time.Unix(1000, int64(i)*4e7)},
		})
	}
	return us
}

// feed hands units over one by one.
func feed(us []Unit) func() (Unit, error) {
	return func() (Unit, error) {
		if len(us) == 0 {
			return Unit{}, io.EOF
		}
		u := us[0]
		us = us[1:]
		return u, nil
	}
}

// conform is what every engine does: a picture for every unit, with its time, in order; nothing before the
// first; all that is left after Drain; errors that leave it usable.
func conform(t *testing.T, open func() (Engine, error)) {
	t.Helper()
	e, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var p av.Picture
	defer p.Close()
	if ok, err := e.Receive(&p); ok || err != nil {
		t.Fatalf("a picture before the first unit: %v, %v", ok, err)
	}
	if e.Send(nil, 0) == nil {
		t.Error("an empty unit is no error")
	}
	var got []int64
	receive := func() {
		for {
			ok, err := e.Receive(&p)
			if !ok || err != nil {
				return
			}
			if p.Width != 64 || p.Height != 48 {
				t.Errorf("picture of %d×%d", p.Width, p.Height)
			}
			got = append(got, p.PTS)
		}
	}
	us := units(t)
	for i, u := range us {
		if err := e.Send(u.Data, int64(i)); err != nil {
			t.Fatalf("unit %d: %v", i, err)
		}
		receive()
	}
	e.Drain()
	receive()
	if _, err := e.Receive(&p); !errors.Is(err, io.EOF) {
		t.Errorf("after the last picture: %v", err)
	}
	for i, pts := range got {
		if pts != int64(i) {
			t.Fatalf("pictures %v", got)
		}
	}
	if len(got) != len(us) {
		t.Errorf("%d pictures of %d units", len(got), len(us))
	}
}

func TestEnginesConform(t *testing.T) {
	software := func() (Engine, error) { return openEngine(Software, av.DecoderConfig{Codec: av.H264}) }
	t.Run("software", func(t *testing.T) { conform(t, software) })
	t.Run("the fake of these tests", func(t *testing.T) {
		conform(t, func() (Engine, error) {
			e, err := software()
			return &faulty{Engine: e}, err
		})
	})
	for _, name := range []string{"vaapi", "cuda", "vulkan", "drm"} {
		t.Run(name, func(t *testing.T) {
			e, err := openEngine(name, av.DecoderConfig{Codec: av.H264})
			if err != nil {
				t.Skipf("none here: %v", err)
			}
			e.Close()
			conform(t, func() (Engine, error) { return openEngine(name, av.DecoderConfig{Codec: av.H264}) })
		})
	}
}

func TestTheNextDecoderTakesOverLoudlyAndTheFirstIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		failFrom  int
		openFails bool
		retry     time.Duration
		frames    int
		fallbacks uint64
		chosen    []string
	}{
		{"the first works", 0, false, 0, 50, 0, []string{"device"}},
		{"the first cannot be opened", 0, true, 0, 50, 1, []string{Software}},
		// Units 4 to 11 fail; the software decoder begins at the keyframe at 20.
		{"the first dies", 5, false, 0, 4 + 30, 1, []string{"device", Software}},
		{"the first dies and is tried again at every keyframe", 15, false, time.Nanosecond, 14 + 20, 1, []string{"device", Software, "device"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var chosen []string
			opened := 0
			s := &sink{}
			d := New(Config{
				Decoders: []string{"device", Software}, Retry: c.retry,
				Open: func(name string, cfg av.DecoderConfig) (Engine, error) {
					if name == Software {
						return openEngine(name, cfg)
					}
					if c.openFails {
						return nil, errDevice
					}
					e, err := openEngine(Software, cfg)
					if opened++; opened > 1 {
						return e, err
					}
					return &faulty{Engine: e, failFrom: c.failFrom}, err
				},
				Chosen: func(name, fallback string) {
					chosen = append(chosen, name)
					if (name == Software) != (fallback == "device: "+errDevice.Error() || fallback == "device: decode H.264: "+errDevice.Error()) {
						t.Errorf("%s because of %q", name, fallback)
					}
				},
			}, s)
			if err := d.All(t.Context(), feed(units(t))); err != nil {
				t.Fatal(err)
			}
			if n := d.Counts().Fallbacks; n != c.fallbacks {
				t.Errorf("%d fallbacks", n)
			}
			if len(s.frames) != c.frames {
				t.Errorf("%d frames", len(s.frames))
			}
			if got := len(chosen); got != len(c.chosen) {
				t.Fatalf("chosen: %v", chosen)
			}
			for i := range chosen {
				if chosen[i] != c.chosen[i] {
					t.Errorf("chosen: %v", chosen)
				}
			}
		})
	}
}

func TestAHungDecoderStopsNoOtherAndIsSilentWhenItReturns(t *testing.T) {
	budget := NewBudget(1)
	hang, hung := make(chan struct{}), make(chan struct{})
	bad, good := &sink{}, &sink{}
	d := New(Config{Budget: budget, Open: func(name string, cfg av.DecoderConfig) (Engine, error) {
		e, err := openEngine(name, cfg)
		return &faulty{Engine: e, hang: hang, hung: hung}, err
	}}, bad)
	ctx, cancel := context.WithCancel(t.Context())
	us := units(t)
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.All(ctx, feed(us)) })
	<-hung
	other := New(Config{Budget: budget}, good)
	if err := other.All(t.Context(), feed(us[:3])); err != nil || len(good.frames) != 3 {
		t.Errorf("%d frames beside a hung decoder, %v", len(good.frames), err)
	}
	cancel()
	d.Abandon()
	if len(budget.places) != 0 {
		t.Error("the place of the hung decoder is not free")
	}
	close(hang)
	wg.Wait()
	if len(bad.frames) != 0 || len(budget.places) != 0 {
		t.Errorf("%d frames after it was abandoned, %d places taken", len(bad.frames), len(budget.places))
	}
}

func TestAutoIsWhatTheMachineHasThenSoftware(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct {
		list, devices, want []string
	}{
		{[]string{Auto}, nil, []string{Software}},
		{[]string{Auto}, []string{"dri/renderD128"}, []string{"vaapi", Software}},
		{[]string{"qsv", Auto}, []string{"nvidia0"}, []string{"qsv", "nvdec", "vaapi", Software}},
		{[]string{Software, Auto}, []string{"video10", "video0"}, []string{Software, "nvdec", "vaapi", "v4l2"}},
		{[]string{"vaapi"}, nil, []string{"vaapi"}},
	} {
		for _, d := range c.devices {
			path := filepath.Join(root, "dev", d)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := expand(c.list, root); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
}

// Every name of the list is one libav knows, or says that it does not: none is taken for software in silence.
func TestAnAcceleratorThatIsNotThereIsAnError(t *testing.T) {
	for _, name := range []string{"nvdec", "vaapi", "v4l2", "qsv", "nonsense"} {
		e, err := openEngine(name, av.DecoderConfig{Codec: av.H264})
		if err == nil {
			// This machine has one: then it decodes, and the fakes say the rest.
			e.Close()
			continue
		}
		if e != nil || err.Error() == "" {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}
