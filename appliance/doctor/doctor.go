// Package doctor looks for what is wrong with a machine before it bites: limits, ports, libraries, models, disk, clock
// and processor. Every finding says what to do.
package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// Severity is how bad a finding is.
type Severity string

// The severities. An Error keeps Vedette, or a part of it, from working.
const (
	OK      Severity = "ok"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is what one check found.
type Finding struct {
	// Check is the name of the check: a word that stays the same.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Message tells what is there.
	Message string `json:"message"`
	// Advice tells what to do; empty when there is nothing to do.
	Advice string `json:"advice,omitempty"`
}

// Config says what to look at. Its zero value checks the machine alone.
type Config struct {
	// DataDir, Models and Library are what the appliance would use; empty: not checked. A data directory that does
	// not exist yet is judged by where it would be made.
	DataDir, Models, Library string
	// Programs is the folder of the sidecars; empty: not checked.
	Programs string
	// Ports are addresses that must be free, or in use by a running appliance when Running.
	Ports   []string
	Running bool
	// Pressure is how the running appliance's store sees the disk; nil: judged by free space alone.
	Pressure func() store.Pressure
	// Sinks are those of the running appliance that do not get through, by name; nil: not checked.
	Sinks func() map[string]*vedettev1.DeliveryStatus
	// Root is put before /proc, /sys, /dev and /run; tests use it.
	Root string
}

// Check runs all checks; each one yields a finding or more, in a fixed order.
func Check(ctx context.Context, cfg Config) []Finding {
	d := &doctor{cfg: cfg}
	d.descriptors()
	d.kernel()
	d.memory()
	d.processor()
	d.gpu()
	d.clock()
	d.disk()
	d.programs()
	d.library()
	d.models()
	d.sinks()
	d.ports(ctx)
	return d.findings
}

// Worst returns the highest severity among findings.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		if f.Severity == Error || (f.Severity == Warning && worst == OK) {
			worst = f.Severity
		}
	}
	return worst
}

type doctor struct {
	cfg      Config
	findings []Finding
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, Severity: OK, Message: fmt.Sprintf(format, args...)})
}

func (d *doctor) bad(severity Severity, check, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, Severity: severity, Message: fmt.Sprintf(format, args...), Advice: advice})
}

func (d *doctor) path(p string) string { return filepath.Join(d.cfg.Root, p) }

const wantedDescriptors = 4096

func (d *doctor) descriptors() {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		d.bad(Warning, "descriptors", "", "the limit of open files cannot be read: %v", err)
		return
	}
	// Go raises the soft limit to the hard one by itself.
	if l.Max < wantedDescriptors {
		d.bad(Warning, "descriptors", "raise it: LimitNOFILE=16384 in the unit, or ulimit -n 16384", "%d files may be open; many cameras need more than %d", l.Max, wantedDescriptors)
		return
	}
	d.ok("descriptors", "%d files may be open", l.Max)
}

// kernel looks at limits of the whole machine.
func (d *doctor) kernel() {
	fine := true
	for _, limit := range []struct {
		name  string // of sysctl
		least uint64
		why   string
	}{
		{"fs.file-max", 65536, "files that all programs together may open"},
		{"kernel.threads-max", 4096, "threads of all programs together"},
		{"kernel.pid_max", 4096, "processes and threads of all programs together"},
		{"vm.max_map_count", 65530, "mapped regions of a process; models and frames are such"},
		{"net.core.rmem_max", 212992, "bytes of a socket's buffer; packets of cameras over UDP are lost"},
	} {
		text, err := os.ReadFile(d.path("/proc/sys/" + strings.ReplaceAll(limit.name, ".", "/")))
		if err != nil {
			continue // not told in a network namespace or a container
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && n < limit.least {
			fine = false
			d.bad(Warning, "kernel", fmt.Sprintf("sysctl -w %s=%d, and the same in /etc/sysctl.d", limit.name, limit.least), "%s is %d: %s", limit.name, n, limit.why)
		}
	}
	var used, unused, most int64
	if text, err := os.ReadFile(d.path("/proc/sys/fs/file-nr")); err == nil {
		if n, _ := fmt.Sscan(string(text), &used, &unused, &most); n == 3 && used > most/10*9 {
			fine = false
			d.bad(Warning, "kernel", "find who opens them (lsof), or raise fs.file-max", "%d of the %d files that all programs together may open are open", used, most)
		}
	}
	if fine {
		d.ok("kernel", "its limits are high enough")
	}
}

const wantedMemory = 1 << 30

func (d *doctor) memory() {
	text, err := os.ReadFile(d.path("/proc/meminfo"))
	if err != nil {
		d.bad(Warning, "memory", "", "the memory cannot be read: %v", err)
		return
	}
	for line := range strings.Lines(string(text)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); n != 1 {
			continue
		}
		if kb<<10 < wantedMemory {
			d.bad(Warning, "memory", "analyse fewer cameras, or smaller streams, or end other programs", "%d MB are available; inference with a few cameras wants %d MB", kb>>10, wantedMemory>>20)
			return
		}
		d.ok("memory", "%d MB are available", kb>>10)
		return
	}
	d.bad(Warning, "memory", "", "/proc/meminfo does not tell what is available")
}

func (d *doctor) processor() {
	if runtime.GOARCH != "amd64" {
		d.ok("cpu", "%d cores, %s", runtime.NumCPU(), runtime.GOARCH)
		return
	}
	text, err := os.ReadFile(d.path("/proc/cpuinfo"))
	if err != nil {
		d.bad(Warning, "cpu", "", "the processor cannot be read: %v", err)
		return
	}
	var flags string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "flags"); ok {
			flags = " " + strings.TrimSpace(strings.TrimLeft(rest, "\t :")) + " "
			break
		}
	}
	if !strings.Contains(flags, " avx2 ") {
		d.bad(Warning, "cpu", "use a machine or a virtual machine's processor type with AVX2 (host passthrough)", "%d cores without AVX2: detection is several times slower", runtime.NumCPU())
		return
	}
	has := []string{"avx2"}
	for _, f := range []string{"avx512f", "avx512_vnni", "avx_vnni"} {
		if strings.Contains(flags, " "+f+" ") {
			has = append(has, f)
		}
	}
	d.ok("cpu", "%d cores with %s", runtime.NumCPU(), strings.Join(has, ", "))
}

func (d *doctor) gpu() {
	var have []string
	for name, glob := range map[string]string{"NVIDIA": "/dev/nvidia[0-9]*", "DRM": "/dev/dri/renderD*"} {
		found, err := filepath.Glob(d.path(glob))
		if err == nil && len(found) > 0 {
			have = append(have, fmt.Sprintf("%d %s", len(found), name))
		}
	}
	if len(have) == 0 {
		d.ok("gpu", "there is none: models run on the processor")
		return
	}
	d.ok("gpu", "devices: %s; the services reach them with the drop-in gpu.conf", strings.Join(have, ", "))
}

const timeError = 0x40 // STA_UNSYNC

func (d *doctor) clock() {
	if time.Now().Year() < 2025 {
		d.bad(Error, "clock", "set the clock: timedatectl set-ntp true", "it is %s here", time.Now().Format(time.DateOnly))
		return
	}
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		d.bad(Warning, "clock", "", "the kernel does not tell whether the clock is synchronised: %v", err)
	case state == unix.TIME_ERROR || t.Status&timeError != 0:
		d.bad(Warning, "clock", "install and enable chrony or systemd-timesyncd: times of what was seen are as wrong as the clock", "the clock is not synchronised")
	default:
		d.ok("clock", "synchronised, within %d ms", t.Maxerror/1000)
	}
}

// portFree tells whether an address can be listened on.
func portFree(ctx context.Context, address string) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return ln.Close()
}

func (d *doctor) ports(ctx context.Context) {
	for _, address := range d.cfg.Ports {
		err := portFree(ctx, address)
		switch {
		case err == nil && d.cfg.Running:
			d.bad(Warning, "port", "look into its log: journalctl -u vedette -u vedette-infer", "nobody listens on %s, though an appliance runs", address)
		case err == nil:
			d.ok("port", "%s is free", address)
		case d.cfg.Running:
			d.ok("port", "%s is in use, as it should be", address)
		default:
			d.bad(Error, "port", "end the program that uses it (ss -ltnp), or choose another address", "%s: %v", address, err)
		}
	}
}

func (d *doctor) sinks() {
	if d.cfg.Sinks == nil {
		return
	}
	failing := d.cfg.Sinks()
	if len(failing) == 0 {
		d.ok("sinks", "events get through to every sink there is")
	}
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		s, since := failing[name], ""
		if at := s.GetOldestWaitingTime(); at != nil {
			since = ", and events wait since " + at.AsTime().UTC().Format(time.DateTime) + " UTC"
		}
		d.bad(Warning, "sinks", "mend the receiver or the sink; events wait as long as the day they are of is kept", "sink %s: %s%s", name, s.GetMessage(), since)
	}
}
