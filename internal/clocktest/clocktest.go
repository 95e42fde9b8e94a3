// Package clocktest sets the wall clock of a running process, as that process alone sees it, for tests of what happens
// when somebody sets a box's clock. Linux has no wall clock of a process or a namespace (time_namespaces(7)), and Go
// programs ask it without libc: so clock_gettime in the process's vDSO (vdso(7)) is replaced by one that adds to
// CLOCK_REALTIME, and its timers that wait for the clock to be set (TFD_TIMER_CANCEL_ON_SET) fire. What asks the kernel
// itself, or other functions of the vDSO, sees the machine's clock.
package clocktest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the wall clock of one process.
type Clock struct {
	pid    int
	memory *os.File
	ahead  int64 // where the process keeps by how many seconds its clock is ahead
}

// replacement is clock_gettime(clock edi, timespec *rsi) for amd64: the system call, and for CLOCK_REALTIME the seconds
// that follow the code added to what it tells.
//
//nolint:gochecknoglobals // a constant
var replacement = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov $228, %eax
	0x0f, 0x05, // syscall
	0x85, 0xff, // test %edi, %edi
	0x75, 0x0a, // jne to the ret
	0x48, 0x8b, 0x0d, 0x06, 0x00, 0x00, 0x00, // mov 6(%rip), %rcx
	0x48, 0x01, 0x0e, // add %rcx, (%rsi)
	0xc3,       // ret
	0x90, 0x90, // so that the seconds are aligned
	0, 0, 0, 0, 0, 0, 0, 0,
}

// Take makes the wall clock of a process one that can be set. The caller may trace the process (ptrace(2)): it is its
// parent, or root. errors.ErrUnsupported on machines that are not amd64 and where the vDSO cannot be written.
func Take(pid int) (*Clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("set the clock of a process on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("set the clock of process %d: %w", pid, err)
	}
	c := &Clock{pid: pid, memory: memory}
	if err := c.take(); err != nil {
		_ = memory.Close()
		return nil, fmt.Errorf("set the clock of process %d: %w", pid, err)
	}
	return c, nil
}

// Close forgets the process, whose clock stays as it was set last.
func (c *Clock) Close() error { return c.memory.Close() }

// Set sets the process's clock ahead of the machine's by whole seconds, or behind when negative.
func (c *Clock) Set(ahead time.Duration) error {
	var seconds [8]byte
	binary.LittleEndian.PutUint64(seconds[:], uint64(ahead/time.Second)) //nolint:gosec // two's complement is meant
	_, err := c.memory.WriteAt(seconds[:], c.ahead)
	if err == nil {
		err = c.tell()
	}
	if err != nil {
		return fmt.Errorf("set the clock of process %d: %w", c.pid, err)
	}
	return nil
}

func (c *Clock) take() error {
	from, to, err := c.vdso()
	if err != nil {
		return err
	}
	image := make([]byte, to-from)
	if _, err := c.memory.ReadAt(image, from); err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(replacement)) {
			at := from + int64(s.Value) //nolint:gosec // within the image
			c.ahead = at + int64(len(replacement)) - 8
			return c.replace(at, at+int64(s.Size)) //nolint:gosec // within the image
		}
	}
	return fmt.Errorf("its vDSO has no clock_gettime of %d bytes: %w", len(replacement), errors.ErrUnsupported)
}

// vdso is where the process has its vDSO.
func (c *Clock) vdso() (from, to int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, fmt.Errorf("it has no vDSO: %w", errors.ErrUnsupported)
}

// replace writes the replacement over a function while the process is stopped outside of it.
func (c *Clock) replace(from, to int64) error {
	defer syscall.Kill(c.pid, syscall.SIGCONT) //nolint:errcheck // it has ended then
	for range 1000 {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		outside, err := c.outside(from, to)
		if err != nil {
			return err
		}
		if outside {
			if _, err := c.memory.WriteAt(replacement, from); err != nil {
				return fmt.Errorf("%w: write the vDSO: %w", errors.ErrUnsupported, err)
			}
			return nil
		}
		if err := syscall.Kill(c.pid, syscall.SIGCONT); err != nil {
			return err
		}
		runtime.Gosched()
	}
	return errors.New("it never leaves clock_gettime")
}

// outside waits until all threads have stopped, and tells whether none of them is between two addresses.
func (c *Clock) outside(from, to int64) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", c.pid))
	if err != nil || len(threads) == 0 {
		return false, errors.Join(err, syscall.ESRCH)
	}
	for _, t := range threads {
		text, err := os.ReadFile(t)
		for err == nil && strings.HasPrefix(string(text), "running") { // it has yet to notice the signal
			runtime.Gosched()
			text, err = os.ReadFile(t)
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		fields := strings.Fields(string(text)) // the last is the program counter: proc_pid_syscall(5)
		if err != nil || len(fields) < 3 {
			return false, fmt.Errorf("%s: %q, %w", t, text, err)
		}
		pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil {
			return false, fmt.Errorf("%s: %w", t, err)
		}
		if pc >= from && pc < to {
			return false, nil
		}
	}
	return true, nil
}

// tell has every timer of the process fire that waits for the wall clock to be set.
func (c *Clock) tell() error {
	process, err := unix.PidfdOpen(c.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process) //nolint:errcheck // nothing was written
	timers, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", c.pid))
	if err != nil {
		return err
	}
	for _, path := range timers {
		info, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(info), "clockid: 0\n") || !strings.Contains(string(info), "settime flags: 03\n") {
			continue // closed meanwhile, or another kind of file
		}
		number, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		timer, err := unix.PidfdGetfd(process, number, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed meanwhile
		}
		if err != nil {
			return fmt.Errorf("take its timer: %w", err)
		}
		now := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
		err = unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &now, nil)
		_ = unix.Close(timer)
		if err != nil {
			return fmt.Errorf("have its timer fire: %w", err)
		}
	}
	return nil
}
