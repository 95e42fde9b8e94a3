package decode

import "time"

// sampler chooses frames by capture time. The zero value takes every frame.
type sampler struct {
	period time.Duration
	due    time.Time
}

func newSampler(rate float64) sampler {
	if rate <= 0 {
		return sampler{}
	}
	return sampler{period: time.Duration(float64(time.Second) / rate)}
}

// take reports whether a frame captured at t is chosen. Frames up to an eighth of a period early are, so that
// a rate equal to the camera's takes every frame in spite of jitter.
func (s *sampler) take(t time.Time) bool {
	if s.period == 0 {
		return true
	}
	if early := s.due.Sub(t); early > s.period/8 && early <= 2*s.period {
		return false
	}
	// On time: the next is due one period after this was. Late, or time has jumped: after now.
	if s.due = s.due.Add(s.period); t.After(s.due) || s.due.Sub(t) > 2*s.period {
		s.due = t.Add(s.period)
	}
	return true
}

// wants reports whether a frame captured at t would be taken, changing nothing.
func (s sampler) wants(t time.Time) bool { return s.take(t) }
