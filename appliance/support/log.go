package support

import (
	"bytes"
	"slices"
	"sync"
)

// keptLog is how much of a log is kept in memory: some thousand lines.
const keptLog = 1 << 20

// Log keeps the newest lines written to it. Safe for concurrent use; the zero value is ready.
type Log struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptLog {
		l.text = append(l.text[:0], newest(l.text)...)
	}
	return len(p), nil
}

// Bytes returns the newest lines, oldest first; the caller may change them.
func (l *Log) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(newest(l.text))
}

// newest are the last lines of text, whole ones, within keptLog.
func newest(text []byte) []byte {
	if len(text) <= keptLog {
		return text
	}
	_, lines, _ := bytes.Cut(text[len(text)-keptLog:], []byte("\n"))
	return lines
}
