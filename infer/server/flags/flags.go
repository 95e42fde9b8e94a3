// Package flags reads the command line of the inference sidecar, which is tritonserver's with some flags more.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vedette/vedette/infer/metrics"
	"github.com/vedette/vedette/infer/repository"
	"github.com/vedette/vedette/infer/server"
	"github.com/vedette/vedette/infer/trace"
)

// ErrHelp says that the usage was asked for.
var ErrHelp = flag.ErrHelp

// UsageError is a command line that cannot be followed.
type UsageError struct {
	Fault error
	Usage string
}

// Error tells the fault; the usage is printed by whoever wants it.
func (e *UsageError) Error() string { return e.Fault.Error() }

// Unwrap returns the fault.
func (e *UsageError) Unwrap() error { return e.Fault }

// parser collects the flags before they become a configuration.
type parser struct {
	set *flag.FlagSet
	cfg server.Config

	httpAddress, grpcAddress, metricsAddress string
	httpPort, grpcPort, metricsPort          int
	allowHTTP, allowGRPC, allowMetrics       bool
	allowCPU, allowGPU                       bool
	mode                                     string
	exitOnError, strictReadiness             bool
	strictConfig, noAutoComplete             bool
	logInfo, logWarning, logError            bool
	logFile, cache                           string
	httpTLS, grpcTLS                         tlsFlags
	summaries                                bool
	spans                                    trace.SpansConfig
	quantiles                                metrics.Quantiles
	ignored                                  []string
	restricted                               map[string][]string // groups of calls that are closed, by kind of restriction
}

// Parse reads arguments written as --flag=value or --flag value. Env looks up environment variables (the debug
// hooks of test suites). Besides the configuration it returns the name of the log file, which the caller
// opens, and the flags that have no effect here. A fault is a *UsageError; ErrHelp means that usage was wanted.
func Parse(args []string, env func(string) string) (cfg server.Config, logFile string, ignored []string, err error) {
	p := &parser{set: flag.NewFlagSet("vedette-infer", flag.ContinueOnError), restricted: make(map[string][]string)}
	p.set.SetOutput(io.Discard)
	p.define()
	var usage strings.Builder
	p.set.SetOutput(&usage)
	p.set.PrintDefaults()
	p.set.SetOutput(io.Discard)
	text := "Usage: vedette-infer --model-repository DIR [flags]\n\n" + usage.String()
	fail := func(err error) (server.Config, string, []string, error) {
		if errors.Is(err, flag.ErrHelp) {
			return server.Config{}, "", nil, &UsageError{ErrHelp, text}
		}
		return server.Config{}, "", nil, &UsageError{err, text}
	}
	if err := p.readFile(args); err != nil {
		return fail(err)
	}
	if err := p.set.Parse(joinBooleans(p.set, args)); err != nil {
		return fail(err)
	}
	if p.set.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q", p.set.Arg(0)))
	}
	if err := p.finish(env); err != nil {
		return fail(err)
	}
	return p.cfg, p.logFile, p.ignored, nil
}

// joinBooleans writes "--flag true" as "--flag=true", which tritonserver takes and package flag does not.
func joinBooleans(set *flag.FlagSet, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		out = append(out, a)
		if a == "--" {
			return append(out, args[i+1:]...)
		}
		name := strings.TrimLeft(a, "-")
		f := set.Lookup(name)
		if f == nil || !strings.HasPrefix(a, "-") {
			continue
		}
		b, ok := f.Value.(interface{ IsBoolFlag() bool })
		boolean := ok && b.IsBoolFlag()
		switch {
		case i+1 == len(args):
		case boolean && isBool(args[i+1]):
			out[len(out)-1] = a + "=" + args[i+1]
			i++
		case !boolean:
			out = append(out, args[i+1])
			i++
		}
	}
	return out
}

func isBool(s string) bool {
	_, err := parseBool(s)
	return err == nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "on":
		return true, nil
	case "false", "0", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

// boolean is a flag that understands what tritonserver does.
type boolean bool

func (b *boolean) String() string {
	if b == nil {
		return "false"
	}
	return strconv.FormatBool(bool(*b))
}

func (b *boolean) Set(s string) error {
	v, err := parseBool(s)
	*b = boolean(v)
	return err
}

func (*boolean) IsBoolFlag() bool { return true }

func (p *parser) bool(at *bool, name string, def bool, help string) {
	*at = def
	p.set.Var((*boolean)(at), name, help)
}

// finish turns what was read into a configuration.
func (p *parser) finish(env func(string) string) error {
	c := &p.cfg
	if len(c.Repository.Roots) == 0 {
		return errors.New("--model-repository must be given: the directory that holds a directory for each model")
	}
	c.Repository.Mode = repository.Mode(p.mode)
	if !slices.Contains([]repository.Mode{repository.ModeNone, repository.ModePoll, repository.ModeExplicit}, c.Repository.Mode) {
		return fmt.Errorf("--model-control-mode %q is not none, poll or explicit", p.mode)
	}
	if len(c.Repository.Startup) > 0 && c.Repository.Mode != repository.ModeExplicit {
		return errors.New("--load-model works only with --model-control-mode=explicit")
	}
	if p.cache != "" && p.given("response-cache-byte-size") {
		return errors.New("incompatible flags --response-cache-byte-size and --cache-config: give one of them")
	}
	c.Repository.LooseReadiness = !p.strictReadiness
	c.Repository.NoAutoComplete = p.noAutoComplete || p.strictConfig
	c.ExitOnError = p.exitOnError
	if c.PrivateSocket != "" && !p.given("exit-on-error") {
		c.ExitOnError = false // the appliance wants what can live to live
	}
	for _, a := range []struct {
		allow   bool
		to      *string
		address string
		port    int
		name    string
	}{
		{p.allowHTTP, &c.HTTP, p.httpAddress, p.httpPort, "http"},
		{p.allowGRPC, &c.GRPC, p.grpcAddress, p.grpcPort, "grpc"},
		{p.allowMetrics, &c.Metrics, p.metricsAddress, p.metricsPort, "metrics"},
	} {
		if a.port < 0 || a.port > 65535 {
			return fmt.Errorf("--%s-port %d is not within 0 and 65535", a.name, a.port)
		}
		if a.allow {
			*a.to = net.JoinHostPort(a.address, strconv.Itoa(a.port))
		}
	}
	if p.summaries {
		if p.quantiles == nil {
			p.quantiles = metrics.DefaultQuantiles()
		}
		c.Repository.Summaries = p.quantiles.Summaries
	}
	c.MetricsOptions.NoCPU, c.MetricsOptions.NoGPU = !p.allowCPU, !p.allowGPU
	c.Log.NoInfo, c.Log.NoWarning, c.Log.NoError, c.Log.File = !p.logInfo, !p.logWarning, !p.logError, p.logFile
	for name, to := range map[string]*int{"TRITONSERVER_DELAY_SCHEDULER": &c.Repository.HoldQueued, "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": &c.Repository.HoldBacklog} {
		text := env(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%s=%q is not a number", name, text)
		}
		*to = n
	}
	var err error
	if c.HTTPTLS, err = p.httpTLS.config("http"); err != nil {
		return err
	}
	c.GRPCTLS, err = p.grpcTLS.config("grpc")
	return err
}

func (p *parser) given(name string) bool {
	found := false
	p.set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func milliseconds(to *time.Duration) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		*to = time.Duration(n) * time.Millisecond
		return err
	}
}

func seconds(to *time.Duration) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if n < 0 {
			return fmt.Errorf("%d is negative", n)
		}
		*to = time.Duration(n) * time.Second
		return err
	}
}
