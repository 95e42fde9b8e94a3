// Package flags reads the command line of the inference sidecar, which is tritonserver's with some flags more.
package flags

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
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
	if len(c.Repository.Roots) == 0 || slices.Contains(c.Repository.Roots, "") {
		return errors.New("--model-repository must be given: the directory that holds a directory for each model")
	}
	c.Repository.Mode = repository.Mode(p.mode)
	if !slices.Contains([]repository.Mode{repository.ModeNone, repository.ModePoll, repository.ModeExplicit}, c.Repository.Mode) {
		return fmt.Errorf("--model-control-mode %q is not none, poll or explicit", p.mode)
	}
	if c.Repository.Mode == repository.ModePoll && p.given("repository-poll-secs") && c.Repository.PollInterval == 0 {
		return errors.New("--repository-poll-secs 0: poll mode needs 1 second at least")
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
	}{
		{p.allowHTTP, &c.HTTP, p.httpAddress, p.httpPort},
		{p.allowGRPC, &c.GRPC, p.grpcAddress, p.grpcPort},
		{p.allowMetrics, &c.Metrics, cmp.Or(p.metricsAddress, p.httpAddress), p.metricsPort},
	} {
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

// whole defines a flag that is a whole number within bounds; the help says its default.
func (p *parser) whole(at *int, name string, def, least, most int, help string) {
	*at = def
	p.set.Func(name, help, whole(at, least, most))
}

func whole(to *int, least, most int) func(string) error {
	return func(s string) error {
		n, err := number(s, int64(least), int64(most))
		if err == nil {
			*to = int(n)
		}
		return err
	}
}

// span reads how long something takes, in a unit and at least so many of it.
func span(to *time.Duration, unit time.Duration, least int64) func(string) error {
	return func(s string) error {
		n, err := number(s, least, math.MaxInt32)
		*to = time.Duration(n) * unit
		return err
	}
}

func number(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("it is not a whole number within %d and %d", least, most)
	}
	return n, nil
}
