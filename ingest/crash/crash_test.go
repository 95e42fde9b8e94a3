package crash_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest/crash"
)

const name = "front \"door\"\n1}"

// TestMain is also the process that crashes.
func TestMain(m *testing.M) {
	how := os.Getenv("CRASH")
	if how == "" {
		os.Exit(m.Run())
	}
	if _, err := crash.Watch(os.Getenv("CRASH_FILE")); err != nil {
		panic(err)
	}
	crash.Blame(context.Background(), name, func(context.Context) {
		done := make(chan struct{})
		go func() { // whoever works for a camera does not know that it is labelled
			defer close(done)
			fail(how)
		}()
		<-done
	})
}

func fail(how string) {
	switch how {
	case "fault":
		b, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err == nil {
			b[0] = 1
		}
	case "panic":
		panic("rtsp://admin:hunter2@camera")
	case "bounds":
		_ = make([]byte, len(how))[len(how)]
	}
}

func TestACrashNamesItsCameraAndTellsNoSecret(t *testing.T) {
	for how, text := range map[string]string{"fault": "SIGSEGV", "panic": "panic", "bounds": "index out of range"} {
		file := filepath.Join(t.TempDir(), "crash")
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "CRASH="+how, "CRASH_FILE="+file, "GODEBUG="+crash.Setting)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("%s: the process lived: %s", how, out)
		}
		r, err := crash.Read(file)
		if err != nil || r == nil {
			t.Fatalf("%s: %v, %v", how, r, err)
		}
		if r.Camera != name || !strings.Contains(r.Text, text) || strings.Contains(r.Text, "hunter2") {
			t.Errorf("%s: %+v", how, r)
		}
	}
}

func TestTheLedgerCountsAcrossProcessesAndForgivesAnotherSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l, err := crash.OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if err := l.Add(crash.Record{Camera: "door", Text: "SIGSEGV"}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if l, err = crash.OpenLedger(path); err != nil {
			t.Fatal(err)
		}
		if e, err := l.Entry("door", "a"); err != nil || e.Count != n || e.Text != "SIGSEGV" {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if e, err := l.Entry("gate", "a"); err != nil || e.Count != 0 {
		t.Errorf("another camera: %+v, %v", e, err)
	}
	for range 2 {
		if e, err := l.Entry("door", "b"); err != nil || e.Count != 0 {
			t.Errorf("another address: %+v, %v", e, err)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := crash.OpenLedger(path); err == nil || l == nil {
		t.Errorf("half a ledger: %v, %v", l, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("SIGSEGV: segmentation violation\nPC=0x4b6299 m=0\n\ngoroutine 7 gp=0x1 m=0 [syscall labels:{\"camera\": \"do\\\"or 1\\n}\"}]:\n"))
	f.Add([]byte("goroutine 1 [running labels:{\"a\": \"b\", \"camera\": \"c\"}]:"))
	f.Add([]byte("panic: x\n\ngoroutine 1 [running]:\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := crash.Parse(b)
		if r.Text == "" || len(r.Text) > 200 {
			t.Errorf("text %q", r.Text)
		}
		if r.Camera != "" && !bytes.Contains(b, []byte(`"camera": `)) {
			t.Errorf("camera %s from nowhere", strconv.Quote(r.Camera))
		}
	})
}
