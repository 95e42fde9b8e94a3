package rtsp_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"go.uber.org/goleak"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/rtsp"
	"github.com/vedette/vedette/internal/rtsptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// viewer ends its session at the first picture.
type viewer struct {
	end  context.CancelFunc
	once sync.Once
}

func (*viewer) Reached(ingest.Stage)             {}
func (*viewer) Stream(ingest.Stream)             {}
func (*viewer) SenderReport(ingest.SenderReport) {}
func (*viewer) Packets(_, _, _, _ uint64)        {}
func (v *viewer) AccessUnit(ingest.AccessUnit)   { v.once.Do(v.end) }

// Media are still on their way when a session ends; a camera whose connection is reset by what nobody read any more may
// never see the TEARDOWN before it.
func TestEverySessionEndsWithATeardownThatTheCameraHears(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 640, Height: 360, Frames: 25, GOP: 1, Source: "testsrc2", Extra: []string{"-qp", "5"}})
	for _, transport := range []ingest.Transport{ingest.TransportTCP, ingest.TransportUDP} {
		cam := rtsptest.Start(t, rtsptest.Config{Clip: clip, UDP: true, Speed: 4})
		const sessions = 20
		for range sessions {
			ctx, cancel := context.WithCancel(t.Context())
			v := &viewer{end: cancel}
			if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address(), Transport: transport}}).Run(ctx, v); err != nil {
				t.Fatal(err)
			}
			cancel()
			if open, _, most := cam.Sessions(); open > 0 || most > 1 {
				t.Errorf("%d sessions open after Run has returned, %d at once", open, most)
			}
		}
		if n := cam.Requests(base.Teardown); n != sessions {
			t.Errorf("transport %d: the camera heard %d of %d goodbyes", transport, n, sessions)
		}
	}
}

func TestACameraThatClearsAwayTheRefusedTransportFirstIsAskedAgain(t *testing.T) {
	var setups, refusals atomic.Int32
	cam := rtsptest.Start(t, rtsptest.Config{
		Clip: rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64, GOP: 5}), UDP: true, NoTCP: true,
		Request: func(method base.Method, _ <-chan struct{}) *base.Response {
			switch {
			case method == base.Setup:
				setups.Add(1)
			case method == base.Describe && setups.Load() == 1 && refusals.Add(1) <= 2:
				return &base.Response{StatusCode: base.StatusServiceUnavailable}
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address()}}).Run(ctx, &viewer{end: cancel}); err != nil || refusals.Load() != 3 {
		t.Errorf("%v after %d refusals", err, refusals.Load()-1)
	}
}

// discard ignores everything.
type discard struct{ viewer }

func (*discard) AccessUnit(ingest.AccessUnit) {}

func TestPacketsTooLargeForADatagramAreNamed(t *testing.T) {
	var fault rtsptest.Fault
	for _, f := range rtsptest.Faults() {
		if f.Name == "packets larger than a datagram" {
			fault = f
		}
	}
	cam := fault.Start(t, rtsptest.Render(t, rtsptest.ClipConfig{Width: 64, Height: 64}))
	defer cam.Close()
	err := rtsp.New(rtsp.Config{Camera: ingest.Camera{Name: "door", Address: cam.Address(), Transport: ingest.TransportUDP}}).Run(t.Context(), &discard{})
	if e := ingest.AsError(err); err == nil || e.Reason != ingest.ReasonTransportRefused || !strings.Contains(e.Error(), "TCP") {
		t.Errorf("got %v", err)
	}
}
