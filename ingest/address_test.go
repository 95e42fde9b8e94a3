package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vedette/vedette/ingest"
)

func TestCheckNamesEveryFault(t *testing.T) {
	err := ingest.Camera{
		Address: "ftp://x", MainAddress: "http://x", AnalysisRate: -1, Slots: 1, Masks: []ingest.Mask{{{X: 0}}, {{X: 2}, {X: 0}, {X: 1}}},
		Gate: &ingest.Gate{Threshold: 2},
	}.Check()
	for _, want := range []string{"name:", "address:", "main_address:", "analysis_rate:", "slots:", "privacy_masks[0]:", "privacy_masks[1]:", "motion_gate:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among %v", want, err)
		}
	}
	for _, address := range []string{"rtsp://x/", "https://x/video.mjpg", "file:///srv/clips"} {
		if err := (ingest.Camera{Name: "a", Address: address}).Check(); err != nil {
			t.Errorf("a good camera at %s: %v", address, err)
		}
	}
}

func TestACameraPrintsNoCredentials(t *testing.T) {
	c := ingest.Camera{Name: "door", Username: "canary-u", Password: "canary-p"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "canary") {
			t.Errorf("%s prints %s", format, s)
		}
	}
}

func TestTicksAndDurationsAgree(t *testing.T) {
	for _, ticks := range []ingest.Ticks{0, 1, -1, 90000, 3003, 1 << 48, -(1 << 48)} {
		if got := ingest.TicksOf(ticks.Duration()); got != ticks && got != ticks-1 && got != ticks+1 {
			t.Errorf("%d ticks came back as %d", ticks, got)
		}
	}
}
