package cli_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/cli"
	"github.com/vedette/vedette/appliance/rulebook"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/store"
)

// TestMain is also the program vedette, for scripts that call it.
func TestMain(m *testing.M) {
	if os.Getenv("VEDETTE_IS_THE_TEST") != "" {
		if err := cli.Run(context.Background(), cli.Env{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Executable: os.Args[0]}); err != nil {
			fmt.Fprintln(os.Stderr, "vedette:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// album gives every camera the same picture, and nothing else.
type album struct{ api.Pictures }

func (album) Picture(context.Context, api.PictureRequest) (*vedettev1.GetSnapshotResponse, error) {
	return &vedettev1.GetSnapshotResponse{Jpeg: []byte("jpeg"), CaptureTime: timestamppb.Now(), StreamEpoch: "e", Frame: 1}, nil
}

func (album) Probe(context.Context, *vedettev1.Source) (*vedettev1.ProbeCameraResponse, error) {
	return &vedettev1.ProbeCameraResponse{}, nil
}

// TestEveryMethodHasAnExampleThatWorks runs docs/api.md from its beginning to its end. What takes a camera that streams,
// or another client of gRPC, is marked box: cmd/vedette runs that.
func TestEveryMethodHasAnExampleThatWorks(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("vedette.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				name := string(f.Services().Get(i).Name()) + "." + string(f.Services().Get(i).Methods().Get(j).Name())
				if !regexp.MustCompile("\n## " + regexp.QuoteMeta(name) + "\n[^#]*```sh").Match(text) {
					t.Errorf("%s has no example in docs/api.md", name)
				}
			}
		}
		return true
	})
	for _, program := range []string{"curl", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the examples need " + program)
		}
	}
	env, dir := exampleBox(t)
	script := "set -xeuo pipefail\n"
	for _, block := range regexp.MustCompile("(?s)```sh( box)?\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if block[1] != "" {
			block[2] = "if false; then\n" + block[2] + "fi\n" // its syntax is checked
		}
		script += block[2]
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-3000):])
	}
	for _, name := range []string{"hall.jpg", "track.jpg", "event.jpg", "clip.mp4", "parts.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// exampleBox serves a box that has seen something, and tells the examples of it.
func exampleBox(t *testing.T) (env []string, work string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := store.New(store.Config{Dir: dir, Retention: store.Retention{MinFree: -1}})
	ctx, cancel := context.WithCancel(context.Background())
	storeCtx, cancelStore := context.WithCancel(context.Background())
	var serving, storing sync.WaitGroup
	storing.Go(func() {
		if err := s.Run(storeCtx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-s.Ready()
	secrets, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	web, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "run", "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	registry := cameras.New(cameras.Config{Store: s, Secrets: secrets})
	server := api.New(api.Config{
		Store: s, Cameras: registry, Pictures: album{}, HTTP: web, Local: local, System: func() *vedettev1.System { return &vedettev1.System{} },
		Rules: rulebook.New(rulebook.Config{Store: s, Cameras: registry}), Sinks: sinks.New(sinks.Config{Store: s, Secrets: secrets}),
		Doctor: func(context.Context) []*vedettev1.Finding { return nil },
		Bundle: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "archive"); return err },
	})
	serving.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("API: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		cancelStore()
		storing.Wait()
	})
	token, err := api.NewToken(ctx, s, "admin", api.Admin)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Second)
	seq, err := s.OpenSequence(ctx, store.Sequence{Camera: "hall"})
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string]string{"t.jpg": "jpeg", "e.jpg": "jpeg", "e.mp4": strings.Repeat("mp4 ", 100)} {
		if err := s.WriteMedia(at, file, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	id := store.TrackID{Sequence: seq, Local: 1}
	keep := func(b store.Batch) {
		done, err := s.Append(ctx, b)
		if err == nil {
			err = <-done
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b := store.Batch{
		Tracks: []store.Track{{ID: id, Camera: "hall", Class: "person", Start: at, End: at, State: store.TrackActive, Picture: "t.jpg"}},
		Events: []store.Event{{Camera: "hall", Type: "zone_entered", Time: at, Track: id}},
	}
	keep(b)
	n := b.Events[0].Seq
	keep(store.Batch{Media: []store.Media{
		{Event: n, Camera: "hall", Time: at, Kind: store.Snapshot, File: "e.jpg", Start: at, End: at},
		{Event: n, Camera: "hall", Time: at, Kind: store.Clip, File: "e.mp4", Start: at, End: at},
	}})
	work = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shim := fmt.Sprintf("#!/bin/sh\nVEDETTE_IS_THE_TEST=1 exec %q \"$@\"\n", self)
	if err := os.WriteFile(filepath.Join(work, "vedette"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{
		"PATH=" + work + ":" + os.Getenv("PATH"), "VEDETTE=http://" + web.Addr().String(), "TOKEN=" + token, "VEDETTE_DATA_DIR=" + dir,
		"TRACK=cameras/hall/tracks/" + id.String(), fmt.Sprintf("EVENT=cameras/hall/events/%d", n),
	}, work
}
