// Package cameras is the register of cameras: what an operator wants of each, kept in the store, and what each is
// doing, as the ingest sidecar and the pipeline report it.
package cameras

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/store"
)

// Config is how a Registry is made. Store and Secrets are required.
type Config struct {
	Store   *store.Store
	Secrets *secret.Box
	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now is the time of status changes; nil: time.Now.
	Now func() time.Time
}

// Registry knows every camera. Safe for concurrent use once Load has returned.
type Registry struct {
	cfg Config

	changing sync.Mutex   // one change of the registrations at a time
	ingest   atomic.Int32 // an ingestState

	mu       sync.Mutex // guards what follows
	entries  map[string]*entry
	revision uint64
	changed  chan struct{} // closed and replaced when a registration changes
	watches  map[*Watch]struct{}
}

// entry is one camera: what is registered and what is known of it. Its protos are never changed once they are here.
type entry struct {
	camera   *vedettev1.Camera // without status
	password string
	enabled  bool
	asked    uint64                  // attempts, by an operator
	stream   *vedettev1.CameraStatus // what ingest reports; nil: nothing yet
	analysis Analysis
}

// Analysis is what the pipeline reports of a camera.
type Analysis struct {
	// Sequence is the open one; 0: none.
	Sequence int64
	// Frames analysed and frames dropped, by cause, since the appliance started.
	Frames int64
	Drops  map[string]int64
	// FPS is the rate of analysed frames over the last seconds.
	FPS float64
	// LastFrame is the capture time of the newest analysed frame.
	LastFrame time.Time
	// LimitedFPS is the rate the camera is held to while the box is overloaded; 0: what it asks for.
	LimitedFPS float64
	// Reason and Message say why analysis stands still; empty when it runs.
	Reason, Message string
}

// New returns an empty registry.
func New(cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Registry{cfg: cfg, entries: map[string]*entry{}, changed: make(chan struct{}), watches: map[*Watch]struct{}{}}
}

// Load reads the registrations from the store; call it once, before anything else. A camera whose password
// cannot be opened is loaded without it, and logged.
func (r *Registry) Load(ctx context.Context) error {
	for token := ""; ; {
		page, next, err := r.cfg.Store.List(ctx, store.Cameras, "", 1000, token)
		if err != nil {
			return fmt.Errorf("load the cameras: %w", err)
		}
		for i := range page {
			e, err := r.fromResource(page[i])
			if err != nil {
				r.cfg.Logger.Error("camera cannot be loaded as it was saved", slog.String("camera", page[i].Name), slog.Any("err", err))
			}
			if e != nil {
				r.put(e, vedettev1.ChangeKind_CHANGE_KIND_ADDED)
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// Create registers a camera under the id (empty: one is minted) and returns it. With validateOnly nothing is changed.
func (r *Registry) Create(ctx context.Context, id string, camera *vedettev1.Camera, validateOnly bool) (*vedettev1.Camera, error) {
	if id == "" {
		id = "cam-" + strings.ToLower(base32.HexEncoding.EncodeToString(randomBytes(5)))
	}
	camera = takenApart(camera)
	want := &vedettev1.Camera{
		PrivacyMasks: camera.GetPrivacyMasks(), DisplayName: camera.GetDisplayName(), Labels: camera.GetLabels(),
		Source: source(camera.GetSource()), Analysis: analysis(camera.GetAnalysis()), DesiredState: camera.GetDesiredState(),
		Recording: recording(camera.GetRecording()),
	}
	if err := validate(id, want, camera.GetSource().GetPassword()); err != nil {
		return nil, err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	if _, err := r.Get(Name(id)); err == nil {
		return nil, fmt.Errorf("camera %q: %w", id, store.ErrExists)
	}
	res, err := r.resource(id, want, camera.GetSource().GetPassword())
	if err != nil {
		return nil, err
	}
	if validateOnly {
		e, err := r.fromResource(res)
		if err != nil {
			return nil, err
		}
		return r.view(e), nil
	}
	if res, err = r.cfg.Store.Create(ctx, store.Cameras, res); err != nil {
		return nil, fmt.Errorf("register camera %q: %w", id, err)
	}
	return r.commit(res, vedettev1.ChangeKind_CHANGE_KIND_ADDED)
}

// Get returns the camera of that name (cameras/{camera}); the error is store.ErrNotFound.
func (r *Registry) Get(name string) (*vedettev1.Camera, error) {
	id, err := ID(name)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return nil, fmt.Errorf("camera %q: %w", id, store.ErrNotFound)
	}
	return r.view(e), nil
}

// Update changes the fields of camera.Name that paths names and returns the result. An etag in camera must be
// the registered one.
func (r *Registry) Update(ctx context.Context, camera *vedettev1.Camera, paths []string, validateOnly bool) (*vedettev1.Camera, error) {
	id, err := ID(camera.GetName())
	if err != nil {
		return nil, err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	old := r.entries[id]
	r.mu.Unlock()
	if old == nil {
		return nil, fmt.Errorf("camera %q: %w", id, store.ErrNotFound)
	}
	if camera.GetEtag() != "" && camera.GetEtag() != old.camera.GetEtag() {
		return nil, &store.ConflictError{Resource: camera.GetName(), Etag: old.camera.GetEtag()}
	}
	want := proto.CloneOf(old.camera)
	password, err := merge(want, old.password, camera, paths)
	if err != nil {
		return nil, err
	}
	if err := validate(id, want, password); err != nil {
		return nil, err
	}
	res, err := r.resource(id, want, password)
	if err != nil {
		return nil, err
	}
	res.Etag = old.camera.GetEtag()
	if validateOnly {
		res.UID, res.CreateTime, res.UpdateTime = old.camera.GetUid(), old.camera.GetCreateTime().AsTime(), old.camera.GetUpdateTime().AsTime()
		e, err := r.fromResource(res)
		if err != nil {
			return nil, err
		}
		e.stream, e.analysis = old.stream, old.analysis
		return r.view(e), nil
	}
	if res, err = r.cfg.Store.Update(ctx, store.Cameras, res); err != nil {
		return nil, fmt.Errorf("change camera %q: %w", id, err)
	}
	return r.commit(res, vedettev1.ChangeKind_CHANGE_KIND_MODIFIED)
}

// Ask has a camera that waits for its next attempt tried now; one that runs goes on. The error is store.ErrNotFound.
func (r *Registry) Ask(name string) error {
	id, err := ID(name)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return fmt.Errorf("camera %q: %w", id, store.ErrNotFound)
	}
	e.asked++
	r.registrationChangedLocked()
	return nil
}

// Delete forgets a registration. A non-empty etag must be the registered one.
func (r *Registry) Delete(ctx context.Context, name, etag string, validateOnly bool) error {
	id, err := ID(name)
	if err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	camera, err := r.Get(name)
	if err != nil {
		return err
	}
	if etag != "" && etag != camera.GetEtag() {
		return &store.ConflictError{Resource: name, Etag: camera.GetEtag()}
	}
	if validateOnly {
		return nil
	}
	if err := r.cfg.Store.Delete(ctx, store.Cameras, id, etag); err != nil {
		return fmt.Errorf("remove camera %q: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	delete(r.entries, id)
	r.registrationChangedLocked()
	r.notifyLocked(id, vedettev1.ChangeKind_CHANGE_KIND_REMOVED, r.view(e))
	return nil
}

// commit puts what the store now holds in place.
func (r *Registry) commit(res store.Resource, kind vedettev1.ChangeKind) (*vedettev1.Camera, error) {
	e, err := r.fromResource(res)
	if err != nil {
		return nil, err
	}
	return r.put(e, kind), nil
}

func (r *Registry) put(e *entry, kind vedettev1.ChangeKind) *vedettev1.Camera {
	id := strings.TrimPrefix(e.camera.GetName(), prefix)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.entries[id]; old != nil {
		e.stream, e.analysis, e.asked = old.stream, old.analysis, old.asked
	}
	r.entries[id] = e
	r.registrationChangedLocked()
	v := r.view(e)
	r.notifyLocked(id, kind, v)
	return v
}

func (r *Registry) registrationChangedLocked() {
	r.revision++
	close(r.changed)
	r.changed = make(chan struct{})
}

// view is the camera as the API shows it. What it returns is the caller's.
func (r *Registry) view(e *entry) *vedettev1.Camera {
	c := proto.CloneOf(e.camera)
	c.Status = e.status(ingestState(r.ingest.Load()))
	return c
}

// resource is the row of a camera.
func (r *Registry) resource(id string, camera *vedettev1.Camera, password string) (store.Resource, error) {
	spec, err := proto.Marshal(&vedettev1.Camera{Source: source(camera.GetSource()), PrivacyMasks: camera.GetPrivacyMasks(), Analysis: camera.GetAnalysis(), Recording: camera.GetRecording()})
	if err != nil {
		return store.Resource{}, fmt.Errorf("encode camera %q: %w", id, err)
	}
	res := store.Resource{
		Name: id, DisplayName: camera.GetDisplayName(), Labels: camera.GetLabels(), Spec: spec, Secret: []byte{},
		Enabled: camera.GetDesiredState() != vedettev1.DesiredState_DESIRED_STATE_DISABLED,
	}
	if password != "" {
		if res.Secret, err = r.cfg.Secrets.Seal(password); err != nil {
			return store.Resource{}, fmt.Errorf("camera %q: %w", id, err)
		}
	}
	return res, nil
}

// fromResource reads a row. With an error, the entry may still be usable.
func (r *Registry) fromResource(res store.Resource) (*entry, error) {
	spec := &vedettev1.Camera{}
	if err := proto.Unmarshal(res.Spec, spec); err != nil {
		return nil, fmt.Errorf("decode camera %q: %w", res.Name, err)
	}
	c := &vedettev1.Camera{
		Name: Name(res.Name), Uid: res.UID, Etag: res.Etag, DisplayName: res.DisplayName, Labels: res.Labels,
		Source: source(spec.GetSource()), PrivacyMasks: spec.GetPrivacyMasks(), Analysis: analysis(spec.GetAnalysis()), Recording: recording(spec.GetRecording()),
		DesiredState: vedettev1.DesiredState_DESIRED_STATE_ENABLED,
	}
	if !res.CreateTime.IsZero() {
		c.CreateTime, c.UpdateTime = timestamppb.New(res.CreateTime), timestamppb.New(res.UpdateTime)
	}
	if !res.Enabled {
		c.DesiredState = vedettev1.DesiredState_DESIRED_STATE_DISABLED
	}
	e := &entry{camera: c, enabled: res.Enabled}
	if len(res.Secret) == 0 {
		return e, nil
	}
	c.Source.PasswordSet = true
	var err error
	if e.password, err = r.cfg.Secrets.Unseal(res.Secret); err != nil {
		return e, fmt.Errorf("password of camera %q: %w", res.Name, err)
	}
	return e, nil
}

func analysis(a *vedettev1.Analysis) *vedettev1.Analysis {
	if a == nil {
		return &vedettev1.Analysis{}
	}
	return proto.CloneOf(a)
}

func recording(r *vedettev1.Recording) *vedettev1.Recording {
	if r == nil {
		return &vedettev1.Recording{}
	}
	return proto.CloneOf(r)
}

const prefix = "cameras/"

// Name returns the resource name of a camera: cameras/{id}.
func Name(id string) string { return prefix + id }

// ID returns the last part of a resource name.
func ID(name string) (string, error) {
	id, ok := strings.CutPrefix(name, prefix)
	if !ok || id == "" || strings.Contains(id, "/") {
		return "", &InvalidError{Violations: []Violation{{Field: "name", Description: fmt.Sprintf("%q is not of the form cameras/{camera}", name)}}}
	}
	return id, nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
