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
	uuids  map[int32]string  // by device number
	spent  map[string]uint64 // energy of a device in mJ when it was first asked
}

func newGPU(lib nvml.Interface, cfg Config) *gpu {
	return &gpu{lib: lib, once: once{logger: cfg.Logger}, uuids: make(map[int32]string), spent: make(map[string]uint64)}
}

// GPUs are the numbers of the NVIDIA devices there are, as their driver counts them.
func GPUs() []int32 { return numbers(nvml.New()) }

func numbers(lib nvml.Interface) []int32 {
	if !errors.Is(lib.Init(), nvml.SUCCESS) {
		return nil
	}
	n, ret := lib.DeviceGetCount()
	if !errors.Is(ret, nvml.SUCCESS) {
		return nil
	}
	var out []int32
	for i := range n {
		out = append(out, int32(i))
	}
	return out
}

// uuid names a device; empty where there is none.
func (g *gpu) uuid(number int32) string {
	if !g.open() {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.uuids[number]; ok {
		return known
	}
	d, ret := g.lib.DeviceGetHandleByIndex(int(number))
	if !errors.Is(ret, nvml.SUCCESS) {
		return ""
	}
	uuid, ret := d.GetUUID()
	if !errors.Is(ret, nvml.SUCCESS) {
		return ""
	}
	g.uuids[number] = uuid
	return uuid
}

// since is a device's energy since it was first asked.
func (g *gpu) since(uuid string, energy uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	first, ok := g.spent[uuid]
	if !ok || energy < first { // the driver counts anew after it was loaded again
		g.spent[uuid], first = energy, energy
	}
	return energy - first
}

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
			g.device(ch, d)
		} else {
			g.once.warn("GPU", ret)
		}
	}
}

// device tells what one GPU can say; not every one can say everything.
func (g *gpu) device(ch chan<- prometheus.Metric, d nvml.Device) {
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
	tell("nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started", false, float64(g.since(uuid, e))/1000, ret)
}
