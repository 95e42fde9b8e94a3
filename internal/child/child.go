// Package child keeps a process running: it starts it in a process group of its own, starts it again with growing
// pauses when it ends, remembers why it ended, and stops it within a bound. The child notices the death
// of its parent by the end of an inherited pipe (see sdnotify.WithSupervisor).
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// LifelineEnv tells a child the number of the descriptor that ends when its parent does.
const LifelineEnv = "VEDETTE_LIFELINE_FD"

// Config says what to run and how. Only Path is required.
type Config struct {
	// Path of the program, and its arguments without the program itself.
	Path string
	Args []string
	// Name for logs; empty: Path.
	Name string
	// Env is added to the parent's environment.
	Env []string
	// Dir is the working directory; empty: the parent's.
	Dir string
	// Output receives what the child prints, whole lines at a time; nil: discarded.
	Output io.Writer
	// MinBackoff and MaxBackoff bound the pause before a restart: 0: 100 ms and 10 s. A child that ran for MaxBackoff
	// begins at MinBackoff again.
	MinBackoff, MaxBackoff time.Duration
	// StopTimeout is how long a child may take to stop when asked (SIGTERM) before it is killed; 0: 3 s.
	StopTimeout time.Duration
	// Logger, nil: discarded.
	Logger *slog.Logger
}

// State is where a child is in its life.
type State int

// The states a child is in.
const (
	Stopped State = iota
	Running
	// Waiting for the pause before the next start to pass.
	Waiting
)

// Status is what there is to know of a child.
type Status struct {
	State State
	// PID of the running process; 0 when none runs.
	PID int
	// Since is when State was entered.
	Since time.Time
	// Restarts counts the starts after the first.
	Restarts int
	// Reason is how the last run ended, with the last line it printed; empty after none did.
	Reason string
}

// Child is one supervised process. Safe for concurrent use.
type Child struct {
	cfg Config

	restart chan string // one reason: a second says no more

	mu     sync.Mutex // guards what follows
	status Status
	last   string // the last line the child printed
}

// New returns a child that Run starts.
func New(cfg Config) *Child {
	if cfg.Name == "" {
		cfg.Name = cfg.Path
	}
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 100 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 10 * time.Second
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = 3 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Output == nil {
		cfg.Output = io.Discard
	}
	return &Child{cfg: cfg, restart: make(chan string, 1), status: Status{Since: time.Now()}}
}

// Restart stops the process as at the end of Run, and starts it again as if it had ended by itself. The reason goes
// into Status.Reason. Nothing happens while no process runs.
func (c *Child) Restart(reason string) {
	select {
	case c.restart <- reason:
	default:
	}
}

// Status returns what there is to know now.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Run keeps the process running until ctx ends, then stops it and returns nil. The only error is a program that
// cannot be found or executed, before its first start.
func (c *Child) Run(ctx context.Context) error {
	if _, err := exec.LookPath(c.cfg.Path); err != nil {
		return fmt.Errorf("start %s: %w", c.cfg.Name, err)
	}
	// The kernel delivers the parent-death signal when the starting thread ends, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := c.cfg.MinBackoff
	for starts := 0; ; starts++ {
		began := time.Now()
		err := c.once(ctx, starts)
		if ctx.Err() != nil {
			c.set(func(s *Status) { s.State, s.PID = Stopped, 0 })
			return nil
		}
		if time.Since(began) >= c.cfg.MaxBackoff {
			pause = c.cfg.MinBackoff
		}
		wait := pause/2 + rand.N(pause)
		reason := c.reason(err)
		c.set(func(s *Status) { s.State, s.PID, s.Reason = Waiting, 0, reason })
		c.cfg.Logger.Warn("child ended", slog.String("child", c.cfg.Name), slog.String("reason", reason), slog.Duration("restart_in", wait))
		pause = min(2*pause, c.cfg.MaxBackoff)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			c.set(func(s *Status) { s.State = Stopped })
			return nil
		case <-timer.C:
		}
	}
}

// once runs the process until it ends or ctx does.
func (c *Child) once(ctx context.Context, starts int) error {
	lifeline, hold, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the lifeline pipe: %w", err)
	}
	defer func() { _ = hold.Close() }()
	out, in, err := os.Pipe()
	if err != nil {
		_ = lifeline.Close()
		return fmt.Errorf("make the output pipe: %w", err)
	}
	defer func() { _ = out.Close() }()

	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.cfg.Path, c.cfg.Args...)
	cmd.Dir = c.cfg.Dir
	cmd.Env = append(append(os.Environ(), c.cfg.Env...), LifelineEnv+"="+strconv.Itoa(3))
	cmd.ExtraFiles = []*os.File{lifeline}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	err = cmd.Start()
	_ = lifeline.Close()
	_ = in.Close()
	if err != nil {
		return err
	}
	c.set(func(s *Status) { s.State, s.PID, s.Restarts = Running, cmd.Process.Pid, starts })
	c.cfg.Logger.Info("child started", slog.String("child", c.cfg.Name), slog.Int("pid", cmd.Process.Pid))

	var work sync.WaitGroup
	work.Go(func() { c.copyLines(out) })
	select {
	case <-c.restart: // meant for the process before
	default:
	}
	ended := make(chan error, 1) // one result, whoever reads it
	work.Go(func() { ended <- cmd.Wait() })
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = c.stop(cmd, ended)
	case reason := <-c.restart:
		_ = c.stop(cmd, ended) // how it ended says nothing: it was told to
		err = fmt.Errorf("it was stopped to be started again: %s", reason)
	}
	// Whatever the child left behind in its group goes with it; then its output ends.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	work.Wait()
	return err
}

// stop asks, waits and kills.
func (c *Child) stop(cmd *exec.Cmd, ended <-chan error) error {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	timer := time.NewTimer(c.cfg.StopTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		c.cfg.Logger.Warn("child did not stop in time and is killed", slog.String("child", c.cfg.Name), slog.Duration("timeout", c.cfg.StopTimeout))
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		return <-ended
	}
}

// copyLines passes the child's output on, line by line, and keeps the last line.
func (c *Child) copyLines(r io.Reader) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			if text := firstBytes(line, 400); text != "" {
				c.mu.Lock()
				c.last = text
				c.mu.Unlock()
			}
			_, _ = c.cfg.Output.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func firstBytes(line []byte, n int) string {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return string(line[:min(n, len(line))])
}

// reason puts the end of a run into words.
func (c *Child) reason(err error) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := "exit status 0"
	if err != nil {
		text = err.Error()
	}
	if c.last != "" {
		text += "; it last said: " + c.last
	}
	c.last = ""
	return text
}

func (c *Child) set(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.status.State
	change(&c.status)
	if c.status.State != before {
		c.status.Since = time.Now()
	}
}
