package cameras

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Desired is what is wanted of one camera, credentials included.
type Desired struct {
	ID string
	// UID tells a camera from an earlier one of the same id.
	UID      string
	Camera   *vedettev1.Camera // not to be changed
	Password string
	Enabled  bool
	// Asked counts how often an attempt was asked for.
	Asked uint64
}

// Desired returns what is wanted of every camera, in order of their ids, the revision of that list, and a channel
// that is closed when there is a newer one.
func (r *Registry) Desired() (list []Desired, revision uint64, newer <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[id]
		list = append(list, Desired{ID: id, UID: e.camera.GetUid(), Camera: e.camera, Password: e.password, Enabled: e.enabled, Asked: e.asked})
	}
	return list, r.revision, r.changed
}

// List returns the cameras, or those among them that are named, in order of their ids, from the first after the id given.
func (r *Registry) List(after string, n int, among ...string) (list []*vedettev1.Camera, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		if id <= after || (len(among) > 0 && !slices.Contains(among, id)) {
			continue
		}
		if len(list) == n {
			return list, true
		}
		list = append(list, r.view(r.entries[id]))
	}
	return list, false
}

// SetStream keeps what ingest reports of a camera; nil: nothing is known (the sidecar is gone). The registry
// keeps s; the caller must not change it any more.
func (r *Registry) SetStream(id string, s *vedettev1.CameraStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil || proto.Equal(e.stream, s) {
		return
	}
	e.stream = s
	r.notifyLocked(id, vedettev1.ChangeKind_CHANGE_KIND_MODIFIED, r.view(e))
}

// ingestState is what is known of the ingest sidecar.
type ingestState int32

const (
	ingestGone ingestState = iota
	ingestUpgrading
	ingestOnline
	ingestSilent
)

// SetOnline says that ingest is connected: cameras it has not reported yet are about to connect.
func (r *Registry) SetOnline() { r.setIngest(ingestOnline) }

// SetUpgrading says that ingest answers and is of another version.
func (r *Registry) SetUpgrading() { r.setIngest(ingestUpgrading) }

// SetSilent says that ingest is connected and does not answer: what it reported is kept, and is not how the cameras are.
func (r *Registry) SetSilent() { r.setIngest(ingestSilent) }

func (r *Registry) setIngest(state ingestState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := ingestState(r.ingest.Swap(int32(state)))
	for id, e := range r.entries {
		if e.stream == nil || before == ingestSilent || state == ingestSilent {
			r.notifyLocked(id, vedettev1.ChangeKind_CHANGE_KIND_MODIFIED, r.view(e))
		}
	}
}

// ClearStreams forgets what ingest reported of every camera.
func (r *Registry) ClearStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ingest.Store(int32(ingestGone))
	for id, e := range r.entries {
		e.stream = nil
		r.notifyLocked(id, vedettev1.ChangeKind_CHANGE_KIND_MODIFIED, r.view(e))
	}
}

// SetAnalysis keeps what the pipeline reports of a camera. The registry keeps a.Drops; the caller must not change
// it any more.
func (r *Registry) SetAnalysis(id string, a Analysis) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		e.analysis = a
		r.notifyLocked(id, vedettev1.ChangeKind_CHANGE_KIND_MODIFIED, r.view(e))
	}
}

func (e *entry) status(ingest ingestState) *vedettev1.CameraStatus {
	s := &vedettev1.CameraStatus{State: vedettev1.CameraState_CAMERA_STATE_OFFLINE}
	switch ingest {
	case ingestGone:
		s.Reason, s.Message = "INGEST_UNAVAILABLE", "the ingest sidecar is not connected; cameras come back when it does"
	case ingestUpgrading:
		s.Reason, s.Message = "UPGRADING", "the ingest sidecar is of another version; cameras come back when both are of one (restart the older of vedette and vedette-ingest)"
	case ingestOnline, ingestSilent:
		s.State = vedettev1.CameraState_CAMERA_STATE_CONNECTING
	}
	if e.stream != nil {
		s = proto.CloneOf(e.stream)
	}
	if ingest == ingestSilent { // what it said last is old
		s.State, s.ReceivedFps, s.NextRetryTime = vedettev1.CameraState_CAMERA_STATE_OFFLINE, 0, nil
		s.Reason, s.Message = "INGEST_SILENT", "the ingest sidecar does not answer: its process is stopped, or stuck (vedette run starts it again after 15 s, systemd by its watchdog; otherwise restart vedette-ingest)"
	}
	if !e.enabled {
		s.State, s.Reason, s.Message, s.NextRetryTime = vedettev1.CameraState_CAMERA_STATE_DISABLED, "", "", nil
	}
	a := &e.analysis
	s.Sequence, s.AnalysedFrames, s.AnalysedFps, s.Drops = a.Sequence, a.Frames, a.FPS, maps.Clone(a.Drops)
	if s.State != vedettev1.CameraState_CAMERA_STATE_STREAMING || a.Sequence == 0 {
		s.AnalysedFps = 0 // the rate is that of the last seconds there were frames
	}
	s.AnalysisReason, s.AnalysisMessage, s.LimitedFps = a.Reason, a.Message, a.LimitedFPS
	if !a.LastFrame.IsZero() {
		s.LastFrameTime = timestamppb.New(a.LastFrame)
	}
	return s
}
