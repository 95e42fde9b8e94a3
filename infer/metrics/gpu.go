package metrics

import (
	"errors"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/client_golang/prometheus"
)

// gpu tells how NVIDIA GPUs are doing; on a machine without them, nothing.
type gpu struct {
	lib  nvml.Interface
	once once

	mu     sync.Mutex
	opened bool
	absent bool
}

func newGPU(cfg Config) *gpu { return &gpu{lib: nvml.New(), once: once{logger: cfg.Logger}} }

func (*gpu) Describe(chan<- *prometheus.Desc) {}

// open loads the driver's library once; it stays for the life of the process.
func (g *gpu) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened || g.absent {
		return g.opened
	}
	ret := g.lib.Init()
	switch {
	case errors.Is(ret, nvml.SUCCESS):
		g.opened = true
	case errors.Is(ret, nvml.ERROR_LIBRARY_NOT_FOUND), errors.Is(ret, nvml.ERROR_DRIVER_NOT_LOADED):
		g.absent = true // no GPU of theirs: nothing to report
	default:
		g.absent = true
		g.once.warn("GPU", ret)
	}
	return g.opened
}

func (g *gpu) Collect(ch chan<- prometheus.Metric) {
	if !g.open() {
		return
	}
	n, ret := g.lib.DeviceGetCount()
	if !errors.Is(ret, nvml.SUCCESS) {
		g.once.warn("GPU", ret)
		return
	}
	for i := range n {
		if d, ret := g.lib.DeviceGetHandleByIndex(i); errors.Is(ret, nvml.SUCCESS) {
			device(ch, d)
		} else {
			g.once.warn("GPU", ret)
		}
	}
}

// device tells what one GPU can say; not every one can say everything.
func device(ch chan<- prometheus.Metric, d nvml.Device) {
	uuid, ret := d.GetUUID()
	if !errors.Is(ret, nvml.SUCCESS) {
		return
	}
	tell := func(name, help string, gauge bool, v float64, ret nvml.Return) {
		if errors.Is(ret, nvml.SUCCESS) {
			emit(ch, family{name, help, gauge, nil}, prometheus.Labels{"gpu_uuid": uuid}, v)
		}
	}
	u, ret := d.GetUtilizationRates()
	tell("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", true, float64(u.Gpu)/100, ret)
	m, ret := d.GetMemoryInfo()
	tell("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", true, float64(m.Total), ret)
	tell("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", true, float64(m.Used), ret)
	p, ret := d.GetPowerUsage()
	tell("nv_gpu_power_usage", "GPU power usage in watts", true, float64(p)/1000, ret)
	p, ret = d.GetPowerManagementLimit()
	tell("nv_gpu_power_limit", "GPU power management limit in watts", true, float64(p)/1000, ret)
	e, ret := d.GetTotalEnergyConsumption()
	tell("nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started", false, float64(e)/1000, ret)
}
