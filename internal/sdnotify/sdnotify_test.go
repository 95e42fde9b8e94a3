package sdnotify_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/sdnotify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadyReachesTheSocketOfTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	for want, send := range map[string]func() error{
		"READY=1":     sdnotify.Ready,
		"STOPPING=1":  sdnotify.Stopping,
		"STATUS=fine": func() error { return sdnotify.Status("fine") },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b[:n]); got != want {
			t.Errorf("systemd was told %q, want %q", got, want)
		}
	}
}

func TestContextEndsWhenTheSupervisorIsGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(r.Fd())) // the function under test takes the descriptor for itself
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	t.Setenv(sdnotify.LifelineEnv, strconv.Itoa(fd))
	ctx, cancel, err := sdnotify.WithSupervisor(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	if ctx.Err() != nil {
		t.Fatal("ended while the supervisor lives")
	}
	if os.Getenv(sdnotify.LifelineEnv) != "" {
		t.Error("the variable is still there for grandchildren to misunderstand")
	}
	_ = w.Close()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), sdnotify.ErrSupervisorGone) {
		t.Errorf("cause %v, want ErrSupervisorGone", context.Cause(ctx))
	}
}

func TestCancelReleasesTheLifelineWhileTheSupervisorLives(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	fd, err := unix.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	t.Setenv(sdnotify.LifelineEnv, strconv.Itoa(fd))
	ctx, cancel, err := sdnotify.WithSupervisor(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("cause %v, want context.Canceled", context.Cause(ctx))
	}
}

func TestLifelineThatIsNoDescriptorIsRefused(t *testing.T) {
	for _, text := range []string{"x", "1", "-4"} {
		t.Setenv(sdnotify.LifelineEnv, text)
		if _, _, err := sdnotify.WithSupervisor(context.Background()); err == nil || !strings.Contains(err.Error(), sdnotify.LifelineEnv) {
			t.Errorf("%q: error %v does not name the variable", text, err)
		}
	}
}
