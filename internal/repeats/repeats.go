// Package repeats keeps a log readable when one thing goes wrong over and over: a record that was logged a moment ago is
// counted instead, and the count is told.
package repeats

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// New returns a handler that passes a record on at most once within every; those in between are counted, and the next of
// them that is passed on says so as the attribute repeated. Records are the same when level, message and all attributes
// but times, durations and numbers are. Debug records pass as they are.
func New(next slog.Handler, every time.Duration) slog.Handler {
	return &handler{next: next, all: &counts{every: every, seen: map[string]*count{}}}
}

type handler struct {
	next   slog.Handler
	prefix string // of attributes and groups given beforehand
	all    *counts
}

// counts is shared by all handlers that were made of one.
type counts struct {
	every time.Duration

	mu   sync.Mutex
	seen map[string]*count
}

type count struct {
	passed  time.Time
	skipped int
}

// maxSeen bounds what is remembered.
const maxSeen = 1024

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelDebug {
		return h.next.Handle(ctx, r)
	}
	var b strings.Builder
	b.WriteString(h.prefix + r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		add(&b, a)
		return true
	})
	skipped, pass := h.all.note(b.String(), r.Time)
	if !pass {
		return nil
	}
	if skipped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", skipped))
	}
	return h.next.Handle(ctx, r)
}

// add writes what tells one attribute from another: not the value of what changes all the time.
func add(b *strings.Builder, a slog.Attr) {
	v := a.Value.Resolve()
	b.WriteString(" " + a.Key + "=")
	switch v.Kind() {
	case slog.KindDuration, slog.KindTime, slog.KindFloat64, slog.KindInt64, slog.KindUint64:
	default:
		b.WriteString(v.String())
	}
}

func (c *counts) note(key string, now time.Time) (skipped int, pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.seen[key]
	switch {
	case n == nil:
		if len(c.seen) >= maxSeen {
			clear(c.seen)
		}
		c.seen[key] = &count{passed: now}
		return 0, true
	case now.Sub(n.passed) < c.every && !now.Before(n.passed):
		n.skipped++
		return 0, false
	}
	skipped = n.skipped
	n.passed, n.skipped = now, 0
	return skipped, true
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	b.WriteString(h.prefix)
	for _, a := range attrs {
		add(&b, a)
	}
	return &handler{next: h.next.WithAttrs(attrs), prefix: b.String() + " ", all: h.all}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), prefix: h.prefix + name + ".", all: h.all}
}
