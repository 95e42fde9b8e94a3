package capture

import (
	"time"

	"github.com/vedette/vedette/ingest"
)

// Limits of belief in sender reports.
const (
	// One that puts pictures this far from their arrival is not believed: the camera's clock is wrong (1970, another time
	// zone, another year).
	maxSkew = 2 * time.Second
	// Two must agree this well before they are used.
	maxDisagreement = 100 * time.Millisecond
	// One this old says nothing more: the clocks have drifted apart since.
	maxReportAge = 5 * time.Minute
	// Crystals stay within 100 ppm, bad cameras within 500: that far two may come apart.
	crystal = 500e-6
)

// reports is what is known of the camera's clock by its sender reports.
type reports struct {
	clock    time.Duration  // the camera's clock minus media time, by the last
	off      time.Duration  // the camera's clock minus the box's, by the last
	last     ingest.Instant // arrival of the last; zero: there was none
	agreeing int            // so many in a row fit each other
	wander   bool           // the last does not fit the one before it
}

// take notes a report.
func (r *reports) take(clock, off time.Duration, at ingest.Instant) {
	first := r.last.Wall.IsZero()
	agree := maxDisagreement + time.Duration(float64((at.Mono-r.last.Mono).Abs())*crystal)
	r.wander = !first && (clock-r.clock).Abs() > agree
	if first || r.wander {
		r.agreeing = 0
	}
	r.agreeing++
	r.clock, r.off, r.last = clock, off, at
}

// at returns the camera's clock minus media time, if that can be believed at a moment.
func (r *reports) at(mono time.Duration) (clock time.Duration, ok bool) {
	return r.clock, r.agreeing >= 2 && r.off.Abs() <= maxSkew && mono-r.last.Mono <= maxReportAge
}

// forget leaves only what is known of the box's clock.
func (r *reports) forget() { r.agreeing, r.last = 0, ingest.Instant{} }
