package cli

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

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type bundleCommand struct {
	client
	File string `arg:"" optional:"" type:"path" default:"vedette-support.tar.gz" help:"Where to write it (${default})."`
}

// Run writes the bundle. A part that cannot be had is replaced by the reason.
func (c *bundleCommand) Run(ctx context.Context, env *Env, g *grammar) (err error) {
	f, err := os.OpenFile(c.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the support bundle: %w (name another file)", err)
	}
	zip := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zip)}
	defer func() {
		err = errors.Join(err, b.tar.Close(), zip.Close(), f.Close())
		if err == nil {
			_, err = fmt.Fprintf(env.Stdout, "%s: read it before you send it; passwords, keys and tokens are left out\n", c.File)
		}
	}()
	b.add("version.txt", func() ([]byte, error) {
		return fmt.Appendf(nil, "vedette %s\n%s %s/%s, %d cores\n", env.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), nil
	})
	b.add("doctor.json", func() ([]byte, error) {
		return json.MarshalIndent((&doctorCommand{HTTP: "127.0.0.1:8080", GRPC: "127.0.0.1:8090"}).examine(ctx, env, g), "", "  ")
	})
	b.add("config.yaml", func() ([]byte, error) { return os.ReadFile(packagedSettings) })
	b.add("data.txt", func() ([]byte, error) { return listing(g.DataDir) })
	for _, name := range []string{"/proc/loadavg", "/proc/meminfo", "/etc/os-release"} {
		b.add("machine/"+filepath.Base(name)+".txt", func() ([]byte, error) { return os.ReadFile(name) })
	}
	b.add("system.json", func() ([]byte, error) { return c.ask(ctx, g, system) })
	b.add("cameras.json", func() ([]byte, error) { return c.ask(ctx, g, allCameras) })
	b.add("journal.txt", func() ([]byte, error) {
		return exec.CommandContext(ctx, "journalctl", "-u", "vedette*", "-n", "5000", "--no-pager", "-o", "short-iso-precise").CombinedOutput()
	})
	return b.err
}

// ask calls the running appliance.
func (c *bundleCommand) ask(ctx context.Context, g *grammar, call func(context.Context, *grpc.ClientConn) (proto.Message, error)) ([]byte, error) {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	m, err := call(ctx, conn)
	if err != nil {
		return nil, plain(err)
	}
	return protojson.MarshalOptions{Multiline: true}.Marshal(m)
}

func system(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
	return vedettev1.NewSystemServiceClient(conn).GetSystem(ctx, &vedettev1.GetSystemRequest{})
}

func allCameras(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
	return vedettev1.NewCameraServiceClient(conn).ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000})
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
		_, b.err = io.Copy(b.tar, bytes.NewReader(text))
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
