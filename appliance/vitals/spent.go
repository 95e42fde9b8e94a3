package vitals

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// spent measures processors and memory from one call to the next. Not safe for concurrent use.
type spent struct {
	processes func() map[string]int
	total     procfs.CPUStat
	last      map[int]float64 // processor seconds by process id
	at        time.Time
}

func newSpent(processes func() map[string]int) *spent {
	if processes == nil {
		processes = func() map[string]int { return nil }
	}
	return &spent{processes: processes, last: map[int]float64{}}
}

// measure fills in what /proc tells; what it does not tell stays zero.
func (s *spent) measure(box *vedettev1.BoxSample) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return
	}
	box.Processors = int32(runtime.NumCPU())
	if st, err := fs.Stat(); err == nil {
		box.Cpu = busy(&s.total, &st.CPUTotal)
		s.total = st.CPUTotal
	}
	if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil && m.MemAvailableBytes != nil {
		box.MemoryTotalBytes = int64(*m.MemTotalBytes)
		box.MemoryBytes = int64(*m.MemTotalBytes) - int64(*m.MemAvailableBytes)
	}
	now := time.Now()
	since := now.Sub(s.at).Seconds()
	current := map[int]float64{}
	pids := s.processes()
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		pid := pids[name]
		p, err := fs.Proc(pid)
		if err != nil {
			continue
		}
		st, err := p.Stat()
		if err != nil {
			continue
		}
		sample := &vedettev1.ProcessSample{Name: name, ResidentBytes: int64(st.ResidentMemory())}
		current[pid] = st.CPUTime()
		if before, ok := s.last[pid]; ok && since > 0 {
			sample.Cpu = max(0, (current[pid]-before)/since)
		}
		box.Processes = append(box.Processes, sample)
	}
	s.last, s.at = current, now
}

// busy is the share of the time between two readings that the processors were busy.
func busy(before, now *procfs.CPUStat) float64 {
	work := func(c *procfs.CPUStat) float64 { return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal }
	idle := func(c *procfs.CPUStat) float64 { return c.Idle + c.Iowait }
	w, i := work(now)-work(before), idle(now)-idle(before)
	if work(before)+idle(before) == 0 || w < 0 || w+i <= 0 {
		return 0
	}
	return w / (w + i)
}
