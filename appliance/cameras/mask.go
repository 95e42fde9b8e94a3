package cameras

import (
	"slices"

	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// merge puts the fields of from that paths names into camera and returns the password that results. Without
// paths, what is set in from counts.
func merge(camera *vedettev1.Camera, password string, from *vedettev1.Camera, paths []string) (string, error) {
	if len(paths) == 0 {
		if paths = setPaths(from); len(paths) == 0 {
			return "", &InvalidError{Violations: []Violation{{Field: "update_mask", Description: "nothing would change: set a field or name one here"}}}
		}
	}
	if slices.Equal(paths, []string{"*"}) { // the whole camera
		paths = []string{"display_name", "labels", "source", "analysis", "recording", "privacy_masks", "desired_state"}
	}
	if from.GetSource() != nil {
		from = proto.CloneOf(from)
		if SplitSource(from.Source) {
			paths = withCredentials(paths)
		}
	}
	faults := &InvalidError{}
	src, ana := from.GetSource(), analysis(from.GetAnalysis())
	for _, path := range paths {
		switch path {
		case "display_name":
			camera.DisplayName = from.GetDisplayName()
		case "labels":
			camera.Labels = from.GetLabels()
		case "desired_state":
			camera.DesiredState = from.GetDesiredState()
		case "source":
			camera.Source = source(src)
			if src.GetPassword() != "" {
				password = src.GetPassword()
			}
			if src.GetUsername() == "" {
				password = ""
			}
		case "source.uri":
			camera.Source.Uri = src.GetUri()
		case "source.username":
			camera.Source.Username = src.GetUsername()
		case "source.password":
			password = src.GetPassword()
		case "source.transport":
			camera.Source.Transport = src.GetTransport()
		case "source.main_uri":
			camera.Source.MainUri = src.GetMainUri()
		case "source.keep_main":
			camera.Source.KeepMain = src.GetKeepMain()
		case "source.tls":
			camera.Source.Tls = src.GetTls()
		case "source.loop":
			camera.Source.Loop = src.GetLoop()
		case "source.pre_roll_bytes":
			camera.Source.PreRollBytes = src.GetPreRollBytes()
		case "privacy_masks":
			camera.PrivacyMasks = from.GetPrivacyMasks()
		case "source.decoders":
			camera.Source.Decoders = src.GetDecoders()
		case "source.isolation":
			camera.Source.Isolation = src.GetIsolation()
		case "analysis":
			camera.Analysis = ana
		case "analysis.fps":
			camera.Analysis.Fps = ana.GetFps()
		case "analysis.pipeline":
			camera.Analysis.Pipeline = ana.GetPipeline()
		case "analysis.paused":
			camera.Analysis.Paused = ana.GetPaused()
		case "analysis.every_frame":
			camera.Analysis.EveryFrame = ana.GetEveryFrame()
		case "analysis.staleness_budget":
			camera.Analysis.StalenessBudget = ana.GetStalenessBudget()
		case "recording":
			camera.Recording = recording(from.GetRecording())
		case "recording.no_pictures":
			camera.Recording.NoPictures = from.GetRecording().GetNoPictures()
		case "recording.clip":
			camera.Recording.Clip = from.GetRecording().GetClip()
		case "analysis.priority":
			camera.Analysis.Priority = ana.GetPriority()
		case "analysis.motion_gate":
			camera.Analysis.MotionGate = ana.GetMotionGate()
		case "name", "etag": // identify, do not change
		case "uid", "create_time", "update_time", "status", "source.password_set":
			faults.add("update_mask", "%q cannot be set: it is the box's own", path)
		default:
			faults.add("update_mask", "%q is no field of a camera", path)
		}
	}
	if len(faults.Violations) > 0 {
		return "", faults
	}
	return password, nil
}

// setPaths lists what is set in a camera.
func setPaths(c *vedettev1.Camera) []string {
	var paths []string
	for path, set := range map[string]bool{
		"display_name":  c.GetDisplayName() != "",
		"labels":        len(c.GetLabels()) > 0,
		"privacy_masks": len(c.GetPrivacyMasks()) > 0,
		"desired_state": c.GetDesiredState() != vedettev1.DesiredState_DESIRED_STATE_UNSPECIFIED,
		"analysis":      c.GetAnalysis() != nil,
		"recording":     c.GetRecording() != nil,
	} {
		if set {
			paths = append(paths, path)
		}
	}
	if s := c.GetSource(); s != nil && !proto.Equal(s, &vedettev1.Source{}) {
		for path, set := range map[string]bool{
			"source.uri":       s.GetUri() != "",
			"source.username":  s.GetUsername() != "",
			"source.password":  s.GetPassword() != "",
			"source.transport": s.GetTransport() != 0,

			"source.main_uri": s.GetMainUri() != "", "source.keep_main": s.GetKeepMain(), "source.tls": s.GetTls() != nil,
			"source.loop": s.GetLoop(), "source.pre_roll_bytes": s.GetPreRollBytes() != 0,
			"source.decoders":  len(s.GetDecoders()) > 0,
			"source.isolation": s.GetIsolation() != 0,
		} {
			if set {
				paths = append(paths, path)
			}
		}
	}
	return paths
}
