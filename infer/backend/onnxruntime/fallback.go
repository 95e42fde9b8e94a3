package onnxruntime

import (
	"log/slog"
	"time"
)

// fallback is the story of an instance whose accelerator is not to be had. It
// runs on the CPU meanwhile; the accelerator is tried again, less and less often.
type fallback struct {
	wanted bool      // an accelerator is configured
	on     bool      // and it is not in use
	count  int       // how often it was given up
	reason error     // the last time
	next   time.Time // when to try again
	wait   time.Duration
}

const (
	firstRetry = 30 * time.Second
	lastRetry  = time.Hour
)

// active tells that sessions run on an accelerator that may be given up.
func (f *fallback) active() bool { return f.wanted && !f.on }

// note takes the loss of the accelerator down.
func (f *fallback) note(now time.Time, err error) {
	f.on, f.reason = true, err
	f.count++
	f.wait = min(max(2*f.wait, firstRetry), lastRetry)
	f.next = now.Add(f.wait)
}

// open makes the session for a set of absent optional inputs.
func (in *instance) open(absent uint64) error {
	if in.sessions[absent] != nil {
		return nil
	}
	defer func() { in.opened.Store(int64(len(in.sessions))) }()
	var inputs, outputs []string
	for i := range in.inputs {
		if i >= 64 || absent&(1<<i) == 0 {
			inputs = append(inputs, in.inputs[i].name)
		}
	}
	for i := range in.outputs {
		outputs = append(outputs, in.outputs[i].source())
	}
	use, err := providers(in.model, in.at)
	if err != nil {
		return err
	}
	in.fallback.wanted = len(use) > 0
	if in.fallback.wanted && !in.fallback.on {
		s, err := in.newSession(in.model, in.at, in.path, inputs, outputs, use)
		if err == nil {
			s.absent, in.sessions[absent] = absent, s
			return nil
		}
		in.fallback.note(in.now(), err)
		in.warn()
	}
	s, err := in.newSession(in.model, in.at, in.path, inputs, outputs, nil)
	if err != nil {
		return err
	}
	s.absent, in.sessions[absent] = absent, s
	return nil
}

func (in *instance) warn() {
	in.model.Logger.Warn("execution provider not available, running on the cpu", slog.String("model", in.model.Name),
		slog.Int64("version", in.model.Version), slog.String("instance", in.at.Name), slog.Int("count", in.fallback.count),
		slog.Duration("retry_in", in.fallback.wait), slog.Any("err", in.fallback.reason))
}

// giveUp leaves the accelerator after a failed run of a session, and returns the one that stands in for it.
func (in *instance) giveUp(s *session, err error) (*session, error) {
	absent := s.absent
	in.fallback.note(in.now(), err)
	in.warn()
	in.drop()
	if err := in.open(absent); err != nil {
		return nil, err
	}
	return in.sessions[absent], nil
}

// retry goes back to the accelerator when it is time.
func (in *instance) retry() {
	if !in.fallback.on || in.now().Before(in.fallback.next) {
		return
	}
	in.fallback.on = false
	in.drop()
	if err := in.open(0); err != nil {
		in.model.Logger.Error("no session", slog.String("model", in.model.Name), slog.String("instance", in.at.Name), slog.Any("err", err))
		return
	}
	if !in.fallback.on {
		in.fallback.wait = 0
		in.model.Logger.Info("execution provider available again", slog.String("model", in.model.Name), slog.String("instance", in.at.Name))
	}
}

func (in *instance) drop() {
	for k, s := range in.sessions {
		if err := s.close(); err != nil {
			in.model.Logger.Warn("session not closed", slog.String("model", in.model.Name), slog.Any("err", err))
		}
		delete(in.sessions, k)
	}
}

// Provider says where the instance runs: cpu, or an accelerator before it, and
// how often an accelerator was given up.
func (in *instance) Provider() (name string, fallbacks int, reason error) {
	if s := in.sessions[0]; s != nil {
		name = s.provider
	}
	if in.fallback.on {
		reason = in.fallback.reason
	}
	return name, in.fallback.count, reason
}
