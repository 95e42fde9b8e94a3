package perf

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/v2client"
)

// steps are the measurements to make: every load, at one server and then at the other.
func (c *Command) steps() ([]Config, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	loads, given := []float64{1}, 0
	for _, text := range []string{c.Concurrency, c.Periodic, c.Rate, c.Intervals} {
		if text != "" {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("--concurrency-range, --periodic-concurrency-range, --request-rate-range and --request-intervals: only one of them makes sense")
	}
	text := c.Concurrency + c.Periodic + c.Rate
	end := append(strings.Split(text, ":"), "")[1]
	n, err := strconv.ParseFloat(end, 64)
	endless := err == nil && n == 0
	switch {
	case c.Search && (c.Limit <= 0 || c.Concurrency+c.Rate == "" || endless || c.Beside != ""):
		return nil, errors.New("--binary-search needs --latency-threshold, a range of concurrency or rate with an end, and one server")
	case endless && (c.Limit <= 0 || c.Periodic != ""):
		return nil, fmt.Errorf("%q has no end: --latency-threshold has to give one to a range of concurrency or rate", text)
	case text != "":
		if loads, err = span(text, c.Rate == ""); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Periodic != "":
		_, to, by, err := bounds(text, true)
		if err != nil {
			return nil, err
		}
		base.GrowTo, base.GrowBy, base.GrowEvery = int(to), int(by), int(c.Period)
		loads = loads[:1]
	case c.Intervals != "":
		if base.Intervals, err = readIntervals(c.Intervals); err != nil {
			return nil, err
		}
	}
	var out []Config
	for _, load := range loads {
		cfg := base
		if c.Rate != "" {
			cfg.Rate = load
		} else {
			cfg.Concurrency = int(load)
		}
		cfg.GRPC, cfg.HTTP = c.addresses(c.URL, c.HTTP)
		out = append(out, cfg)
		if c.Beside != "" {
			cfg.GRPC, cfg.HTTP = c.addresses(c.Beside, c.BesideHTTP)
			out = append(out, cfg)
		}
	}
	return out, nil
}

// addresses sorts out which protocol an address is for.
func (c *Command) addresses(url, other string) (grpcAddress, httpAddress string) {
	if !strings.EqualFold(c.Protocol, "http") {
		return cmp.Or(url, "127.0.0.1:8001"), other
	}
	return "", cmp.Or(other, url, "127.0.0.1:8000")
}

// base is what all measurements have in common.
func (c *Command) base() (Config, error) {
	cfg := Config{
		Model: c.Model, Version: c.Version, Compress: c.Compression == "gzip", Poisson: c.Poisson || c.Distribution == "poisson", Batch: int(c.Batch),
		Random: c.Random, Text: c.Text, TextLength: int(c.TextLength), Streaming: c.Stream, SharedMemory: c.Memory == "system", OutputSize: int(c.OutputSize),
		JSONInputs: c.InputForm == "json", JSONOutputs: c.OutputForm == "json", Called: c.Called,
		SequenceLength: int(c.Sequence), SequenceSpread: c.Variation / 100, Sequences: int(c.Sequences), Window: time.Duration(c.Interval),
		Requests: int(c.Requests), Warmup: int(c.Warmup), Percentile: max(c.Percentile, 0), Stability: c.Stability / 100, MaxWindows: int(c.Trials),
		Keep: c.Export != "", MetricsInterval: time.Duration(c.MetricsInterval), strict: true,
	}
	switch { // NaN is none of them
	case !(c.Variation >= 0 && c.Variation <= 100):
		return cfg, fmt.Errorf("--sequence-length-variation %v is not from 0 to 100", c.Variation)
	case !(c.Stability >= 0 && c.Stability <= 100):
		return cfg, fmt.Errorf("--stability-percentage %v is not from 0 to 100", c.Stability)
	case !(c.Limit >= 0):
		return cfg, fmt.Errorf("--latency-threshold %v is below 0", c.Limit)
	case c.Percentile < -1:
		return cfg, fmt.Errorf("--percentile %d is not within 1 and 99, nor -1 for the mean", c.Percentile)
	}
	if c.Variation == 0 {
		cfg.SequenceSpread = -1
	}
	if c.Mode == "count_windows" {
		cfg.WindowRequests = int(c.WindowRequests)
	}
	if c.Collect {
		cfg.Metrics = c.MetricsURL
	}
	if c.Memory == "cuda" {
		return cfg, errors.New("--shared-memory cuda: the memory of GPUs cannot be shared from here; --shared-memory system can")
	}
	cfg.Trace = c.trace()
	var err error
	from := slices.Clone(c.Input)
	if c.Folder != "" {
		from = append(from, c.Folder)
	}
	if err := cfg.Send(from); err != nil {
		return cfg, err
	}
	if cfg.Shapes, err = ParseShapes(c.Shape); err != nil {
		return cfg, err
	}
	if cfg.Values, err = ParseValues(c.Value); err != nil {
		return cfg, err
	}
	if cfg.Parameters, err = parseParameters(c.Parameter); err != nil {
		return cfg, err
	}
	if cfg.FirstID, cfg.LastID, err = parseIDs(c.IDs); err != nil {
		return cfg, err
	}
	cfg.Client, err = c.client()
	return cfg, err
}

// Send has the measurement send what --input-data names: zero, random, files of requests or a folder.
func (c *Config) Send(inputs []string) error {
	for _, from := range inputs {
		switch from {
		case "zero":
		case "random":
			c.Random = true
		default:
			data, err := readData(from)
			if err != nil {
				return err
			}
			if c.Data == nil {
				c.Data = data
			} else if err := c.Data.add(data); err != nil {
				return fmt.Errorf("--input-data %s: %w", from, err)
			}
		}
	}
	return nil
}

// trace is what is asked of the server's tracing.
func (c *Command) trace() map[string][]string {
	out := make(map[string][]string)
	if len(c.TraceLevel) > 0 {
		out["trace_level"] = c.TraceLevel
	}
	for name, v := range map[string]string{"trace_rate": c.TraceRate, "trace_count": c.TraceCount, "log_frequency": c.TraceFrequency, "trace_file": c.TraceFile} {
		if v != "" {
			out[name] = []string{v}
		}
	}
	return out
}

// client is how to talk to the servers.
func (c *Command) client() (v2client.Config, error) {
	cfg := v2client.Config{}
	for _, text := range c.Header {
		key, value, ok := strings.Cut(text, ":")
		if !ok || key == "" {
			return cfg, fmt.Errorf("-H %q is not KEY:VALUE", text)
		}
		if cfg.Headers == nil {
			cfg.Headers = make(map[string]string)
		}
		cfg.Headers[key] = strings.TrimSpace(value)
	}
	if !c.TLS && c.CA == "" && c.Cert == "" && c.Key == "" && c.VerifyPeer != "0" && c.VerifyHost != "0" {
		return cfg, nil
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.VerifyPeer == "0" || c.VerifyHost == "0"} //nolint:gosec // asked for
	if c.VerifyPeer != "0" && c.VerifyHost == "0" {                                                                     // whoever signed it counts all the same
		cfg.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: cfg.TLS.RootCAs, Intermediates: x509.NewCertPool()}
			for _, c := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return cfg, fmt.Errorf("certificates to trust: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return cfg, fmt.Errorf("certificates to trust: %s has none", c.CA)
		}
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return cfg, fmt.Errorf("the client's certificate: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
