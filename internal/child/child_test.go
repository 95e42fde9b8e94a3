package child_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vedette/vedette/internal/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell runs a script as the child and gives its output by the line.
func shell(t *testing.T, script string, adjust func(*child.Config)) (c *child.Child, lines *bufio.Scanner, stop func()) {
	t.Helper()
	r, w := io.Pipe()
	cfg := child.Config{
		Name: "test", Path: "/bin/sh", Args: []string{"-c", script}, Output: w,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, StopTimeout: 100 * time.Millisecond,
	}
	if adjust != nil {
		adjust(&cfg)
	}
	c = child.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var stopped bool
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		_ = r.Close() // output that nobody reads any more must not hold the child up
		if err := <-done; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	}
	t.Cleanup(stop)
	return c, bufio.NewScanner(r), stop
}

func next(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the output ended: %v", lines.Err())
	}
	return lines.Text()
}

func TestChildThatEndsIsStartedAgainAndItsReasonIsKept(t *testing.T) {
	c, lines, _ := shell(t, "echo out of luck; exit 7", nil)
	next(t, lines)
	next(t, lines)
	next(t, lines)
	s := c.Status()
	if s.Restarts < 1 {
		t.Errorf("%d restarts after three runs", s.Restarts)
	}
	if s.Reason != "exit status 7; it last said: out of luck" {
		t.Errorf("reason %q", s.Reason)
	}
}

func TestKilledChildComesBackWithAnotherPID(t *testing.T) {
	c, lines, _ := shell(t, "echo $$; exec sleep 1000", nil)
	first := next(t, lines)
	pid := c.Status().PID
	if fmt.Sprint(pid) != first {
		t.Fatalf("status says PID %d, the child %s", pid, first)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := next(t, lines); second == first {
		t.Errorf("PID %s twice", first)
	}
	if r := c.Status().Reason; !strings.Contains(r, "signal: killed") {
		t.Errorf("reason %q does not name the signal", r)
	}
}

func TestChildThatIgnoresTheRequestToStopIsKilledWithItsChildren(t *testing.T) {
	_, lines, stop := shell(t, "trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1000; done", nil)
	grandchild := next(t, lines)
	stop()
	var pid int
	if _, err := fmt.Sscan(grandchild, &pid); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pid, 0) == nil { // a zombie until init, or whoever reaps here, collects it
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
	}
}

func TestChildHasALifelineThatEndsWithItsParent(t *testing.T) {
	// The child reads its lifeline; as long as the parent holds the other end, the read blocks.
	c, lines, stop := shell(t, `echo fd $VEDETTE_LIFELINE_FD; read x <&3; echo gone`, nil)
	if got := next(t, lines); got != "fd 3" {
		t.Fatalf("the child was told %q", got)
	}
	if s := c.Status(); s.State != child.Running {
		t.Errorf("state %v while the parent lives", s.State)
	}
	stop()
}

func TestMissingProgramIsAnError(t *testing.T) {
	err := child.New(child.Config{Path: "/nowhere/vedette-ingest"}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "/nowhere/vedette-ingest") {
		t.Errorf("error %v does not name the program", err)
	}
}

func TestStartAndStopAtOnceTenTimes(t *testing.T) {
	for range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		c := child.New(child.Config{Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}})
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s := c.Status(); s.State != child.Stopped || s.PID != 0 {
			t.Errorf("status after the stop: %+v", s)
		}
	}
}

func TestRestartStartsItAgainAndTellsWhy(t *testing.T) {
	c, lines, _ := shell(t, "echo up; exec sleep 600", nil)
	if got := next(t, lines); got != "up" {
		t.Fatal(got)
	}
	first := c.Status().PID
	c.Restart("it does not answer")
	if got := next(t, lines); got != "up" {
		t.Fatal(got)
	}
	s := c.Status()
	if s.PID == first || s.Restarts != 1 || !strings.Contains(s.Reason, "it does not answer") {
		t.Errorf("%+v after process %d", s, first)
	}
}

// What a child leaves behind when it dies goes with it, however often it does.
func TestManyRestartsLeaveNoProcessAndNoDescriptorBehind(t *testing.T) {
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	r, w, err := os.Pipe() // the runtime opens some for itself with the first
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.Close(), w.Close()
	before := descriptors()
	_, lines, stop := shell(t, "sleep 1000 & echo $!; exit 1", func(cfg *child.Config) { cfg.MaxBackoff = 2 * time.Millisecond })
	var left []string
	for range 100 {
		left = append(left, next(t, lines))
	}
	stop()
	for _, pid := range left {
		// A process that ended has no command line, even while nobody has asked for its end. Else the test times out.
		for {
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err != nil || !strings.HasPrefix(string(line), "sleep\x001000") {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	own, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(own) == 0 {
		t.Skipf("this kernel does not tell a process's children: %v", err)
	}
	for _, path := range own {
		if pids, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(pids)) != "" {
			t.Errorf("children: %s", pids)
		}
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
