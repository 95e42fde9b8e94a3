package sinks

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// TestEventsAsONVIFHasThem checks topics (LocalTopic, then "&" and the values of Source) and items against the topics'
// message descriptions.
func TestEventsAsONVIFHasThem(t *testing.T) {
	at := timestamppb.New(time.UnixMilli(1_800_000_000_250))
	for kind, c := range map[string]struct {
		attributes  map[string]string
		topic, body string
	}{
		"line_crossed": {
			map[string]string{"line": "cameras/door/lines/step", "direction": "forward", "class": "person"},
			"RuleEngine/LineDetector/Crossed/&door/step",
			`{"UtcTime":"2027-01-15T08:00:00.250Z","Source":{"Rule":"step","VideoSource":"door"},"Data":{"ClassTypes":"person","Direction":"Right","ObjectId":"4-2"}}`,
		},
		"zone_entered": {
			map[string]string{"zone": "cameras/door/zones/mat"},
			"RuleEngine/FieldDetector/ObjectsInside/&door/mat",
			`{"UtcTime":"2027-01-15T08:00:00.250Z","Source":{"Rule":"mat","VideoSource":"door"},"Key":{"ObjectId":"4-2"},"Data":{"IsInside":true}}`,
		},
		"zone_occupied": {
			map[string]string{"zone": "cameras/door/zones/mat", "inside": "3"},
			"RuleEngine/CountAggregation/Counter/&door/mat",
			`{"UtcTime":"2027-01-15T08:00:00.250Z","Source":{"Rule":"mat","VideoSource":"door"},"Data":{"Count":3}}`,
		},
		"camera_state": {
			map[string]string{"state": "BACKOFF"},
			"VideoSource/SignalLoss/&door",
			`{"UtcTime":"2027-01-15T08:00:00.250Z","Source":{"Source":"door"},"Data":{"State":true}}`,
		},
		"clock_step": {nil, "", ""},
	} {
		e := &vedettev1.Event{Camera: "cameras/door", Type: kind, Time: at, Attributes: c.attributes}
		if kind != "camera_state" {
			e.Track = "cameras/door/tracks/4-2"
		}
		topic, body, ok := onvif(e)
		if topic != c.topic || string(body) != c.body || ok != (c.topic != "") {
			t.Errorf("%s: %s %s, %v", kind, topic, body, ok)
		}
	}
}
