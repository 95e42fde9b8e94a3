package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
	// Format is tritonserver's default or ISO8601; empty: lines of key=value.
	Format string
	// File is Output's name, told to clients.
	File string
}

// logs is the handler of the server's log, whose settings clients may change.
type logs struct {
	text     slog.Handler // of lines of key=value, while no format is chosen
	attrs    string       // those of With, as they are written
	group    string       // before keys
	settings *logSettings
}

// logSettings are shared by every handler derived from the first.
type logSettings struct {
	mu                   sync.Mutex
	info, warning, fault bool
	verbose              uint32
	format, file         string
	out                  io.Writer // mu is held for a line
}

func newLogs(cfg LogConfig) *logs {
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	s := &logSettings{
		info: !cfg.NoInfo, warning: !cfg.NoWarning, fault: !cfg.NoError, verbose: cfg.Verbose, format: cfg.Format, file: cfg.File,
		out: cfg.Output,
	}
	return &logs{text: slog.NewTextHandler(cfg.Output, &slog.HandlerOptions{Level: slog.Level(math.MinInt)}), settings: s}
}

// Handle implements slog.Handler. The formats default and ISO8601 are tritonserver's, with the attributes behind the
// message.
func (l *logs) Handle(ctx context.Context, r slog.Record) error {
	s := l.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.format == "" {
		return l.text.Handle(ctx, r)
	}
	level := "I"
	switch {
	case r.Level >= slog.LevelError:
		level = "E"
	case r.Level >= slog.LevelWarn:
		level = "W"
	}
	head := level + r.Time.UTC().Format("0102 15:04:05.000000")
	if s.format == "ISO8601" {
		head = r.Time.UTC().Format("2006-01-02T15:04:05Z") + " " + level
	}
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	message := r.Message + l.attrs
	r.Attrs(func(a slog.Attr) bool {
		message += attribute(l.group, a)
		return true
	})
	_, err := fmt.Fprintf(s.out, "%s %d %s:%d] %q\n", head, os.Getpid(), filepath.Base(frame.File), frame.Line, message)
	return err
}

// attribute writes what stands behind a message.
func attribute(group string, a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		var text strings.Builder
		for _, m := range v.Group() {
			text.WriteString(attribute(group+a.Key+".", m))
		}
		return text.String()
	}
	return " " + group + a.Key + "=" + v.String()
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
	with := *l
	with.text = l.text.WithAttrs(attrs)
	for _, a := range attrs {
		with.attrs += attribute(l.group, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (l *logs) WithGroup(name string) slog.Handler {
	with := *l
	with.text, with.group = l.text.WithGroup(name), l.group+name+"."
	return &with
}

// Settings are what the logging extension tells.
func (l *logs) Settings() map[string]any {
	s := l.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	format := s.format
	if format == "" {
		format = "default"
	}
	return map[string]any{
		"log_file": s.file, "log_info": s.info, "log_warning": s.warning, "log_error": s.fault,
		"log_verbose_level": s.verbose, "log_format": format,
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
	want := "a boolean"
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
		want = "an unsigned integer"
		s.verbose, ok = v.(uint32)
	case "log_format":
		want = "a string 'default' or 'ISO8601'"
		s.format, ok = v.(string)
		ok = ok && (s.format == "default" || s.format == "ISO8601")
	default:
		return infer.Errorf(infer.InvalidArgument, "Unrecognized log setting '%s'", key)
	}
	if !ok {
		return infer.Errorf(infer.InvalidArgument, "log setting '%s' takes %s", key, want)
	}
	return nil
}
