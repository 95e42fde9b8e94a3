package catalogue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Puller fetches models. The zero value works.
type Puller struct {
	// Client asks; nil: one that follows the environment's proxies.
	Client *http.Client
	// Stall is how long nothing may come before the connection is given up; 0: 30 s.
	Stall time.Duration
	// Pause is the first pause before another attempt, which doubles up to a minute; 0: 1 s.
	Pause time.Duration
	// Attempts is how often in a row an attempt may bring nothing new; 0: 5.
	Attempts int
	// Progress is told how much of the file is there; nil: nobody.
	Progress func(done, total int64)
}

// errFinal marks failures that another attempt does not mend.
var errFinal = errors.New("cannot be had")

// Pull fetches a model into a folder and returns its path. The file is there whole and verified or not at all; what an
// interrupted pull brought is gone on with by the next. A model that is there already is verified and not fetched.
func (p Puller) Pull(ctx context.Context, m Model, dir string) (string, error) {
	p.defaults()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the folder of downloads: %w", err)
	}
	path := filepath.Join(dir, m.Name+"-"+m.SHA256[:12]+".onnx")
	if verify(path, m) == nil {
		p.Progress(m.Bytes, m.Bytes)
		return path, nil
	}
	part := path + ".part"
	if err := p.fetch(ctx, m, part); err != nil {
		return "", err
	}
	if err := verify(part, m); err != nil {
		// What an earlier pull left may have been wrong: once from the start, then it is the server.
		if err := os.Remove(part); err != nil {
			return "", fmt.Errorf("fetch %s: %w", m.Name, err)
		}
		if err := p.fetch(ctx, m, part); err != nil {
			return "", err
		}
		if err := verify(part, m); err != nil {
			_ = os.Remove(part)
			return "", fmt.Errorf("fetch %s: %s has another file than the catalogue means: %w (nothing was installed)", m.Name, m.URL, err)
		}
	}
	if err := os.Rename(part, path); err != nil {
		return "", fmt.Errorf("fetch %s: %w", m.Name, err)
	}
	return path, nil
}

func (p *Puller) defaults() {
	if p.Client == nil {
		p.Client = http.DefaultClient
	}
	if p.Stall == 0 {
		p.Stall = 30 * time.Second
	}
	if p.Pause == 0 {
		p.Pause = time.Second
	}
	if p.Attempts == 0 {
		p.Attempts = 5
	}
	if p.Progress == nil {
		p.Progress = func(int64, int64) {}
	}
}

// verify tells whether a file is the model, byte for byte.
func verify(path string, m Model) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != m.Bytes || !strings.EqualFold(sum, m.SHA256) {
		return fmt.Errorf("%d bytes with SHA-256 %s, not %d with %s", n, sum, m.Bytes, strings.ToLower(m.SHA256))
	}
	return nil
}

// fetch brings the part file to its full size, however many attempts that takes as long as they bring something.
func (p *Puller) fetch(ctx context.Context, m Model, part string) error {
	pause, idle := p.Pause, 0
	for {
		had := size(part)
		err := p.attempt(ctx, m, part)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("fetch %s: %w (what has come is kept: pull again to go on)", m.Name, context.Cause(ctx))
		}
		if size(part) > had {
			pause, idle = p.Pause, 0
		} else if idle++; idle >= p.Attempts || errors.Is(err, errFinal) {
			return fmt.Errorf("fetch %s from %s: %w", m.Name, m.URL, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Minute)
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// attempt asks for what is missing and appends it.
func (p *Puller) attempt(ctx context.Context, m Model, part string) (err error) {
	have := size(part)
	if have > m.Bytes {
		if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(errFinal, err)
		}
		have = 0
	}
	if have == m.Bytes {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stalled := time.AfterFunc(p.Stall, func() { stop(fmt.Errorf("nothing came for %v", p.Stall)) })
	defer stalled.Stop()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL, nil)
	if err != nil {
		return errors.Join(errFinal, err)
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := p.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	switch {
	case resp.StatusCode == http.StatusPartialContent && have > 0 && strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
	case resp.StatusCode == http.StatusOK: // the whole of it, asked for or not
		have, flags = 0, flags&^os.O_APPEND|os.O_TRUNC
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable, resp.StatusCode == http.StatusPartialContent:
		_ = os.Remove(part)
		return fmt.Errorf("the server cannot go on at byte %d (%s); it is fetched from the start", have, resp.Status)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode >= 500:
		return fmt.Errorf("the server answers %s", resp.Status)
	default:
		return fmt.Errorf("the server answers %s: %w", resp.Status, errFinal)
	}
	if n := resp.ContentLength; n >= 0 && have+n != m.Bytes {
		return fmt.Errorf("the server has a file of %d bytes, the catalogue means one of %d: %w", have+n, m.Bytes, errFinal)
	}
	f, err := os.OpenFile(part, flags, 0o640)
	if err != nil {
		return errors.Join(errFinal, err)
	}
	w := &meter{w: f, done: have, total: m.Bytes, progress: p.Progress, moved: func() { stalled.Reset(p.Stall) }}
	// One byte more than there may be shows a file that does not end.
	_, err = io.Copy(w, io.LimitReader(resp.Body, m.Bytes-have+1))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	switch {
	case w.done > m.Bytes:
		_ = os.Remove(part)
		return fmt.Errorf("the server sends more than the %d bytes of the file: %w", m.Bytes, errFinal)
	case w.done < m.Bytes:
		return fmt.Errorf("the connection ended after %d of %d bytes", w.done, m.Bytes)
	}
	return nil
}

// meter counts what passes.
type meter struct {
	w           io.Writer
	done, total int64
	progress    func(done, total int64)
	moved       func()
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.w.Write(b)
	m.done += int64(n)
	m.moved()
	m.progress(min(m.done, m.total), m.total)
	return n, err
}
