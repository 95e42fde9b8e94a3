package doctor_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/doctor"
	"github.com/vedette/vedette/store"
)

func find(t *testing.T, list []doctor.Finding, check string) doctor.Finding {
	t.Helper()
	for _, f := range list {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no finding of the check %s in %v", check, list)
	return doctor.Finding{}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFaultIsFoundAndSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	write(t, filepath.Join(dir, "root/proc/meminfo"), "MemTotal: 100 kB\nMemAvailable:     2048 kB\n")
	write(t, filepath.Join(dir, "root/proc/cpuinfo"), "processor: 0\nflags\t\t: fpu sse4_2\n")
	write(t, filepath.Join(dir, "root/proc/sys/net/core/rmem_max"), "4096\n")
	write(t, filepath.Join(dir, "root/proc/sys/fs/file-nr"), "99000\t0\t100000\n")
	write(t, filepath.Join(dir, "models/pipeline/config.pbtxt"), "x")
	write(t, filepath.Join(dir, "library.so"), "no library")
	write(t, filepath.Join(dir, "data/secret.key"), "k")
	if err := os.Chmod(filepath.Join(dir, "data/secret.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	list := doctor.Check(t.Context(), doctor.Config{
		Root: filepath.Join(dir, "root"), DataDir: filepath.Join(dir, "data"), Models: filepath.Join(dir, "models"),
		Library: filepath.Join(dir, "library.so"), Programs: dir, Ports: []string{ln.Addr().String()},
	})
	for check, want := range map[string]doctor.Severity{
		"memory": doctor.Warning, "kernel": doctor.Warning, "cpu": doctor.Warning, "secret-key": doctor.Error, "program": doctor.Error,
		"onnxruntime": doctor.Error, "models": doctor.Error, "port": doctor.Error,
	} {
		f := find(t, list, check)
		if f.Severity != want || f.Advice == "" {
			t.Errorf("%s: %+v, want %s and an advice", check, f, want)
		}
	}
	if doctor.Worst(list) != doctor.Error {
		t.Errorf("the worst is %s", doctor.Worst(list))
	}
}

func TestASinkThatDoesNotGetThroughIsTold(t *testing.T) {
	failing := map[string]*vedettev1.DeliveryStatus{}
	look := func() (list []doctor.Finding) {
		for _, f := range doctor.Check(t.Context(), doctor.Config{Sinks: func() map[string]*vedettev1.DeliveryStatus { return failing }}) {
			if f.Check == "sinks" {
				list = append(list, f)
			}
		}
		return list
	}
	if list := look(); len(list) != 1 || list[0].Severity != doctor.OK {
		t.Errorf("when all get through: %+v", list)
	}
	failing["hook"] = &vedettev1.DeliveryStatus{Message: "the webhook answered 500", OldestWaitingTime: timestamppb.New(time.Unix(1_900_000_000, 0))}
	if list := look(); len(list) != 1 || list[0].Severity != doctor.Warning || list[0].Message != "sink hook: the webhook answered 500, and events wait since 2030-03-17 17:46:40 UTC" {
		t.Errorf("when one does not: %+v", list)
	}
}

func TestAHealthyBoxPasses(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "proc/meminfo"), "MemAvailable:     8000000 kB\n")
	write(t, filepath.Join(dir, "proc/cpuinfo"), "flags\t\t: fpu avx2 avx512f\n")
	about := func(what string) string {
		return `parameters { key: "description" value { string_value: "` + what + `" } }`
	}
	write(t, filepath.Join(dir, "models/tracker/config.pbtxt"), "x")
	write(t, filepath.Join(dir, "models/pipeline/config.pbtxt"), about("a toy"))
	write(t, filepath.Join(dir, "data/models/strong/config.pbtxt"), about("a strong one"))
	write(t, filepath.Join(dir, "data/models/strong-boxes/config.pbtxt"), "name: \"x\"")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := doctor.Check(t.Context(), doctor.Config{Root: dir, DataDir: filepath.Join(dir, "data"), Models: filepath.Join(dir, "models"), Library: self, Ports: []string{"127.0.0.1:0"}})
	for _, check := range []string{"memory", "kernel", "cpu", "gpu", "models", "onnxruntime", "port"} {
		if f := find(t, list, check); f.Severity != doctor.OK || f.Message == "" {
			t.Errorf("%s: %+v", check, f)
		}
	}
	want := "cameras that name no pipeline run a toy; strong is a strong one"
	if f := find(t, list, "detector"); f.Message != want || !strings.Contains(f.Advice, "vedette model pull") {
		t.Errorf("%+v, want %s and how to get a stronger one", f, want)
	}
	list = doctor.Check(t.Context(), doctor.Config{Root: dir, DataDir: filepath.Join(dir, "not", "yet")})
	if f := find(t, list, "disk"); !strings.Contains(f.Message, dir) {
		t.Errorf("a data directory that is yet to be made is judged by %q", f.Message)
	}
	for pressure, want := range map[store.Pressure]doctor.Severity{
		store.Normal: doctor.OK, store.Warn: doctor.Warning, store.ShedSnapshots: doctor.Error, store.ShedDetections: doctor.Error,
	} {
		list = doctor.Check(t.Context(), doctor.Config{Root: dir, DataDir: dir, Pressure: func() store.Pressure { return pressure }})
		if f := find(t, list, "disk"); f.Severity != want {
			t.Errorf("a store whose disk is %v: %+v, want %s", pressure, f, want)
		}
	}
}
