package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vedette/vedette/api/inference"
)

// errNoAnswer says that inference took longer than it may.
var errNoAnswer = errors.New("inference did not answer")

// remedy is what is done about inference that does not answer, each when the one before has not helped.
type remedy int

const (
	// nothing more than what has been done: another camera has just noticed the same.
	nothing remedy = iota
	// terminate the run: giving the request up makes inference stop it.
	terminate
	// replace the instances: the models are loaded anew beside those that hang.
	replace
	// restart the process.
	restart
)

// recovery decides on the remedy. It is pure: time is an argument.
type recovery struct {
	last remedy
	at   time.Time // of the last remedy
}

// noAnswer tells that an answer was waited for in vain, for as long as limit, and returns what to do.
func (r *recovery) noAnswer(now time.Time, limit time.Duration) remedy {
	if r.last != nothing && now.Sub(r.at) < limit/2 {
		return nothing
	}
	r.last, r.at = min(r.last+1, restart), now
	return r.last
}

// answered tells that inference answers: what was done has helped.
func (r *recovery) answered() { r.last = nothing }

// answered notes that inference answers.
func (p *Pipeline) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recovery.answered()
}

// noAnswer does what is to be done about a model that does not answer. The lane has given its request up already.
func (p *Pipeline) noAnswer(ctx context.Context, s *session, m *model) {
	p.mu.Lock()
	r := p.recovery.noAnswer(time.Now(), p.cfg.AnswerTimeout)
	p.mu.Unlock()
	if r == nothing || ctx.Err() != nil {
		return
	}
	p.cfg.Logger.Warn("inference does not answer", slog.String("model", m.name),
		slog.String("remedy", [...]string{"", "terminate the run", "replace the instances", "restart the process"}[r]))
	switch r {
	case replace:
		p.running.Go(func() { p.replaceInstances(ctx, s, m) })
	case restart:
		reason := "model " + m.name + " did not answer, and replacing its instances did not help"
		if p.cfg.RestartInference != nil {
			p.restartInference(reason)
			return
		}
		_ = s.order(doorOrder{Restart: reason}, nil) // it ends, so there may be no answer
	case nothing, terminate:
	}
}

// replaceInstances loads the detector anew; what hangs is left to end when it can.
func (p *Pipeline) replaceInstances(ctx context.Context, s *session, m *model) {
	name := m.detector
	if name == "" {
		name = m.name
	}
	ctx, cancel := context.WithTimeout(ctx, 2*p.cfg.AnswerTimeout)
	defer cancel()
	if _, err := s.client.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{
		ModelName: name, Parameters: map[string]*inference.ModelRepositoryParameter{
			"replace": {ParameterChoice: &inference.ModelRepositoryParameter_BoolParam{BoolParam: true}},
		},
	}); err != nil {
		p.cfg.Logger.Warn("instances could not be replaced", slog.String("model", name), slog.Any("err", err))
	}
}

// restartInference is the last step where this program runs the sidecar. Where a service manager does, one that is
// stuck as a whole is the manager's to find.
func (p *Pipeline) restartInference(reason string) {
	p.mu.Lock()
	p.recovery.answered()
	p.mu.Unlock()
	if p.cfg.RestartInference == nil {
		p.cfg.Logger.Error("inference must be restarted and nobody here can", slog.String("reason", reason))
		return
	}
	p.cfg.RestartInference(reason)
}

// gap is a time in which a camera sent frames and nothing was analysed. The zero value is none.
type gap struct {
	reason string
	from   time.Time // capture time of the last frame before it; zero: there was none
}

func (g *gap) open(reason string, last time.Time) {
	if g.reason == "" {
		g.reason, g.from = reason, last
	}
}

// closeGap writes the event of a gap that ends with a frame of the sequence.
func (l *lane) closeGap(ctx context.Context, sequence int64, to time.Time) {
	if l.gap.reason == "" {
		return
	}
	g := l.gap
	l.gap = gap{}
	attributes := map[string]string{"reason": g.reason, "to": to.UTC().Format(time.RFC3339Nano), "sequence": sequenceText(sequence)}
	if !g.from.IsZero() {
		attributes["from"] = g.from.UTC().Format(time.RFC3339Nano)
		attributes["seconds"] = rateText(to.Sub(g.from).Seconds())
	}
	l.p.event(ctx, l.camera, "gap", to, attributes)
}
