package repository

import (
	"log/slog"
	"slices"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/schedule"
)

// handOver moves the open sequences of versions that are loaded again to those
// that replace them. While the old version answers what it has, newcomers wait;
// done lets them go on to the new one. Only planned reloads of the same version
// come here: after a crash, or with another version, sequences start anew.
func (r *Repository) handOver(m *model, fresh []*version) (done func()) {
	r.mu.Lock()
	var old []*version
	for _, v := range m.ready {
		for _, f := range fresh {
			if f.number == v.number && v.portable() && f.portable() {
				v.handed, v.replaced = make(chan struct{}), make(chan struct{})
				v.heir.Store(f)
				old = append(old, v)
			}
		}
	}
	r.mu.Unlock()
	for _, v := range old {
		v.begin()
	}
	for _, v := range old {
		v.waitHanded()
	}
	return func() {
		for _, v := range old {
			close(v.replaced)
		}
	}
}

// patience bounds how long newcomers wait for a version to answer what it has.
const patience = 5 * time.Second

// waitHanded returns when the sequences have moved, or will not: what waits in
// the backlog needs the slots of sequences that can get no request now.
func (v *version) waitHanded() {
	backlog := func(s infer.SequenceInfo) bool { return s.Slot < 0 }
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if !slices.ContainsFunc(v.sched.Sequences(), backlog) {
		select {
		case <-v.handed:
			return
		case <-timer.C:
		}
	}
	if v.heir.Swap(nil) == nil {
		<-v.handed // it is at it
		return
	}
	v.logger.Warn("sequences do not outlive the reload: the version has too much to finish first")
	v.sched.Retire()
}

// portable tells whether the version's sequences can live on elsewhere: the
// server has their state, or the instances can give it away.
func (v *version) portable() bool {
	if !v.sequences || v.decoupled {
		return false
	}
	for _, in := range v.loaded() {
		if in.at.Passive {
			continue
		}
		_, gives := in.model.(backend.SequenceSnapshotter)
		if !gives && (in.keeper != nil || len(v.states) == 0) {
			return false
		}
	}
	return true
}

// bequeath hands the open sequences on. No request is under way.
func (v *version) bequeath(heir *version) {
	var out []*schedule.Sequence
	states := make(map[uint64][]byte)
	for _, s := range v.sched.Open() {
		from := v.at(s.Instance)
		if from.open[s.ID] == nil {
			continue
		}
		if giver, ok := from.model.(backend.SequenceSnapshotter); ok {
			data, err := giver.SnapshotSequence(s.ID)
			if err != nil {
				v.logger.Warn("sequence does not outlive the reload", slog.String("sequence", s.Key.String()), slog.Any("err", err))
				continue
			}
			states[s.ID] = data
		}
		// Its memory goes along, so that the old instance only forgets it.
		delete(from.open, s.ID)
		if from.keeper != nil {
			from.keeper.EndSequence(s.ID, backend.CauseUnload)
		}
		out = append(out, s)
	}
	rest := heir.sched.Adopt(out)
	lost := make(map[uint64]bool)
	for _, s := range rest {
		lost[s.ID] = true
		if h, ok := s.State.(*held); ok {
			h.release()
		}
	}
	for _, s := range out {
		if lost[s.ID] {
			continue
		}
		to := heir.at(s.Instance)
		to.open[s.ID] = s
		taker, ok := to.model.(backend.SequenceSnapshotter)
		if !ok || states[s.ID] == nil {
			continue
		}
		if err := taker.RestoreSequence(s.ID, states[s.ID]); err != nil {
			v.logger.Warn("sequence does not outlive the reload", slog.String("sequence", s.Key.String()), slog.Any("err", err))
		}
	}
	v.logger.Info("sequences outlive the reload", slog.Int("count", len(out)-len(rest)))
}
