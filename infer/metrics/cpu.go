package metrics

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cpu tells how busy the machine is and what memory it has.
type cpu struct {
	proc     string
	interval time.Duration
	once     once

	mu          sync.Mutex
	at          time.Time
	busy, total uint64
	utilization float64
}

func newCPU(cfg Config) *cpu {
	return &cpu{proc: cfg.Proc, interval: cfg.Interval, once: once{logger: cfg.Logger}}
}

func (*cpu) Describe(chan<- *prometheus.Desc) {}

func (c *cpu) Collect(ch chan<- prometheus.Metric) {
	if u, err := c.measure(time.Now()); err != nil {
		c.once.warn("processor", err)
	} else {
		emit(ch, family{"nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", true, nil}, nil, u)
	}
	total, available, err := memory(filepath.Join(c.proc, "meminfo"))
	if err != nil {
		c.once.warn("memory", err)
		return
	}
	emit(ch, family{"nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", true, nil}, nil, float64(total))
	emit(ch, family{"nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", true, nil}, nil, float64(total-min(available, total)))
}

// measure returns the share of time the processors worked since the last measurement that is at least an
// interval old.
func (c *cpu) measure(now time.Time) (float64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && now.Sub(c.at) < c.interval {
		return c.utilization, nil
	}
	busy, total, err := processorTime(filepath.Join(c.proc, "stat"))
	if err != nil {
		return 0, err
	}
	if d := total - c.total; !c.at.IsZero() && total > c.total && busy >= c.busy {
		c.utilization = float64(busy-c.busy) / float64(d)
	}
	c.at, c.busy, c.total = now, busy, total
	return c.utilization, nil
}

// processorTime reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal …;
// guest time is contained in user time.
func processorTime(path string) (busy, total uint64, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 5 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("%s begins with %q, not with the sum of all processors", path, line)
	}
	for i, text := range f[1:min(len(f), 9)] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
		total += n
		if i != 3 && i != 4 {
			busy += n
		}
	}
	return busy, total, nil
}

func memory(path string) (total, available uint64, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) < 2 || (f[0] != "MemTotal:" && f[0] != "MemAvailable:") {
			continue
		}
		kb, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
		if f[0] == "MemTotal:" {
			total = kb << 10
		} else {
			available = kb << 10
		}
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("%s has no MemTotal", path)
	}
	return total, available, nil
}
