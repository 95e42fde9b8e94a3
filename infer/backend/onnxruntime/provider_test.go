package onnxruntime

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

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

func TestWebGPUGivesWhatTheCPUGives(t *testing.T) {
	if _, err := os.Stat(swiftshader); err != nil {
		t.Skipf("no software Vulkan driver: %v", err)
	}
	t.Setenv("VK_ICD_FILENAMES", swiftshader)
	gpu := mustLoad(t, "conv", `optimization { execution_accelerators { cpu_execution_accelerator { name: "webgpu" } } }`)
	in, ok := gpu.instance.(*instance)
	if !ok {
		t.Fatal("not our instance")
	}
	if name, n, err := in.Provider(); name != "webgpu,cpu" || n != 0 || err != nil {
		t.Skipf("WebGPU does not start here (%s after %d fallbacks): %v", name, n, err)
	}
	o := newOwner(nil)
	got := tensor.Float32s(gpu.run(t, o, job(o, 2, picture()))[0].Output("Y").Data)
	want := tensor.Float32s(mustLoad(t, "conv", "").run(t, o, job(o, 2, picture()))[0].Output("Y").Data)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-3 {
			t.Fatalf("value %d is %g, want %g", i, got[i], want[i])
		}
	}
	if name, _, _ := in.Provider(); name != "webgpu,cpu" {
		t.Errorf("ran on %s", name)
	}
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

func TestAnAcceleratorThatGivesUpIsLeft(t *testing.T) {
	r := mustLoad(t, "conv", "")
	in, ok := r.instance.(*instance)
	if !ok {
		t.Fatal("not our instance")
	}
	// A session without a graph stands for a device that is gone.
	in.fallback.wanted = true
	if err := in.sessions[0].run.Destroy(); err != nil {
		t.Fatal(err)
	}
	in.sessions[0].provider = "gone"
	s, err := in.giveUp(errors.New("device lost"))
	if err != nil || s.provider != "cpu" {
		t.Fatalf("session %v, error %v", s, err)
	}
	o := newOwner(nil)
	r.run(t, o, job(o, 2, picture()))
	if name, n, err := in.Provider(); name != "cpu" || n != 1 || err == nil {
		t.Errorf("runs on %s after %d fallbacks: %v", name, n, err)
	}
}

var _ backend.Instance = (*instance)(nil)
