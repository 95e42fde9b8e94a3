package api

import (
	"testing"

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
		vedettev1.RuleService_QueryCounts_FullMethodName:         false,
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
