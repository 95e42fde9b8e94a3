package server

import (
	"context"
	"io"
	"log/slog"
	"math"
	"sync"

	"github.com/vedette/vedette/infer"
)

// LogConfig says what is logged and where.
type LogConfig struct {
	// Output gets the log; nil: nobody does.
	Output io.Writer
	// CloseOutput closes it when the server has ended.
	CloseOutput bool
	// NoInfo, NoWarning and NoError leave those out.
	NoInfo, NoWarning, NoError bool
	// Verbose above 0 logs what is of interest to developers.
	Verbose uint32
	// Format is default or ISO8601; empty: default.
	Format string
	// File is Output's name, told to clients.
	File string
}

// logs is the handler of the server's log, whose settings clients may change.
type logs struct {
	slog.Handler

	settings *logSettings
}

// logSettings are shared by every handler derived from the first.
type logSettings struct {
	mu                   sync.Mutex
	info, warning, fault bool
	verbose              uint32
	format, file         string
}

func newLogs(cfg LogConfig) *logs {
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	if cfg.Format == "" {
		cfg.Format = "default"
	}
	s := &logSettings{
		info: !cfg.NoInfo, warning: !cfg.NoWarning, fault: !cfg.NoError, verbose: cfg.Verbose, format: cfg.Format, file: cfg.File,
	}
	return &logs{
		Handler:  slog.NewTextHandler(cfg.Output, &slog.HandlerOptions{Level: slog.Level(math.MinInt), ReplaceAttr: s.attribute}),
		settings: s,
	}
}

// attribute writes the time of a line as the format says: ISO8601 is in UTC and to the second, as clients of the
// logging extension expect it.
func (s *logSettings) attribute(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || a.Key != slog.TimeKey || a.Value.Kind() != slog.KindTime {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.format == "ISO8601" {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05Z"))
	}
	return a
}

// Enabled implements slog.Handler.
func (l *logs) Enabled(_ context.Context, level slog.Level) bool {
	s := l.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case level >= slog.LevelError:
		return s.fault
	case level >= slog.LevelWarn:
		return s.warning
	case level >= slog.LevelInfo:
		return s.info
	}
	return s.verbose > 0
}

// WithAttrs implements slog.Handler.
func (l *logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logs{Handler: l.Handler.WithAttrs(attrs), settings: l.settings}
}

// WithGroup implements slog.Handler.
func (l *logs) WithGroup(name string) slog.Handler {
	return &logs{Handler: l.Handler.WithGroup(name), settings: l.settings}
}

// Settings are what the logging extension tells.
func (l *logs) Settings() map[string]any {
	s := l.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{
		"log_file": s.file, "log_info": s.info, "log_warning": s.warning, "log_error": s.fault,
		"log_verbose_level": s.verbose, "log_format": s.format,
	}
}

// Update changes settings: all of them, or none and an error.
func (l *logs) Update(changes map[string]any) error {
	s := l.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	next := logSettings{info: s.info, warning: s.warning, fault: s.fault, verbose: s.verbose, format: s.format}
	for key, v := range changes {
		if err := next.set(key, v); err != nil {
			return err
		}
	}
	s.info, s.warning, s.fault, s.verbose, s.format = next.info, next.warning, next.fault, next.verbose, next.format
	return nil
}

func (s *logSettings) set(key string, v any) error {
	ok := false
	want := "boolean"
	switch key {
	case "log_file":
		return infer.Errorf(infer.Unsupported, "log file location can not be updated through network protocol")
	case "log_info":
		s.info, ok = v.(bool)
	case "log_warning":
		s.warning, ok = v.(bool)
	case "log_error":
		s.fault, ok = v.(bool)
	case "log_verbose_level":
		want = "unsigned integer"
		s.verbose, ok = v.(uint32)
	case "log_format":
		want = "string 'default' or 'ISO8601'"
		s.format, ok = v.(string)
		ok = ok && (s.format == "default" || s.format == "ISO8601")
	default:
		return infer.Errorf(infer.InvalidArgument, "Unrecognized log setting '%s'", key)
	}
	if !ok {
		return infer.Errorf(infer.InvalidArgument, "log setting '%s' takes a %s", key, want)
	}
	return nil
}
