package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// Phase is where a box is with the state it follows.
type Phase string

// The phases. A state that was refused or rolled back is not tried again until there is another.
const (
	Waiting    Phase = "WAITING"     // nothing was read yet
	Applying   Phase = "APPLYING"    // a state is being put in place
	Checking   Phase = "CHECKING"    // it is in place; the cameras have to come back
	Running    Phase = "RUNNING"     // the newest state is in place
	Refused    Phase = "REFUSED"     // the newest state is damaged, unsigned, or one the box would not take; the one before holds
	RolledBack Phase = "ROLLED_BACK" // the newest state did harm; the one before is in place again
)

// Status is what a box tells of itself.
type Status struct {
	ID      string    `json:"id"` // no other box has it
	Box     string    `json:"box"`
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	Phase   Phase     `json:"phase"`
	// Desired is the digest of the newest state, Applied that of the one in place.
	Desired string `json:"desired,omitempty"`
	Applied string `json:"applied,omitempty"`
	// Why the phase is what it is; empty when all is well.
	Message   string            `json:"message,omitempty"`
	Cameras   int               `json:"cameras"`
	Streaming int               `json:"streaming"`
	Processes map[string]string `json:"processes,omitempty"`
}

// FollowConfig is how a Follower is made. Source, Dir and Conn are required.
type FollowConfig struct {
	// Source of the state: oci://HOST/REPOSITORY:TAG, or the path of a file.
	Source string
	// Key, when set, is whose signature a state must bear.
	Key ed25519.PublicKey
	// Dir keeps the states in place.
	Dir string
	// Conn is to the box's own API.
	Conn grpc.ClientConnInterface
	// ID tells this box from every other; empty: its name does. Box is its name.
	ID, Box string
	// Report, when set, receives the status after every look and change.
	Report func(ctx context.Context, s Status) error
	// Interval between looks; 0: 30 s. Settle is how long cameras may take to come back after a change; 0: 60 s.
	Interval, Settle time.Duration
	// Logger, nil: discarded.
	Logger *slog.Logger
}

// Follower keeps a box in the state that a file or a registry has for it.
type Follower struct {
	cfg     FollowConfig
	source  source
	status  Status
	refused string // digest that is not tried again
}

// Follow returns a follower that Run starts.
func Follow(cfg FollowConfig) (*Follower, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = 30 * time.Second
	}
	if cfg.Settle <= 0 {
		cfg.Settle = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := newSource(cfg.Source)
	if err != nil {
		return nil, err
	}
	f := &Follower{cfg: cfg, source: s, status: Status{ID: cmp.Or(cfg.ID, cfg.Box), Box: cfg.Box, Phase: Waiting}}
	if text, err := f.inPlace(); err == nil {
		f.status.Applied = digestOf(text)
	}
	return f, nil
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("follow %s: %w", f.cfg.Source, err)
	}
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		if err := f.Look(ctx); err != nil && ctx.Err() == nil {
			f.cfg.Logger.Warn("the desired state is not followed", slog.String("source", f.cfg.Source), slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look looks for a newer state once, and puts it in place.
func (f *Follower) Look(ctx context.Context) error {
	err := f.look(ctx)
	if err != nil {
		f.status.Message = err.Error()
	}
	return errors.Join(err, f.tell(ctx))
}

func (f *Follower) look(ctx context.Context) error {
	digest, err := f.source.newest(ctx)
	if err != nil {
		return fmt.Errorf("look for the newest state: %w", err)
	}
	if digest == f.refused {
		return nil // told already
	}
	text, signature, err := f.source.fetch(ctx, digest)
	if err != nil {
		return fmt.Errorf("fetch the newest state: %w", err)
	}
	f.status.Desired = digestOf(text)
	if f.status.Desired == f.status.Applied {
		f.status.Phase, f.status.Message = Running, ""
		return nil
	}
	if f.cfg.Key != nil && !ed25519.Verify(f.cfg.Key, text, signature) {
		return f.refuse(digest, Refused, errors.New("it does not bear the signature this box asks for"))
	}
	state, err := Read(bytes.NewReader(text))
	if err != nil {
		return f.refuse(digest, Refused, err)
	}
	before, err := f.inPlace()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.put(ctx, state); err != nil {
		if before == nil || errors.Is(err, errRefused) {
			return f.refuse(digest, Refused, err)
		}
		return f.back(ctx, digest, before, err)
	}
	if err := f.swap(text); err != nil {
		return err
	}
	f.status.Applied, f.status.Phase, f.status.Message, f.refused = f.status.Desired, Running, "", ""
	f.cfg.Logger.Info("a new state is in place", slog.String("digest", f.status.Applied))
	return nil
}

var errRefused = errors.New("the box would not take it")

// put brings a state about and waits for the cameras. It changes nothing when the error is errRefused.
func (f *Follower) put(ctx context.Context, state *State) error {
	plan, err := Plan(ctx, f.cfg.Conn, state, Options{Prune: true})
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	f.status.Phase, f.status.Message = Applying, ""
	if err := f.tell(ctx); err != nil {
		f.cfg.Logger.Warn("the status could not be reported", slog.Any("err", err))
	}
	streaming, err := f.streaming(ctx)
	if err != nil {
		return err
	}
	if done, err := Apply(ctx, plan); err != nil {
		return fmt.Errorf("after %d of %d changes: %w", done, len(plan), err)
	}
	f.status.Phase = Checking
	return f.settle(ctx, streaming)
}

// settle waits until every camera streams that did before and still should.
func (f *Follower) settle(ctx context.Context, before map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Settle)
	defer cancel()
	tick := time.NewTicker(min(time.Second, f.cfg.Settle/10))
	defer tick.Stop()
	var lost []string
	for {
		if now, err := f.lost(ctx, before); err == nil {
			if lost = now; len(lost) == 0 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("cameras that streamed before do not any more: %v", lost)
		}
	}
}

func (f *Follower) cameras(ctx context.Context) ([]*vedettev1.Camera, error) {
	list, err := kinds(f.cfg.Conn, false)[0].list(ctx)
	cameras := make([]*vedettev1.Camera, len(list))
	for i, m := range list {
		cameras[i] = m.(*vedettev1.Camera)
	}
	return cameras, err
}

func streams(c *vedettev1.Camera) bool {
	return c.GetStatus().GetState() == vedettev1.CameraState_CAMERA_STATE_STREAMING
}

func (f *Follower) streaming(ctx context.Context) (map[string]bool, error) {
	list, err := f.cameras(ctx)
	now := map[string]bool{}
	for _, c := range list {
		if streams(c) {
			now[c.GetName()] = true
		}
	}
	return now, err
}

// lost lists the cameras that streamed, are wanted, and do not stream.
func (f *Follower) lost(ctx context.Context, before map[string]bool) (lost []string, err error) {
	list, err := f.cameras(ctx)
	for _, c := range list {
		if before[c.GetName()] && !streams(c) && c.GetDesiredState() != vedettev1.DesiredState_DESIRED_STATE_DISABLED {
			lost = append(lost, c.GetName())
		}
	}
	return lost, err
}

// back puts the state before in place again.
func (f *Follower) back(ctx context.Context, digest string, before []byte, cause error) error {
	state, err := Read(bytes.NewReader(before))
	var plan []Change
	if err == nil {
		plan, err = Plan(ctx, f.cfg.Conn, state, Options{Prune: true, Secrets: true, AllowOverload: true})
	}
	if err == nil {
		_, err = Apply(ctx, plan)
	}
	if err != nil {
		err = fmt.Errorf("the state before could not be put in place again: %w", err)
	}
	return f.refuse(digest, RolledBack, errors.Join(cause, err))
}

func (f *Follower) refuse(digest string, phase Phase, cause error) error {
	f.refused, f.status.Phase = digest, phase
	return cause
}

const inPlaceFile = "state.yaml"

func (f *Follower) inPlace() ([]byte, error) {
	return os.ReadFile(filepath.Join(f.cfg.Dir, inPlaceFile))
}

// swap keeps the state that is in place now; a crash leaves the one before or this one.
func (f *Follower) swap(text []byte) error {
	tmp, err := os.CreateTemp(f.cfg.Dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(f.cfg.Dir, inPlaceFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// tell reports the status, with what the box says of itself.
func (f *Follower) tell(ctx context.Context) error {
	if f.cfg.Report == nil {
		return nil
	}
	s := f.status
	s.Time = time.Now().UTC()
	if sys, err := vedettev1.NewSystemServiceClient(f.cfg.Conn).GetSystem(ctx, &vedettev1.GetSystemRequest{}); err == nil {
		s.Version, s.Processes = sys.GetVersion(), map[string]string{}
		for _, p := range sys.GetProcesses() {
			s.Processes[p.GetName()] = p.GetState().String()[len("PROCESS_STATE_"):]
		}
	}
	list, err := f.cameras(ctx)
	if err == nil {
		s.Cameras = len(list)
		for _, c := range list {
			if streams(c) {
				s.Streaming++
			}
		}
	}
	if err := f.cfg.Report(ctx, s); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// String is the status as JSON.
func (s Status) String() string {
	b, _ := json.Marshal(s) // strings and numbers
	return string(b)
}
