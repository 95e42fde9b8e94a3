package repeats_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vedette/vedette/internal/repeats"
)

func TestWhatIsLoggedOverAndOverIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(repeats.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), 10*time.Second))
		refused := errors.New("refused")
		for i := range 100 {
			log.Warn("no connection", slog.String("camera", "door"), slog.Any("err", refused), slog.Int("attempt", i))
		}
		log.Warn("no connection", slog.String("camera", "yard"), slog.Any("err", refused), slog.Int("attempt", 1))
		log.With(slog.String("part", "store")).Warn("no connection", slog.String("camera", "door"), slog.Any("err", refused))
		log.Error("no connection", slog.String("camera", "door"), slog.Any("err", refused), slog.Int("attempt", 1))
		if n := strings.Count(out.String(), "no connection"); n != 4 {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		out.Reset()
		time.Sleep(11 * time.Second)
		log.Warn("no connection", slog.String("camera", "door"), slog.Any("err", refused), slog.Int("attempt", 101))
		if !strings.Contains(out.String(), "repeated=99") {
			t.Errorf("the count is not told: %s", out.String())
		}
		out.Reset()
		for range 3 {
			log.Debug("detail")
		}
		if strings.Count(out.String(), "detail") != 3 {
			t.Errorf("details are missing: %s", out.String())
		}
	})
}
