package sinks

import (
	"encoding/json"
	"strings"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// onvifEvent is an event as ONVIF's Core Specification has it in JSON over MQTT (section "MQTT JSON event format"), which
// Profile M asks for.
type onvifEvent struct {
	UtcTime string            `json:"UtcTime"`
	Source  map[string]string `json:"Source"`
	Key     map[string]string `json:"Key,omitempty"`
	Data    map[string]any    `json:"Data"`
}

// onvif gives the topic, below onvif-ej, and the payload of an event; false: ONVIF has no topic for it.
func onvif(e *vedettev1.Event) (topic string, body []byte, ok bool) {
	a := e.GetAttributes()
	camera := strings.TrimPrefix(e.GetCamera(), "cameras/")
	rule := lastPart(or(a["zone"], a["line"]))
	v := onvifEvent{
		UtcTime: e.GetTime().AsTime().UTC().Format("2006-01-02T15:04:05.000Z"), Source: map[string]string{"VideoSource": camera, "Rule": rule}, Data: map[string]any{},
	}
	if track := lastPart(e.GetTrack()); track != "" {
		v.Key = map[string]string{"ObjectId": track}
	}
	switch e.GetType() {
	case "line_crossed":
		topic = "RuleEngine/LineDetector/Crossed"
		v.Key = nil // it is no property
		if track := lastPart(e.GetTrack()); track != "" {
			v.Data["ObjectId"] = track
		}
		v.Data["Direction"] = map[string]string{"forward": "Right", "backward": "Left"}[a["direction"]] // as seen along the line
	case "zone_entered", "zone_left":
		topic = "RuleEngine/FieldDetector/ObjectsInside"
		v.Data["IsInside"] = e.GetType() == "zone_entered"
	case "zone_dwell", "zone_loitering":
		topic = "RuleEngine/LoiteringDetector/ObjectIsLoitering"
		v.Data["State"] = true
	case "zone_occupied", "zone_cleared":
		topic = "RuleEngine/CountAggregation/Counter"
		v.Key = nil // it counts all of them
		v.Data["Count"] = json.Number(or(a["inside"], "0"))
	case "camera_state":
		topic = "VideoSource/SignalLoss"
		v.Source = map[string]string{"Source": camera}
		v.Data["State"] = a["state"] != "STREAMING"
	default:
		return "", nil, false
	}
	if class := a["class"]; class != "" {
		v.Data["ClassTypes"] = class
	}
	body, err := json.Marshal(v)
	topic += "/&" + level(camera) // the values of Source
	if rule != "" {
		topic += "/" + level(rule)
	}
	return topic, body, err == nil && e.GetTime().AsTime().After(time.Time{})
}
