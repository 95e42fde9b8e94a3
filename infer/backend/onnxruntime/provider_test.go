package onnxruntime

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
)

// swiftshader is a Vulkan driver in software, which Debian's chromium brings along.
const swiftshader = "/usr/lib/chromium/vk_swiftshader_icd.json"

func picture() tensor.Tensor {
	v := make([]float32, 2*3*16*16)
	for i := range v {
		v[i] = float32(i%7) / 7
	}
	return floats("X", []int64{2, 3, 16, 16}, v...)
}

// faulty is an accelerator that fails when it is told to.
type faulty struct {
	open opener // what is behind it
	// noOpen and noRun are its faults.
	noOpen, noRun error
	opened, runs  int
}

func (f *faulty) session(m *backend.Model, at backend.Placement, path string, inputs, outputs []string, use []provider) (*session, error) {
	if len(use) == 0 {
		return newSession(m, at, path, inputs, outputs, nil)
	}
	f.opened++
	if f.noOpen != nil {
		return nil, f.noOpen
	}
	s, err := f.open(m, at, path, inputs, outputs, use)
	if err == nil {
		s.run = &faultyRun{s.run, f}
	}
	return s, err
}

type faultyRun struct {
	runner

	faulty *faulty
}

func (r *faultyRun) RunWithOptions(in, out []ort.Value, o *ort.RunOptions) error {
	r.faulty.runs++
	if r.faulty.noRun != nil {
		return r.faulty.noRun
	}
	return r.runner.RunWithOptions(in, out, o)
}

// onCPU stands for an accelerator that is not here.
func onCPU(m *backend.Model, at backend.Placement, path string, inputs, outputs []string, use []provider) (*session, error) {
	s, err := newSession(m, at, path, inputs, outputs, nil)
	if err == nil {
		s.provider = use[0].name + ",cpu"
	}
	return s, err
}

// checkProvider is the conformance kit of execution providers: what has to become of a model that is configured for
// one, whatever the provider does. Open makes its sessions.
func checkProvider(t *testing.T, name string, open opener) {
	t.Helper()
	config := `optimization { execution_accelerators { cpu_execution_accelerator { name: "` + name + `" } } }`
	o := newOwner(nil)
	want := slices.Clone(tensor.Float32s(mustLoad(t, "conv", "").run(t, o, job(o, 2, picture()))[0].Output("Y").Data))
	lost := errors.New("device lost")
	for _, c := range []struct {
		name string
		run  func(t *testing.T, k *providerKit)
	}{
		{"it gives what the CPU gives", func(t *testing.T, k *providerKit) {
			k.asks(t, name+",cpu", 0, nil)
			if k.device.runs != 1 {
				t.Errorf("it ran %d times", k.device.runs)
			}
		}},
		{"one that fails in a run costs no request", func(t *testing.T, k *providerKit) {
			k.device.noRun = lost
			k.asks(t, "cpu", 1, lost)
			k.asks(t, "cpu", 1, lost) // which does not try it again at once
			if k.device.runs != 1 || !strings.Contains(k.log.String(), "execution provider not available, running on the cpu") || !strings.Contains(k.log.String(), "device lost") {
				t.Errorf("it ran %d times; log:\n%s", k.device.runs, k.log.String())
			}
		}},
		{"one that comes back is used again", func(t *testing.T, k *providerKit) {
			k.device.noRun = lost
			k.asks(t, "cpu", 1, lost)
			k.device.noRun = nil
			k.time = k.time.Add(firstRetry)
			k.asks(t, name+",cpu", 1, nil)
			k.device.noRun = lost
			k.asks(t, "cpu", 2, lost)
			if wait := k.in.fallback.wait; wait != firstRetry {
				t.Errorf("after it had been back the next try is in %v", wait)
			}
		}},
		{"one that stays away is tried less and less often", func(t *testing.T, k *providerKit) {
			k.device.noRun = lost
			k.asks(t, "cpu", 1, lost)
			k.device.noOpen = lost
			for n, wait := 1, firstRetry; n < 12; n, wait = n+1, min(2*wait, lastRetry) {
				if k.in.fallback.wait != wait {
					t.Fatalf("the wait after fault %d is %v, want %v", n, k.in.fallback.wait, wait)
				}
				k.time = k.time.Add(wait - time.Second)
				k.asks(t, "cpu", n, lost)
				k.time = k.time.Add(time.Second)
				k.asks(t, "cpu", n+1, lost)
			}
		}},
		{"a cancelled run is no fault of it", func(t *testing.T, k *providerKit) {
			k.device.noRun = errors.New("terminated")
			gone := newOwner(nil)
			gone.cancelled = true
			j := job(gone, 2, picture())
			k.in.Execute(t.Context(), []*backend.Job{j})
			if gone.err[j] == nil {
				t.Error("a run that was ended has a result")
			}
			k.device.noRun = nil
			k.asks(t, name+",cpu", 0, nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &providerKit{device: &faulty{open: open}, time: time.Now(), want: want}
			m := model(t, "conv", config)
			m.Logger = slog.New(slog.NewTextHandler(&k.log, nil))
			b := New(Config{Library: library(t)})
			b.newSession, b.now = k.device.session, func() time.Time { return k.time }
			if err := b.Complete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			made, err := b.NewInstance(t.Context(), m, backend.Placement{Name: "conv_0", CPUThreads: 1, GPU: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = made.Close() }()
			k.in, _ = made.(*instance)
			if _, n, err := k.in.Provider(); n != 0 {
				t.Skipf("%s does not start here: %v", name, err)
			}
			c.run(t, k)
		})
	}
}

type providerKit struct {
	device *faulty
	in     *instance
	time   time.Time
	log    bytes.Buffer
	want   []float32
}

// asks runs a request, which has to be answered rightly, and looks at what the instance tells of itself.
func (k *providerKit) asks(t *testing.T, provider string, fallbacks int, reason error) {
	t.Helper()
	o := newOwner(nil)
	j := job(o, 2, picture())
	k.in.Execute(t.Context(), []*backend.Job{j})
	if o.err[j] != nil {
		t.Fatal(o.err[j])
	}
	defer o.resp[j].Release()
	for i, v := range tensor.Float32s(o.resp[j].Output("Y").Data) {
		if math.Abs(float64(v-k.want[i])) > 1e-3 {
			t.Fatalf("value %d is %g, want %g", i, v, k.want[i])
		}
	}
	if name, n, err := k.in.Provider(); name != provider || n != fallbacks || !errors.Is(err, reason) {
		t.Errorf("runs on %s after %d fallbacks (%v), want %s after %d (%v)", name, n, err, provider, fallbacks, reason)
	}
}

func TestProviderKit(t *testing.T) { checkProvider(t, "openvino", onCPU) }

func TestProviderKitWebGPU(t *testing.T) {
	if _, err := os.Stat(swiftshader); err == nil && os.Getenv("VK_ICD_FILENAMES") == "" {
		t.Setenv("VK_ICD_FILENAMES", swiftshader) // else whatever GPU this machine has
	}
	checkProvider(t, "webgpu", newSession)
}

func TestAMissingAcceleratorIsLoudCountedAndRetried(t *testing.T) {
	r := mustLoad(t, "conv", `optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }`)
	in, ok := r.instance.(*instance)
	if !ok {
		t.Fatal("not our instance")
	}
	name, n, err := in.Provider()
	if name != "cpu" || n != 1 || err == nil || !strings.Contains(err.Error(), "openvino") {
		t.Fatalf("runs on %s after %d fallbacks: %v", name, n, err)
	}
	o := newOwner(nil)
	r.run(t, o, job(o, 2, picture()))
	if _, n, _ := in.Provider(); n != 1 {
		t.Errorf("tried again at once: %d fallbacks", n)
	}
	in.fallback.next = time.Now().Add(-time.Second)
	r.run(t, o, job(o, 2, picture()))
	if _, n, _ := in.Provider(); n != 2 || in.fallback.wait != 2*firstRetry {
		t.Errorf("%d fallbacks, next in %v: want the second, later than the first", n, in.fallback.wait)
	}
}

var _ backend.Instance = (*instance)(nil)
