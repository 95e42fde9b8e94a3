package api

import (
	"strings"
	"testing"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

func TestMethodsThatTellOfAllCamerasAreClosedToATokenForSome(t *testing.T) {
	a := access{Role: Operator, Cameras: []string{"door"}}
	for method, want := range map[string]bool{
		vedettev1.CameraService_ListCameras_FullMethodName:       true,
		vedettev1.AnalyticsService_WatchAnalytics_FullMethodName: true,
		vedettev1.RuleService_ListZones_FullMethodName:           true,
		vedettev1.CameraService_CreateCamera_FullMethodName:      false,
		vedettev1.CameraService_ProbeCamera_FullMethodName:       false,
		vedettev1.RuleService_QueryCounts_FullMethodName:         true,
		vedettev1.SystemService_ListFindings_FullMethodName:      false,
		vedettev1.SystemService_GetSupportBundle_FullMethodName:  false,
		vedettev1.SinkService_ListSinks_FullMethodName:           false,
		vedettev1.TokenService_ListTokens_FullMethodName:         false,
		"/vedette.v1.SomethingNew/List":                          false,
	} {
		if got := a.open(method); got != want {
			t.Errorf("%s is open: %v, want %v", method, got, want)
		}
	}
}

func TestATokensLimitSurvivesTheStoreAndADamagedOneOpensNothing(t *testing.T) {
	for _, a := range []access{{Role: Viewer}, {Role: Operator, Cameras: []string{"door", "yard"}}} {
		got, err := parseAccess(a.spec())
		if err != nil || got.Role != a.Role || len(got.Cameras) != len(a.Cameras) {
			t.Errorf("%+v came back as %+v (%v)", a, got, err)
		}
	}
	for _, spec := range []string{"{", `{"role":"viewer"}`, `{"role":"viewer","cameras":[]}`} {
		if a, err := parseAccess([]byte(spec)); err == nil {
			t.Errorf("%s opens %+v", spec, a)
		}
	}
}

func TestAsManyStreamsAsAWallNeedsAreOpenWithAToken(t *testing.T) {
	var c calls
	var last func()
	for range maxStreams {
		_, last = c.begin(t.Context(), access{token: "wall"}, time.Now())
		defer last()
	}
	if err := c.room("wall"); err == nil || !strings.Contains(err.Error(), "500 streams") {
		t.Errorf("one more: %v", err)
	}
	if err := c.room("other"); err != nil {
		t.Errorf("with another token: %v", err)
	}
	last()
	if err := c.room("wall"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
