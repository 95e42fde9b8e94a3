package analyze

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/v2client"
	"github.com/vedette/vedette/internal/sdnotify"
)

// ownServer is a server that was started for the analysis.
type ownServer struct {
	address string // for gRPC
	cmd     *exec.Cmd
	dir     string
	life    *os.File      // the server ends with this end of the pipe
	ended   chan struct{} // closed when the process is gone
}

// startServer runs the program on repositories, and returns when it answers. Nobody else can reach it.
func startServer(ctx context.Context, program string, roots, flags []string, log string) (_ *ownServer, err error) {
	if program == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find vedette-infer: %w", err)
		}
		program = filepath.Join(filepath.Dir(exe), "vedette-infer")
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = out.Close() }() // the process has its own
	s := &ownServer{ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "vedette-analyze-"); err != nil {
		return nil, err
	}
	socket := filepath.Join(s.dir, "infer.sock")
	s.address = "unix://" + socket
	args := []string{"--model-control-mode=explicit", "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false", "--private-socket", socket}
	for _, root := range roots {
		args = append(args, "--model-repository", root)
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, append(args, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	s.life = ours
	s.cmd.ExtraFiles, s.cmd.Env = []*os.File{theirs}, append(os.Environ(), sdnotify.LifelineEnv+"=3")
	if err := s.cmd.Start(); err != nil {
		_ = ours.Close()
		_ = os.RemoveAll(s.dir)
		return nil, fmt.Errorf("start the server: %w (--server names the program)", err)
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in its log
		close(s.ended)
	}()
	if err := s.ready(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("start the server: %w: %s tells more", err, log)
	}
	return s, nil
}

// ready waits until the server answers.
func (s *ownServer) ready(ctx context.Context) error {
	client, err := v2client.New(s.address, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := client.ServerReady(ctx, &inference.ServerReadyRequest{}); err == nil && r.GetReady() {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// memory is what the server's process has of its own and shared, in bytes.
func (s *ownServer) memory(context.Context) (int64, error) {
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

// stop ends the server and waits for it.
func (s *ownServer) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	defer func() { _ = s.life.Close() }()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	_ = os.RemoveAll(s.dir)
}
