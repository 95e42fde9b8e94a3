package flags

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/v2grpc"
	"github.com/vedette/vedette/infer/v2http"
)

// define names every flag.
func (p *parser) define() {
	p.set.Func(configFile, "YAML `file` of flags by their names; the command line wins", func(string) error { return nil }) // see readFile
	p.defineModels()
	p.defineListeners()
	p.defineWatching()
	p.defineIgnored()
}

func list(to *[]string) func(string) error {
	return func(s string) error {
		*to = append(*to, s)
		return nil
	}
}

func (p *parser) defineModels() {
	f, r := p.set, &p.cfg.Repository
	f.Func("model-repository", "`directory` of models, or the URL of a store: s3://, gs://, azblob://, as:// or oci://; may be given several times", list(&r.Roots))
	f.Func("model-store", "the same, by its old name", list(&r.Roots))
	f.StringVar(&r.StoreCopies, "model-copies", "", "`directory` that keeps the copies of models from stores over restarts; empty: they are temporary")
	f.StringVar(&p.mode, "model-control-mode", "none", "who loads models: none, poll or explicit")
	f.Func("load-model", "`name` to load at start in explicit mode, * is all; may be given several times", list(&r.Startup))
	f.Func("repository-poll-secs", "`seconds` between looks at the directories in poll mode (15)", span(&r.PollInterval, time.Second, 0))
	f.StringVar(&r.ConfigName, "model-config-name", "", "`name` of the configurations under configs/ to use")
	p.bool(&r.Namespaces, "model-namespacing", false, "let several repositories have models of one name")
	p.whole(&r.LoadThreads, "model-load-thread-count", 4, 1, math.MaxInt32, "`models` loaded at once (4)")
	p.whole(&r.LoadRetries, "model-load-retry-count", 0, 0, math.MaxInt32, "`repetitions` of a load that failed (0)")
	p.whole(&r.Cores, "cpu-budget", 0, 0, math.MaxInt32, "`cores` that instances and their threads share; 0: all of this process")
	p.bool(&p.noAutoComplete, "disable-auto-complete-config", false, "take configurations as they are written")
	p.bool(&p.strictConfig, "strict-model-config", false, "the same, by its old name")
	p.bool(&p.exitOnError, "exit-on-error", true, "end when a model does not load at start; false with --private-socket")
	p.bool(&p.strictReadiness, "strict-readiness", true, "ready only when every model is")
	f.Func("exit-timeout-secs", "`seconds` that requests get to end at exit (30)", span(&p.cfg.ExitTimeout, time.Second, 0))
	f.Func("backend-config", "`backend,key=value`, or key=value for every backend; may be given several times", p.backendConfig)
	f.StringVar(&p.cfg.ONNXRuntime, "onnxruntime", "", "`path` of ONNX Runtime's library")
	f.Func("rate-limit", "execution_count or off: whether instances wait for resources", func(s string) error {
		if s != "off" && s != "execution_count" {
			return fmt.Errorf("%q is not off or execution_count", s)
		}
		r.RateLimit = s != "off"
		return nil
	})
	f.Func("rate-limit-resource", "`name:count` of a resource, or name:count:device; may be given several times", p.resource)
	p.whole(&r.CacheBytes, "response-cache-byte-size", 0, 0, math.MaxInt, "`bytes` of the response cache; 0: there is none")
	f.Func("cache-config", "`local,size=bytes` of the response cache", p.cacheConfig)
	f.StringVar(&r.Name, "id", "triton", "`name` of the server in its metadata")
}

// cacheConfig reads the kind of the response cache and one of its settings. There is one kind.
func (p *parser) cacheConfig(s string) error {
	kind, setting, _ := strings.Cut(s, ",")
	if p.cache != "" && kind != p.cache {
		return fmt.Errorf("multiple cache configurations are not supported: %q after one of %q", kind, p.cache)
	}
	p.cache = kind
	text, ok := strings.CutPrefix(setting, "size=")
	n, err := strconv.Atoi(text)
	if kind != "local" || !ok || err != nil || n < 0 {
		return fmt.Errorf("%q is not local,size=bytes", s)
	}
	p.cfg.Repository.CacheBytes = n
	return nil
}

func (p *parser) backendConfig(s string) error {
	var name string // none: of every backend
	setting := s
	if before, after, ok := strings.Cut(s, ","); ok {
		name, setting = before, after
	}
	key, value, ok := strings.Cut(setting, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q is not backend,key=value, nor key=value for every backend", s)
	}
	r := &p.cfg.Repository
	if r.Settings == nil {
		r.Settings = make(map[string]map[string]string)
	}
	if r.Settings[name] == nil {
		r.Settings[name] = make(map[string]string)
	}
	r.Settings[name][key] = value
	return nil
}

// resource reads name:count or name:count:device.
func (p *parser) resource(s string) error {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return fmt.Errorf("%q is not name:count or name:count:device", s)
	}
	r := repository.Resource{Name: parts[0], Device: -1}
	var err error
	if r.Count, err = strconv.Atoi(parts[1]); err != nil || r.Count < 0 {
		return fmt.Errorf("%q: the count is not a number of at least 0", s)
	}
	if len(parts) == 3 {
		if r.Device, err = strconv.Atoi(parts[2]); err != nil || r.Device < 0 {
			return fmt.Errorf("%q: the device is not a number of at least 0", s)
		}
	}
	p.cfg.Repository.Resources = append(p.cfg.Repository.Resources, r)
	return nil
}

func (p *parser) defineListeners() {
	f, c := p.set, &p.cfg
	p.bool(&p.allowHTTP, "allow-http", true, "serve HTTP")
	f.StringVar(&p.httpAddress, "http-address", "0.0.0.0", "`address` of HTTP")
	p.whole(&p.httpPort, "http-port", 8000, 0, math.MaxUint16, "`port` of HTTP (8000)")
	c.HTTPMaxInput = 64 << 20
	f.Func("http-max-input-size", "`bytes` of JSON, of raw requests and of decompressed bodies (67108864)", func(s string) (err error) {
		c.HTTPMaxInput, err = number(s, 1, math.MaxInt64)
		return err
	})
	f.Func("http-header-forward-pattern", "`pattern` of headers that become parameters of requests", pattern(&c.HTTPForwardHeaders, false))
	f.Func("http-restricted-api", "`apis:header=value` that closes groups of calls; may be given several times", func(s string) error {
		apis, header, value, err := p.restriction("api", s)
		c.HTTPRestricted = append(c.HTTPRestricted, v2http.Restriction{APIs: apis, Header: header, Value: value})
		return err
	})
	p.httpTLS.define(p, "http")

	p.bool(&p.allowGRPC, "allow-grpc", true, "serve gRPC")
	f.StringVar(&p.grpcAddress, "grpc-address", "0.0.0.0", "`address` of gRPC")
	p.whole(&p.grpcPort, "grpc-port", 8001, 0, math.MaxUint16, "`port` of gRPC (8001)")
	f.Func("grpc-header-forward-pattern", "`pattern` of headers that become parameters of requests", pattern(&c.GRPCForwardHeaders, true))
	f.Func("grpc-restricted-protocol", "`apis:header=value` that closes groups of calls; may be given several times", func(s string) error {
		apis, header, value, err := p.restriction("protocol", s)
		c.GRPCRestricted = append(c.GRPCRestricted, v2grpc.Restriction{APIs: apis, Header: header, Value: value})
		return err
	})
	f.Func("grpc-infer-response-compression-level", "none, low, medium or high", func(s string) error {
		if !slices.Contains([]string{"none", "low", "medium", "high"}, s) {
			return fmt.Errorf("%q is not none, low, medium or high", s)
		}
		c.GRPCCompress = s != "none"
		return nil
	})
	k := &c.GRPCKeepalive
	f.Func("grpc-keepalive-time", "`ms` between probes of an idle connection (7200000)", span(&k.Time, time.Millisecond, 0))
	f.Func("grpc-keepalive-timeout", "`ms` for a probe's answer (20000)", span(&k.Timeout, time.Millisecond, 0))
	f.Func("grpc-http2-min-recv-ping-interval-without-data", "`ms` between a client's probes (300000)", span(&k.MinRecvPingInterval, time.Millisecond, 0))
	f.Func("grpc-max-connection-age", "`ms` a connection may last", span(&k.MaxConnectionAge, time.Millisecond, 0))
	f.Func("grpc-max-connection-age-grace", "`ms` its calls then get", span(&k.MaxConnectionGrace, time.Millisecond, 0))
	p.bool(&k.PermitWithoutCalls, "grpc-keepalive-permit-without-calls", false, "let clients probe without calls")
	p.grpcTLS.define(p, "grpc")

	p.bool(&p.allowMetrics, "allow-metrics", true, "serve metrics")
	f.StringVar(&p.metricsAddress, "metrics-address", "", "`address` of metrics; that of HTTP unless given")
	p.whole(&p.metricsPort, "metrics-port", 8002, 0, math.MaxUint16, "`port` of metrics (8002)")

	f.StringVar(&c.PrivateSocket, "private-socket", "", "Unix `socket` for the appliance's requests")
	f.StringVar(&c.MemorySocket, "memory-socket", "", "Unix `socket` for the appliance's shared memory")
	f.StringVar(&c.IngestSocket, "ingest-socket", "", "Unix `socket` of the ingest sidecar, for models of the stream backend")
	p.bool(&c.AllowClientMemory, "allow-client-shm", false, "let clients register shared memory")
}

// groups are the groups of calls that can be closed.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var groups = []string{"health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging"}

// restriction reads one restriction of kind "api" (HTTP) or "protocol" (gRPC); a group is closed once.
func (p *parser) restriction(kind, s string) (apis []string, header, value string, err error) {
	names, rest, ok := strings.Cut(s, ":")
	header, value, ok2 := strings.Cut(rest, "=")
	if !ok || !ok2 || header == "" || value == "" {
		return nil, "", "", fmt.Errorf("%q is not api,api:header=value", s)
	}
	for a := range strings.SplitSeq(names, ",") {
		if !slices.Contains(groups, a) {
			return nil, "", "", fmt.Errorf("unknown restricted %s '%s': it must be one of %s", kind, a, strings.Join(groups, ", "))
		}
		if slices.Contains(p.restricted[kind], a) {
			return nil, "", "", fmt.Errorf("%s '%s' can not be specified in multiple config groups", kind, a)
		}
		p.restricted[kind] = append(p.restricted[kind], a)
		apis = append(apis, a)
	}
	return apis, header, value, nil
}

// pattern compiles a pattern for whole names; gRPC's are in lower case.
func pattern(to **regexp.Regexp, lower bool) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		text := `^(?:` + s + `)$`
		if !lower {
			text = `(?i)` + text // HTTP names come in canonical case, whatever the client wrote
		}
		re, err := regexp.Compile(text)
		*to = re
		return err
	}
}

func (p *parser) defineWatching() {
	f, c := p.set, &p.cfg
	p.bool(&p.allowCPU, "allow-cpu-metrics", true, "tell of the processor")
	p.bool(&p.allowGPU, "allow-gpu-metrics", true, "tell of GPUs")
	f.Func("metrics-interval-ms", "`ms` between measurements of the machine (2000)", span(&c.MetricsOptions.Interval, time.Millisecond, 1))
	f.Func("metrics-config", "`key=value`: counter_latencies, histogram_latencies, summary_latencies, summary_quantiles", p.metricsConfig)
	f.Func("trace-config", "`key=value`: level, rate, count, or triton,file= and triton,log-frequency=", p.traceConfig)
	for flag, key := range map[string]string{
		"trace-file": "file", "trace-level": "level", "trace-rate": "rate", "trace-count": "count", "trace-log-frequency": "log-frequency",
	} {
		f.Func(flag, "`value` of trace-config's "+key+", by its old name", func(s string) error { return p.traceConfig(key + "=" + s) })
	}
	p.bool(&p.logInfo, "log-info", true, "log information")
	p.bool(&p.logWarning, "log-warning", true, "log warnings")
	p.bool(&p.logError, "log-error", true, "log errors")
	f.Func("log-verbose", "`level` of details to log, 0 is none", func(s string) error {
		if v, err := parseBool(s); err == nil && s != "1" && s != "0" {
			c.Log.Verbose = map[bool]uint32{true: 1}[v]
			return nil
		}
		n, err := number(s, 0, math.MaxUint32)
		c.Log.Verbose = uint32(n) //nolint:gosec // in its range
		return err
	})
	f.StringVar(&p.logFile, "log-file", "", "`file` to log to instead of standard error")
	f.Func("log-format", "default or ISO8601", func(s string) error {
		if s != "default" && s != "ISO8601" {
			return fmt.Errorf("%q is not default or ISO8601", s)
		}
		c.Log.Format = s
		return nil
	})
}

func (p *parser) metricsConfig(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("%q is not key=value", s)
	}
	if key == "summary_quantiles" {
		q, err := metrics.ParseQuantiles(value)
		p.quantiles = q
		return err
	}
	on, err := parseBool(value)
	switch key {
	case "counter_latencies":
		p.cfg.MetricsOptions.NoLatencies = !on
	case "histogram_latencies":
		p.cfg.MetricsOptions.FirstResponse = on
	case "summary_latencies":
		p.summaries = on
	default:
		return fmt.Errorf("unknown metrics setting %q", key)
	}
	return err
}

// spansConfig reads what --trace-config says of the mode opentelemetry.
func (p *parser) spansConfig(key, value string) error {
	t := &p.spans
	switch key {
	case "url":
		t.URL = value
	case "resource":
		name, is, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("the resource %q is not key=value", value)
		}
		if t.Resource == nil {
			t.Resource = make(map[string]string)
		}
		t.Resource[name] = is
	case "bsp_max_queue_size":
		return whole(&t.MaxQueue, 0, math.MaxInt32)(value)
	case "bsp_max_export_batch_size":
		return whole(&t.MaxBatch, 0, math.MaxInt32)(value)
	case "bsp_schedule_delay":
		return span(&t.Delay, time.Millisecond, 0)(value)
	default:
		return fmt.Errorf("unknown trace setting %q of opentelemetry", key)
	}
	return nil
}

func (p *parser) traceConfig(s string) error {
	t := &p.cfg.Trace
	setting, spans := strings.CutPrefix(s, "opentelemetry,")
	key, value, ok := strings.Cut(strings.TrimPrefix(setting, "triton,"), "=")
	if !ok {
		return fmt.Errorf("%q is not key=value", s)
	}
	if spans {
		return p.spansConfig(key, value)
	}
	var err error
	switch key {
	case "level":
		if value != "OFF" && value != "TIMESTAMPS" && value != "TENSORS" {
			return fmt.Errorf("trace level %q is not OFF, TIMESTAMPS or TENSORS", value)
		}
		if value == "OFF" {
			t.Levels = nil
		} else {
			t.Levels = append(t.Levels, value)
		}
	case "rate":
		err = whole(&t.Rate, 1, math.MaxInt32)(value)
	case "count":
		if err = whole(&t.Count, -1, math.MaxInt32)(value); err == nil && t.Count == 0 {
			err = errors.New("a count of 0 traces nothing: leave the level at OFF, or write -1 for no limit")
		}
	case "log-frequency":
		err = whole(&t.LogFrequency, 0, math.MaxInt32)(value)
	case "file":
		t.File = value
	case "mode":
		if value != "triton" && value != "opentelemetry" {
			return fmt.Errorf("trace mode %q is not triton or opentelemetry", value)
		}
		p.cfg.Spans = nil
		if value == "opentelemetry" {
			p.cfg.Spans = &p.spans
		}
	default:
		return fmt.Errorf("unknown trace setting %q", key)
	}
	return err
}

// defineIgnored takes what tritonserver takes and this server has no use for.
func (p *parser) defineIgnored() {
	for _, name := range []string{
		"http-thread-count", "grpc-infer-thread-count", "grpc-infer-allocation-pool-size", "grpc-max-response-pool-size", "grpc-http2-max-pings-without-data",
		"grpc-http2-max-ping-strikes", "backend-directory", "repoagent-directory", "cache-directory", "host-policy", "pinned-memory-pool-byte-size",
		"cuda-memory-pool-byte-size", "cuda-virtual-address-size", "min-supported-compute-capability", "buffer-manager-thread-count",
		"model-load-gpu-limit", "vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model", "sagemaker-port", "sagemaker-safe-port-range",
		"sagemaker-thread-count",
	} {
		p.set.Func(name, "accepted, without effect here", func(string) error {
			p.ignored = append(p.ignored, name)
			return nil
		})
	}
	for _, name := range []string{"reuse-http-port", "reuse-grpc-port", "enable-peer-access", "allow-vertex-ai", "allow-sagemaker"} {
		p.set.BoolFunc(name, "accepted, without effect here", func(s string) error {
			if on, err := parseBool(s); err != nil || !on {
				return err
			}
			p.ignored = append(p.ignored, name)
			return nil
		})
	}
}
