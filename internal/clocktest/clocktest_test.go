package clocktest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/clocktest"
)

// TestMain is also a process that tells the time at every line it reads, and after 0 when its clock was set.
func TestMain(m *testing.M) {
	if os.Getenv("VEDETTE_TELLS_THE_TIME") == "" {
		os.Exit(m.Run())
	}
	for range runtime.NumCPU() { // it asks for the time without a pause, on every core
		go func() {
			for before := time.Now(); ; {
				now := time.Now()
				if now.Sub(before) < 0 {
					panic("the monotonic clock runs backwards")
				}
				before = now
			}
		}()
	}
	set := make(chan struct{})
	go func() {
		timer, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC)
		if err != nil {
			panic(err)
		}
		for {
			never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
			if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
				panic(err)
			}
			set <- struct{}{} // armed
			_, _ = unix.Read(timer, make([]byte, 8))
		}
	}()
	<-set
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "wait" {
			<-set
		}
		fmt.Println(time.Now().Unix())
	}
}

func TestAProcessHasAClockOfItsOwn(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "VEDETTE_TELLS_THE_TIME=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	// ahead is by how much the process's clock is ahead of ours.
	ahead := func(question string) time.Duration {
		t.Helper()
		from := time.Now().Unix()
		if _, err := io.WriteString(in, question+"\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatalf("no answer: %v", answers.Err())
		}
		seconds, err := strconv.ParseInt(answers.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		// What the question took may lie in the answer.
		return (time.Duration(seconds-from) * time.Second).Round(time.Hour)
	}
	if got := ahead(""); got != 0 {
		t.Fatalf("before: %v", got)
	}
	clock, err := clocktest.Take(cmd.Process.Pid)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close() //nolint:errcheck // nothing to do about it
	if got := ahead(""); got != 0 {
		t.Errorf("taken, not yet set: %v", got)
	}
	for _, want := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
		if err := clock.Set(want); err != nil {
			t.Fatal(err)
		}
		if got := ahead("wait"); got != want {
			t.Errorf("set %v ahead it is %v ahead", want, got)
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it did not end well: %v", err)
	}
}
