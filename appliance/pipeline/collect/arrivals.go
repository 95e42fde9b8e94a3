package collect

import "time"

const (
	remembered = 64 // arrivals
	trusted    = 16 // arrivals from which on a rate is believed
)

// arrivals estimates a camera's rate as count over span: cameras send in bursts, which make a mean of gaps swing.
type arrivals struct {
	at [remembered]time.Time
	n  int // arrivals so far
}

func (a *arrivals) add(now time.Time) {
	if !a.alive(now) {
		a.n = 0 // the pause belongs to no rate
	}
	a.at[a.n%remembered] = now
	a.n++
}

func (a *arrivals) last() time.Time { return a.at[(a.n-1)%remembered] }

// alive tells whether something came within the last two seconds.
func (a *arrivals) alive(now time.Time) bool { return a.n > 0 && now.Sub(a.last()) < Silence }

// period is the mean time between arrivals; 0: not known.
func (a *arrivals) period(now time.Time) time.Duration {
	if a.n < trusted || !a.alive(now) {
		return 0
	}
	count := min(a.n, remembered)
	return a.last().Sub(a.at[(a.n-count)%remembered]) / time.Duration(count-1)
}
