package flags_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/server/flags"
)

func none(string) string { return "" }

func TestX9BothWaysToWriteAFlag(t *testing.T) {
	for _, args := range []string{
		"--model-repository=/a --model-repository=/b --http-port=9000 --allow-metrics=false --model-control-mode=explicit --load-model=x --repository-poll-secs=3 --backend-config=onnxruntime,intra=2",
		"--model-repository /a --model-repository /b --http-port 9000 --allow-metrics false --model-control-mode explicit --load-model x --repository-poll-secs 3 --backend-config onnxruntime,intra=2",
		"--model-store /a --model-repository /b --http-port 9000 --allow-metrics OFF --model-control-mode explicit --load-model x --repository-poll-secs 3 --backend-config onnxruntime,intra=2",
	} {
		cfg, _, _, err := flags.Parse(strings.Fields(args), none)
		if err != nil {
			t.Fatal(err)
		}
		r := cfg.Repository
		if strings.Join(r.Roots, ",") != "/a,/b" || cfg.HTTP != "0.0.0.0:9000" || cfg.GRPC != "0.0.0.0:8001" || cfg.Metrics != "" ||
			r.Mode != repository.ModeExplicit || r.Startup[0] != "x" || r.PollInterval != 3*time.Second || r.Settings["onnxruntime"]["intra"] != "2" {
			t.Errorf("%s: got %+v", args, cfg)
		}
	}
}

func TestX9DefaultsAreTritons(t *testing.T) {
	cfg, _, _, err := flags.Parse([]string{"--model-repository", "/a"}, none)
	if err != nil || cfg.Repository.LoadThreads != 4 || !cfg.ExitOnError || cfg.Repository.LooseReadiness || cfg.AllowClientMemory || cfg.HTTPMaxInput != 67108864 ||
		cfg.HTTP != "0.0.0.0:8000" || cfg.Metrics != "0.0.0.0:8002" || cfg.Repository.Mode != repository.ModeNone || cfg.HTTPTLS != nil {
		t.Errorf("got %+v, %v", cfg, err)
	}
	if cfg, _, _, _ = flags.Parse([]string{"--model-repository", "/a", "--private-socket", "/s"}, none); cfg.ExitOnError {
		t.Error("a sidecar of the appliance ends when one model does not load")
	}
}

func TestX9MetricsAreWhereHTTPIs(t *testing.T) {
	for args, want := range map[string]string{
		"--http-address 127.0.0.1":                       "127.0.0.1:8002",
		"--http-address 127.0.0.1 --allow-http=false":    "127.0.0.1:8002",
		"--http-address 127.0.0.1 --metrics-address ::1": "[::1]:8002",
		"--backend-config=default-max-batch-size=8":      "0.0.0.0:8002",
		"--vertex-ai-port 1 --sagemaker-thread-count=8":  "0.0.0.0:8002",
	} {
		cfg, _, _, err := flags.Parse(append([]string{"--model-repository=/a"}, strings.Fields(args)...), none)
		if err != nil || cfg.Metrics != want {
			t.Errorf("%s: metrics at %s, %v; want %s", args, cfg.Metrics, err, want)
		}
	}
}

func TestX9DebugHooksOfTestSuites(t *testing.T) {
	cfg, _, _, err := flags.Parse([]string{"--model-repository", "/a"}, func(name string) string {
		return map[string]string{"TRITONSERVER_DELAY_SCHEDULER": "8", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "2"}[name]
	})
	if err != nil || cfg.Repository.HoldQueued != 8 || cfg.Repository.HoldBacklog != 2 {
		t.Errorf("got %+v, %v", cfg.Repository, err)
	}
}

func TestX9RestrictionsPatternsAndTracing(t *testing.T) {
	cfg, _, ignored, err := flags.Parse(strings.Fields(
		"--model-repository /a --http-restricted-api=inference,health:key=a=b --grpc-restricted-protocol trace:k=v --http-header-forward-pattern=my-.* --log-verbose=1 "+
			"--trace-config level=TIMESTAMPS --trace-config triton,file=/t --trace-config rate=5 --metrics-config histogram_latencies=true --pinned-memory-pool-byte-size 7 --reuse-http-port true",
	), none)
	if err != nil {
		t.Fatal(err)
	}
	if h := cfg.HTTPRestricted[0]; len(h.APIs) != 2 || h.Header != "key" || h.Value != "a=b" || cfg.GRPCRestricted[0].Value != "v" {
		t.Errorf("got %+v", cfg.HTTPRestricted)
	}
	if !cfg.HTTPForwardHeaders.MatchString("My-Header") || cfg.HTTPForwardHeaders.MatchString("Not-My-Header") {
		t.Error("the pattern is not one for whole names")
	}
	if cfg.Trace.Levels[0] != "TIMESTAMPS" || cfg.Trace.File != "/t" || cfg.Trace.Rate != 5 || !cfg.MetricsOptions.FirstResponse || cfg.Log.Verbose != 1 {
		t.Errorf("got %+v", cfg.Trace)
	}
	if strings.Join(ignored, ",") != "pinned-memory-pool-byte-size,reuse-http-port" {
		t.Errorf("got %v", ignored)
	}
}

func TestX9WhatCannotBeFollowedIsRefusedWithTheUsage(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"an unknown flag", "--model-repository /a --nonsense", "nonsense"},
		{"no repository", "--http-port 1", "--model-repository must be given"},
		{"an unknown mode", "--model-repository /a --model-control-mode x", `"x" is not none, poll or explicit`},
		{"a model outside explicit mode", "--model-repository /a --load-model x", "only with --model-control-mode=explicit"},
		{"a port beyond all", "--model-repository /a --grpc-port 70000", "within 0 and 65535"},
		{"a word left over", "--model-repository /a b", `unexpected argument "b"`},
		{"an unknown group", "--model-repository /a --http-restricted-api=x:k=v", "unknown restricted api 'x'"},
		{"an unknown group of gRPC", "--model-repository /a --grpc-restricted-protocol=x:k=v", "unknown restricted protocol 'x'"},
		{"a group closed twice", "--model-repository /a --http-restricted-api=inference,health:k=v --http-restricted-api=health:l=w", "api 'health' can not be specified in multiple config groups"},
		{"two kinds of cache", "--model-repository /a --cache-config=local,size=1 --cache-config=redis,host=x", "multiple cache configurations are not supported"},
		{"a cache there is not", "--model-repository /a --cache-config=redis,host=x", `"redis,host=x" is not local,size=bytes`},
		{"both ways to have a cache", "--model-repository /a --cache-config=local,size=1 --response-cache-byte-size=1", "incompatible flags --response-cache-byte-size and --cache-config"},
		{"a resource without a count", "--model-repository /a --rate-limit-resource=R", `"R" is not name:count or name:count:device`},
		{"a resource of no device", "--model-repository /a --rate-limit-resource=R:1:x", `"R:1:x": the device is not a number of at least 0`},
		{"a trace mode there is not", "--model-repository /a --trace-config mode=x", `trace mode "x" is not triton or opentelemetry`},
		{"an unknown setting of spans", "--model-repository /a --trace-config opentelemetry,x=y", `unknown trace setting "x" of opentelemetry`},
		{"a resource that is none", "--model-repository /a --trace-config opentelemetry,resource=y", `the resource "y" is not key=value`},
		{"an empty repository", "--model-repository=", "--model-repository must be given"},
		{"a number that is none", "--model-repository /a --http-port abc", `invalid value "abc" for flag -http-port: it is not a whole number within 0 and 65535`},
		{"no bytes at all", "--model-repository /a --http-max-input-size 0", "within 1 and"},
		{"nobody who loads", "--model-repository /a --model-load-thread-count=0", "within 1 and"},
		{"less than no cache", "--model-repository /a --response-cache-byte-size -1", "within 0 and"},
		{"time that runs backwards", "--model-repository /a --grpc-keepalive-time -1", "within 0 and"},
		{"polls without a pause", "--model-repository /a --model-control-mode poll --repository-poll-secs 0", "poll mode needs 1 second at least"},
		{"one trace in none", "--model-repository /a --trace-config rate=0", "within 1 and"},
		{"a limit of no traces", "--model-repository /a --trace-config count=0", "a count of 0 traces nothing"},
		{"a level below none", "--model-repository /a --log-verbose -1", "within 0 and"},
		{"a backend without a setting", "--model-repository /a --backend-config=onnxruntime", "is not backend,key=value, nor key=value for every backend"},
		{"TLS without a certificate", "--model-repository /a --http-use-ssl 1", "--http-use-ssl needs --http-server-cert and --http-server-key"},
		{"a certificate that is not there", "--model-repository /a --grpc-use-ssl=true --grpc-server-cert=/none --grpc-server-key=/none", "/none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := flags.Parse(strings.Fields(c.args), none)
			var usage *flags.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || !strings.Contains(usage.Usage, "-model-repository") {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
	if _, _, _, err := flags.Parse([]string{"--help"}, none); !errors.Is(err, flags.ErrHelp) {
		t.Errorf("got %v", err)
	}
}
