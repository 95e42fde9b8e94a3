// Package launch runs an inference server of one's own beside this process, which nobody else can reach: what looks at
// models outside of the appliance (evaluation, adoption, analysis) asks such a one.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/v2client"
	"github.com/vedette/vedette/internal/sdnotify"
)

// Config says what to run.
type Config struct {
	// Program is vedette-infer; empty: the one beside this program.
	Program string
	// Library is ONNX Runtime; empty: the program finds it beside itself.
	Library string
	// Repositories are folders of models. Load names those to load; the others wait until they are asked for.
	Repositories, Load []string
	// Flags are further ones.
	Flags []string
	// Log receives what the server prints; nil: discarded.
	Log io.Writer
}

// Server is a running server. It ends when it is closed, and when this process does.
type Server struct {
	// Client asks it; Target is its address for others.
	Client *v2client.Client
	Target string

	dir      string
	cmd      *exec.Cmd
	lifeline *os.File // the server ends with this end of the pipe
	log      *tail
	ended    chan struct{} // closed when the process is gone
}

// stopTimeout is what the server gets to end by itself.
const stopTimeout = 10 * time.Second

// Start starts a server and returns when it answers and has loaded what it is to; a model of these that does not load
// is an error. ctx bounds the start alone.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find vedette-infer: %w", err)
		}
		cfg.Program = filepath.Join(filepath.Dir(self), "vedette-infer")
	}
	s := &Server{log: &tail{next: cfg.Log}}
	if s.dir, err = os.MkdirTemp("", "vedette-infer-"); err != nil { // sockets have short names
		return nil, fmt.Errorf("start the inference server: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	socket := filepath.Join(s.dir, "infer.sock")
	s.Target = "unix://" + socket
	if err := s.run(ctx, cfg, socket); err != nil {
		return nil, fmt.Errorf("start the inference server: %w", err)
	}
	if s.Client, err = v2client.New(s.Target, v2client.Config{}); err != nil {
		return nil, fmt.Errorf("start the inference server: %w", err)
	}
	return s, s.ready(ctx)
}

func (s *Server) run(ctx context.Context, cfg Config, socket string) error {
	args := []string{
		"--model-control-mode", "explicit", "--exit-on-error=true", "--exit-timeout-secs", "1",
		"--allow-http=false", "--allow-grpc=false", "--allow-metrics=false", "--private-socket", socket,
	}
	for _, dir := range cfg.Repositories {
		args = append(args, "--model-repository", dir)
	}
	for _, model := range cfg.Load {
		args = append(args, "--load-model", model)
	}
	if cfg.Library != "" {
		args = append(args, "--onnxruntime", cfg.Library)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }() // the process has its own
	s.lifeline = ours
	cmd := exec.CommandContext(context.WithoutCancel(ctx), cfg.Program, append(args, cfg.Flags...)...) // until Close, which lets it end by itself
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.WaitDelay = stopTimeout
	cmd.ExtraFiles, cmd.Env = []*os.File{theirs}, append(os.Environ(), sdnotify.LifelineEnv+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for this process, which ends it
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return nil
}

// ready waits until the server has loaded its models or gives up.
func (s *Server) ready(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := s.Client.ServerReady(ctx, &inference.ServerReadyRequest{}); err == nil && r.GetReady() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ended:
			return s.Fault()
		case <-tick.C:
		}
	}
}

// Ended is closed when the server is gone.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Fault is why it ended, as far as its log tells.
func (s *Server) Fault() error {
	text := s.log.text()
	if text == "" {
		text = "it did not say why"
	}
	return fmt.Errorf("the inference server ended: %s", text)
}

// Memory is what the server's process has of its own and shared, in bytes.
func (s *Server) Memory(context.Context) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("%q is not what statm should be", text)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// Close ends the server and removes what was written for it.
func (s *Server) Close() error {
	var faults []error
	if s.Client != nil {
		faults = append(faults, s.Client.Close())
	}
	if s.ended != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
		select {
		case <-s.ended:
		case <-time.After(stopTimeout):
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
	}
	if s.lifeline != nil {
		faults = append(faults, s.lifeline.Close())
	}
	return errors.Join(append(faults, os.RemoveAll(s.dir))...)
}

// tail passes a log on, and keeps its first error, or its last line.
type tail struct {
	next io.Writer

	mu          sync.Mutex
	last, fault string
}

// Write is only called by one goroutine at a time: both streams of the process are this one writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		t.last = line
		if _, rest, ok := strings.Cut(line, "level=ERROR msg="); ok && t.fault == "" {
			t.fault = rest
		}
	}
	if t.next != nil {
		return t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault != "" {
		return t.fault
	}
	return t.last
}
