// Package crash finds out which camera's stream brought the process down, and remembers it for the next one, so that a
// stream that does it again can be given a process of its own.
//
// Every goroutine that works for a camera carries its name as a label, and Go's runtime writes a traceback that shows the
// labels into a file when the process dies of a panic or of a fault in C. Nothing has to be written while all is well.
package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// Setting is what the environment variable GODEBUG must hold for the runtime to show labels.
const Setting = "tracebacklabels=1"

const label = "camera"

// Blame runs f, and every goroutine it starts, on behalf of a camera.
func Blame(ctx context.Context, camera string, f func(context.Context)) {
	pprof.Do(ctx, pprof.Labels(label, camera), f)
}

// Record is what a traceback says.
type Record struct {
	// Camera on whose behalf the goroutine that failed ran; empty: nobody's.
	Camera string
	// Text is what happened, in a few words.
	Text string
}

// Watch reads the traceback that a process before this one left at path, and has the runtime write its own there. It
// returns nil when there is none.
func Watch(path string) (*Record, error) {
	last, err := Read(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("watch for crashes: %w", err)
	}
	defer f.Close() //nolint:errcheck // the runtime has its own descriptor of it
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("watch for crashes: %w", err)
	}
	return last, nil
}

// Read reads the traceback at path; nil when there is none.
func Read(path string) (*Record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(b) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last crash: %w", err)
	}
	r := Parse(b)
	return &r, nil
}

// Parse reads a traceback. What a panic said in its own words is left out: nobody knows what stands in it.
func Parse(traceback []byte) Record {
	r := Record{Text: "the process crashed"}
	for line := range bytes.Lines(traceback) {
		text := strings.TrimPrefix(strings.TrimSpace(string(line)), "[signal ")
		switch {
		case strings.HasPrefix(text, "SIG"), strings.HasPrefix(text, "fatal error: "), strings.HasPrefix(text, "panic: runtime error: "):
			text, _, _ = strings.Cut(text, " code=")
			r.Text = text[:min(len(text), 200)]
		case strings.HasPrefix(text, "panic: "):
			r.Text = "panic"
		case strings.HasPrefix(text, "goroutine "):
			// The first goroutine is the one that failed.
			if _, labels, ok := strings.Cut(text, ` labels:{`); ok {
				r.Camera = value(labels)
			}
			return r
		}
	}
	return r
}

// value finds the camera among labels, written as "key": "value", ….
func value(labels string) string {
	for {
		key, err := strconv.QuotedPrefix(labels)
		if err != nil {
			return ""
		}
		rest, ok := strings.CutPrefix(labels[len(key):], ": ")
		if !ok {
			return ""
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return ""
		}
		if key == strconv.Quote(label) {
			v, err := strconv.Unquote(quoted)
			if err != nil {
				return ""
			}
			return v
		}
		if labels, ok = strings.CutPrefix(rest[len(quoted):], ", "); !ok {
			return ""
		}
	}
}

// Ledger counts crashes by camera, in a file that outlives the process.
type Ledger struct {
	path    string
	entries map[string]Entry
}

// Entry is what is held against a camera.
type Entry struct {
	Count int       `json:"count"`
	Text  string    `json:"text"`
	Last  time.Time `json:"last"`
	// Source tells the stream: another address of the same camera begins anew. Empty: not known yet.
	Source string `json:"source,omitempty"`
}

// OpenLedger reads the ledger at path. One that cannot be read is begun anew, with the error.
func OpenLedger(path string) (*Ledger, error) {
	l := &Ledger{path: path, entries: map[string]Entry{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l.entries)
	}
	if err != nil {
		l.entries = map[string]Entry{}
		return l, fmt.Errorf("read what crashed before: %w", err)
	}
	return l, nil
}

// Add holds a crash against its camera.
func (l *Ledger) Add(r Record, at time.Time) error {
	e := l.entries[r.Camera]
	e.Count, e.Text, e.Last = e.Count+1, r.Text, at
	l.entries[r.Camera] = e
	return l.save()
}

// Entry returns what is held against a camera with this source.
func (l *Ledger) Entry(camera, source string) (Entry, error) {
	e, ok := l.entries[camera]
	if !ok || e.Source == source {
		return e, nil
	}
	if e.Source != "" {
		delete(l.entries, camera)
		return Entry{}, l.save()
	}
	e.Source = source
	l.entries[camera] = e
	return e, l.save()
}

func (l *Ledger) save() error {
	b, err := json.Marshal(l.entries)
	if err == nil {
		// Renamed into place: a crash must not leave half of it.
		if err = os.WriteFile(l.path+".new", b, 0o600); err == nil {
			err = os.Rename(l.path+".new", l.path)
		}
	}
	if err != nil {
		return fmt.Errorf("remember a crash: %w", err)
	}
	return nil
}
