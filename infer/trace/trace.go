// Package trace holds what is to be traced and writes down when the stations of a request were passed.
//
// Settings are the server's or one model's; a model follows the server in whatever it does not set itself.
package trace

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vedette/vedette/infer"
)

// The names of the settings on the wire.
const (
	level        = "trace_level"
	rate         = "trace_rate"
	count        = "trace_count"
	logFrequency = "log_frequency"
	file         = "trace_file"
	mode         = "trace_mode"
)

// Config gives the settings a server starts with; the zero value traces nothing.
type Config struct {
	// Levels are TIMESTAMPS and TENSORS; none is OFF.
	Levels []string
	// Rate traces one request in so many; 0: 1000.
	Rate int
	// Count is how many traces may still be made; 0: no limit.
	Count int
	// LogFrequency starts a new file after so many traces, with a number behind its name; 0: one file.
	LogFrequency int
	// File is where traces go; empty: nowhere.
	File string
	// Spans gets the traces in place of files; nil: files do.
	Spans *Spans
	// Known tells whether a model exists; nil knows every name.
	Known func(model string) bool
	// Failed is told what could not be written; nil: nobody.
	Failed func(error)
}

// Settings are the trace settings of a server. Safe for concurrent use.
type Settings struct {
	known  func(string) bool
	failed func(error)
	spans  *Spans

	on       atomic.Bool // somebody's level is not OFF
	ids      atomic.Uint64
	live     sync.Map // of the requests being traced, by the maps of their parameters
	underWay atomic.Int64

	files sync.Mutex
	open  map[string]*written // by the files' names

	initial values // the server's when it started

	mu     sync.Mutex
	server values
	models map[string]values // only what a model sets itself
	traced map[string]*sampling
}

// values are settings as the wire writes them.
type values map[string][]string

// New makes settings.
func New(cfg Config) *Settings {
	number := func(n, zero int) []string {
		if n == 0 {
			n = zero
		}
		return []string{strconv.Itoa(n)}
	}
	levels := slices.Clone(cfg.Levels)
	if len(levels) == 0 {
		levels = []string{"OFF"}
	}
	s := &Settings{
		known: cfg.Known, failed: cfg.Failed, spans: cfg.Spans, open: make(map[string]*written),
		server: values{
			level: levels, rate: number(cfg.Rate, 1000), count: number(cfg.Count, -1),
			logFrequency: number(cfg.LogFrequency, 0), file: {cfg.File}, mode: {"triton"},
		},
		models: make(map[string]values),
		traced: make(map[string]*sampling),
	}
	if s.spans != nil {
		s.server[mode] = []string{"opentelemetry"}
	}
	s.initial = maps.Clone(s.server)
	s.switchLocked()
	return s
}

// switchLocked notes whether anything at all is to be traced.
func (s *Settings) switchLocked() {
	on := func(v values) bool { return len(v[level]) > 0 && v[level][0] != "OFF" }
	traced := on(s.server)
	for _, v := range s.models {
		traced = traced || on(v)
	}
	s.on.Store(traced)
}

// Get returns the settings in force for a model, or the server's when model is empty.
func (s *Settings) Get(model string) (map[string][]string, error) {
	if err := s.check(model); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effectiveLocked(model), nil
}

// Update changes settings of a model, or of the server when model is empty, and returns what is then in
// force. A setting without a value follows the server again, or what the server started with. All of it is applied or
// nothing.
func (s *Settings) Update(model string, changes map[string][]string) (map[string][]string, error) {
	if err := s.check(model); err != nil {
		return nil, err
	}
	for name, v := range changes {
		if err := checkValue(name, v); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.server
	if model != "" {
		if s.models[model] == nil {
			s.models[model] = make(values)
		}
		target = s.models[model]
	}
	for name, v := range changes {
		switch {
		case len(v) > 0:
			target[name] = slices.Clone(v)
		case model != "":
			delete(target, name)
		default:
			target[name] = s.initial[name]
		}
	}
	if len(changes) > 0 {
		if model == "" {
			clear(s.traced)
		}
		delete(s.traced, model) // counting begins anew
		s.switchLocked()
	}
	return s.effectiveLocked(model), nil
}

func (s *Settings) check(model string) error {
	if model != "" && s.known != nil && !s.known(model) {
		return infer.Errorf(infer.NotFound, "Request for unknown model : %s", model)
	}
	return nil
}

// effectiveLocked returns what is in force: trace_count tells how many traces may still be made.
func (s *Settings) effectiveLocked(model string) values {
	v := maps.Clone(s.server)
	maps.Copy(v, s.models[model])
	if t := s.traced[s.counterLocked(model)]; t != nil && t.left >= 0 {
		v[count] = []string{strconv.Itoa(t.left)}
	}
	return v
}

// counterLocked names whose requests are counted with those of a model: its own where it sets something itself, and else
// those of all the models that follow the server.
func (s *Settings) counterLocked(model string) string {
	if len(s.models[model]) == 0 {
		return ""
	}
	return model
}

func checkValue(name string, v []string) error {
	bad := func(format string, args ...any) error { return infer.Errorf(infer.InvalidArgument, format, args...) }
	switch name {
	case file:
		return infer.Errorf(infer.Unsupported, "trace file location can not be updated through network protocol")
	case level:
		for _, l := range v {
			switch l {
			case "OFF":
				if len(v) > 1 {
					return bad("Expect only one trace level 'OFF' is specified")
				}
			case "TIMESTAMPS", "TENSORS":
			default:
				return bad("trace level '%s' is not OFF, TIMESTAMPS or TENSORS", l)
			}
		}
	case rate, count, logFrequency:
		if len(v) > 1 {
			return bad("Expect only one value for '%s', got %d", name, len(v))
		}
		lowest := map[string]int{rate: 1, count: -1, logFrequency: 0}[name]
		for _, n := range v {
			i, err := strconv.Atoi(n)
			switch {
			case errors.Is(err, strconv.ErrSyntax):
				return bad("Unable to parse '%s', got: %s", name, n)
			case name == count && i < lowest:
				return bad("Unable to parse '%s'. Expecting value >= %d, got:%s", name, lowest, n)
			case err != nil || i < lowest || i > math.MaxInt32:
				return bad("Unable to parse '%s', value is out of range [ %d, %d ], got: %s", name, lowest, math.MaxInt32, n)
			}
		}
	case mode:
		return infer.Errorf(infer.Unsupported, "trace mode can not be updated through network protocol")
	default:
		return bad("Unrecognized trace setting '%s'", name)
	}
	return nil
}

// sampling decides which requests are traced.
type sampling struct {
	seen uint64
	left int // traces that may still be made; negative: no limit
}

// Sample tells whether the next request of a model is to be traced, and with which levels.
func (s *Settings) Sample(model string) (timestamps, tensors bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, counter := s.server, s.counterLocked(model)
	if counter != "" {
		v = s.effectiveLocked(model)
	}
	timestamps, tensors = slices.Contains(v[level], "TIMESTAMPS"), slices.Contains(v[level], "TENSORS")
	if !timestamps && !tensors {
		return false, false
	}
	t := s.traced[counter]
	if t == nil {
		most, _ := strconv.Atoi(v[count][0])
		t = &sampling{left: most}
		s.traced[counter] = t
	}
	every, _ := strconv.ParseUint(v[rate][0], 10, 64)
	t.seen++
	if t.left == 0 || t.seen%max(every, 1) != 0 {
		return false, false
	}
	if t.left > 0 {
		t.left--
	}
	return timestamps, tensors
}
