// Package support collects what a report of a fault needs into an archive, without secrets.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/appliance/doctor"
)

// Config says what goes into a bundle. All functions but Log are required.
type Config struct {
	// Version of the program.
	Version string
	// DataDir is listed, file by file; what is in the files stays there.
	DataDir string
	// Settings is the configuration file of an installed box.
	Settings string
	// Doctor looks at the machine.
	Doctor func(context.Context) []doctor.Finding
	// System and Cameras are the API's answers to GetSystem and ListCameras.
	System, Cameras func(context.Context) (proto.Message, error)
	// Log is what this run of the program logged last; nil: only the journal is asked.
	Log func() []byte
	// Metrics, nil: left out.
	Metrics func() ([]byte, error)
}

// journalTimeout is how long the journal may take; it is the only part that waits for another program.
const journalTimeout = 20 * time.Second

// Write writes the archive (tar, gzip) to w. A part that cannot be had is replaced by the reason; the error is that of w.
func Write(ctx context.Context, w io.Writer, cfg Config) error {
	zip := gzip.NewWriter(w)
	b := &bundle{tar: tar.NewWriter(zip)}
	b.add("version.txt", func() ([]byte, error) {
		return fmt.Appendf(nil, "vedette %s\n%s %s/%s, %d cores\n", cfg.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), nil
	})
	b.add("doctor.json", func() ([]byte, error) { return json.MarshalIndent(cfg.Doctor(ctx), "", "  ") })
	b.add("config.yaml", func() ([]byte, error) { return os.ReadFile(cfg.Settings) })
	b.add("data.txt", func() ([]byte, error) { return listing(cfg.DataDir) })
	for _, name := range []string{"/proc/loadavg", "/proc/meminfo", "/etc/os-release"} {
		b.add("machine/"+filepath.Base(name)+".txt", func() ([]byte, error) { return os.ReadFile(name) })
	}
	for name, call := range map[string]func(context.Context) (proto.Message, error){"system.json": cfg.System, "cameras.json": cfg.Cameras} {
		b.add(name, func() ([]byte, error) {
			m, err := call(ctx)
			if err != nil {
				return nil, err
			}
			return protojson.MarshalOptions{Multiline: true}.Marshal(m)
		})
	}
	if cfg.Metrics != nil {
		b.add("metrics.txt", cfg.Metrics)
	}
	if cfg.Log != nil {
		b.add("log.txt", func() ([]byte, error) { return cfg.Log(), nil })
	}
	b.add("journal.txt", func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, journalTimeout)
		defer cancel()
		return exec.CommandContext(ctx, "journalctl", "-u", "vedette*", "-n", "5000", "--no-pager", "-o", "short-iso-precise").CombinedOutput()
	})
	return errors.Join(b.err, b.tar.Close(), zip.Close())
}

// listing names the files of the data directory with their sizes; what is in them stays there.
func listing(dir string) ([]byte, error) {
	var out bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", path, err)
			return nil
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			fmt.Fprintf(&out, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), path)
		}
		return nil
	})
	return out.Bytes(), err
}

// bundle writes the parts of an archive.
type bundle struct {
	tar *tar.Writer
	err error
}

func (b *bundle) add(name string, get func() ([]byte, error)) {
	if b.err != nil {
		return
	}
	text, err := get()
	if err != nil {
		text = fmt.Appendf(text, "\nnot to be had: %v\n", err)
	}
	text = redact(text)
	b.err = b.tar.WriteHeader(&tar.Header{Name: "vedette-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// redact takes out what looks like a secret, wherever it came from: a user's password in an address, a token, a key,
// and the value of anything that is called a password.
func redact(text []byte) []byte {
	for _, r := range []struct{ find, put string }{
		{`([a-z][a-z0-9+.-]*://)[^/@\s"']+@`, "${1}REDACTED@"},
		{`\b(vedette|visitor)_[A-Za-z0-9_-]{16,}`, "${1}_REDACTED"},
		{`AGE-SECRET-KEY-[A-Z0-9]+`, "REDACTED"},
		{`(?i)((?:password|passwd|secret|token|authorization)["']?\s*[:=]\s*(?:bearer\s+)?)("[^"]*"|'[^']*'|[^\s,;}]+)`, "${1}REDACTED"},
		{`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`, "REDACTED"},
	} {
		text = regexp.MustCompile(r.find).ReplaceAll(text, []byte(r.put))
	}
	return text
}
