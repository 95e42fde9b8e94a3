package perf

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// gauges are the families whose means are told.
func gauges() []string {
	return []string{
		"nv_cpu_utilization", "nv_cpu_memory_used_bytes", "nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes", "nv_gpu_power_usage",
		"process_resident_memory_bytes",
	}
}

// maxMetrics bounds what a server tells of itself.
const maxMetrics = 16 << 20

// ReadMetrics asks a server's metrics, at host:port or an address, for these families: their values by series.
func ReadMetrics(ctx context.Context, address string, families ...string) (map[string]float64, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	if scheme, rest, _ := strings.Cut(address, "://"); !strings.Contains(rest, "/") {
		address = scheme + "://" + rest + "/metrics"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, resp.Status)
	}
	out := make(map[string]float64)
	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxMetrics))
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || lines.Text()[0] == '#' {
			continue
		}
		series := lines.Text()[:at]
		family, _, _ := strings.Cut(series, "{")
		if !slices.Contains(families, family) {
			continue
		}
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil {
			out[series] = v
		}
	}
	return out, lines.Err()
}

// watchMetrics looks at the server's metrics until the function it returns is called, which returns their means.
func watchMetrics(ctx context.Context, cfg *Config) (means func() map[string]float64, err error) {
	if cfg.Metrics == "" {
		return func() map[string]float64 { return nil }, nil
	}
	sums, times := make(map[string]float64), make(map[string]float64)
	look := func(ctx context.Context) error {
		now, err := ReadMetrics(ctx, cfg.Metrics, gauges()...)
		for series, v := range now {
			sums[series] += v
			times[series]++
		}
		return err
	}
	if err := look(ctx); err != nil {
		return nil, fmt.Errorf("read the server's metrics: %w", err)
	}
	clear(sums) // nothing is measured yet
	clear(times)
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(cfg.MetricsInterval)
		defer tick.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-tick.C:
				_ = look(watching) // a missed look is one less in the mean
			}
		}
	})
	return func() map[string]float64 {
		stop()
		wg.Wait()
		_ = look(ctx)
		out := maps.Clone(sums)
		for series := range out {
			out[series] /= times[series]
		}
		return out
	}, nil
}
