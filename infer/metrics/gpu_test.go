package metrics

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/vedette/vedette/infer/stats"
)

// driver is a machine with two GPUs, of which the second cannot tell what it draws.
func driver(energy *uint64) *mock.Interface {
	device := func(uuid string, power nvml.Return) *mock.Device {
		return &mock.Device{
			GetUUIDFunc:                   func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
			GetUtilizationRatesFunc:       func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 25}, nvml.SUCCESS },
			GetMemoryInfoFunc:             func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 8 << 30, Used: 1 << 30}, nvml.SUCCESS },
			GetPowerUsageFunc:             func() (uint32, nvml.Return) { return 71500, power },
			GetPowerManagementLimitFunc:   func() (uint32, nvml.Return) { return 300000, power },
			GetTotalEnergyConsumptionFunc: func() (uint64, nvml.Return) { return *energy, power },
		}
	}
	devices := []*mock.Device{device("GPU-a", nvml.SUCCESS), device("GPU-b", nvml.ERROR_NOT_SUPPORTED)}
	return &mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc: func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if i >= len(devices) {
				return nil, nvml.ERROR_INVALID_ARGUMENT
			}
			return devices[i], nvml.SUCCESS
		},
	}
}

func TestX2GPUsAreToldByTheirUUIDs(t *testing.T) {
	energy := uint64(5_000_000) // mJ, of times before this server
	h := handler(Config{NoCPU: true, Models: func() []stats.Snapshot {
		return []stats.Snapshot{
			{Name: "near", Version: 1},
			{Name: "far", Version: 1, GPUs: []int32{1}},
			{Name: "both", Version: 1, GPUs: []int32{0, 1}},
			{Name: "lost", Version: 1, GPUs: []int32{7}},
		}
	}}, driver(&energy))
	scrape := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	if got := numbers(driver(&energy)); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("got the devices %v", got)
	}
	first := scrape()
	energy += 2500
	got := scrape()
	for _, want := range []string{
		`nv_gpu_utilization{gpu_uuid="GPU-a"} 0.25`, `nv_gpu_utilization{gpu_uuid="GPU-b"} 0.25`,
		`nv_gpu_memory_total_bytes{gpu_uuid="GPU-a"} 8.589934592e+09`, `nv_gpu_memory_used_bytes{gpu_uuid="GPU-b"} 1.073741824e+09`,
		`nv_gpu_power_usage{gpu_uuid="GPU-a"} 71.5`, `nv_gpu_power_limit{gpu_uuid="GPU-a"} 300`, `nv_energy_consumption{gpu_uuid="GPU-a"} 2.5`,
		`nv_inference_count{gpu_uuid="GPU-b",model="far",version="1"} 0`, `nv_inference_count{model="near",version="1"} 0`,
		`nv_inference_count{model="both",version="1"} 0`, `nv_inference_count{model="lost",version="1"} 0`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if !strings.Contains(first, `nv_energy_consumption{gpu_uuid="GPU-a"} 0`+"\n") {
		t.Errorf("energy of times before counts:\n%s", first)
	}
	if strings.Contains(got, `nv_gpu_power_usage{gpu_uuid="GPU-b"}`) {
		t.Error("a GPU that cannot tell its power is told with one")
	}
}

func TestX2AMachineWithoutADriverHasNoGPUs(t *testing.T) {
	for _, ret := range []nvml.Return{nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNKNOWN} {
		asked := 0
		lib := &mock.Interface{InitFunc: func() nvml.Return {
			asked++
			return ret
		}}
		if got := numbers(lib); got != nil {
			t.Errorf("%v: got the devices %v", ret, got)
		}
		asked = 0
		h := handler(Config{NoCPU: true, Models: func() []stats.Snapshot { return []stats.Snapshot{{Name: "m", GPUs: []int32{0}}} }}, lib)
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if w.Code != 200 || strings.Contains(w.Body.String(), "gpu") {
				t.Errorf("%v: %d %s", ret, w.Code, w.Body)
			}
		}
		if asked != 1 {
			t.Errorf("%v: the driver was looked for %d times", ret, asked)
		}
	}
}
