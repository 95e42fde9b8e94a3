package store

import "time"

// Course is what the growth of the store leads to.
type Course int

// The courses.
const (
	CourseUnknown    Course = iota // no whole day, and no hour of the current one, has been seen yet
	CourseFilling                  // space runs out before the oldest day is too old
	CourseSufficient               // there is room for all days until they are too old
	CourseFull                     // all the space there is holds history: each new day costs the oldest
)

// Outlook tells how long the disk lasts at the pace of the last days.
type Outlook struct {
	Course      Course
	Left        time.Duration // until the oldest day is deleted for want of space, while the disk fills
	BytesPerDay int64         // what a day adds; 0: not known yet
}

// pace is what a day adds, in bytes.
type pace struct{ data, media float64 }

// watched is the current day as it was first seen.
type watched struct {
	FileStats

	at time.Time
}

const aDay = 24 * time.Hour

// growth is the pace of a day from when it was first seen; false before an hour of it was.
func (w *watched) growth(now time.Time, f FileStats) (pace, bool) {
	if !w.Day.Equal(f.Day) {
		*w = watched{f, now}
	}
	since := now.Sub(w.at)
	if since < time.Hour {
		return pace{}, false
	}
	days := since.Hours() / 24
	return pace{max(0, float64(f.Bytes-w.Bytes)) / days, max(0, float64(f.MediaBytes-w.MediaBytes)) / days}, true
}

// paceOf is the mean of the newest seven whole days: not the current one, nor the oldest, which may have begun late.
// Pictures are counted of the days that still have theirs. False without such a day.
func (r Retention) paceOf(now time.Time, days []FileStats) (p pace, known bool) {
	var n, pictured float64
	for i := len(days) - 1; i > 0 && n < 7; i-- {
		age := now.Sub(days[i].Day) - aDay
		if age < 0 {
			continue
		}
		n++
		p.data += float64(days[i].Bytes)
		if r.MediaAge <= 0 || age <= r.MediaAge {
			pictured++
			p.media += float64(days[i].MediaBytes)
		}
	}
	if n == 0 {
		return pace{}, false
	}
	p.data /= n
	p.media /= max(1, pictured)
	return p, true
}

// outlook reckons with days, oldest first, of which those in the past may be deleted, and with the room above the floor
// and below the bound.
func (r Retention) outlook(now time.Time, days []FileStats, p pace, room int64) Outlook {
	o := Outlook{BytesPerDay: int64(p.data + p.media)}
	if len(days) == 0 || o.BytesPerDay <= 0 {
		return Outlook{}
	}
	ages := func(f FileStats, limit time.Duration) float64 { // days until it is too old
		return max(0, (limit-(now.Sub(f.Day)-aDay)).Hours()/24)
	}
	// While pictures come to their age, the oldest go as new ones come: the rest alone grows.
	left := float64(room) / (p.data + p.media)
	if r.MediaAge > 0 {
		with := ages(days[len(days)-1], r.MediaAge)
		for _, f := range days {
			if f.MediaBytes > 0 {
				with = ages(f, r.MediaAge)
				break
			}
		}
		if with < left {
			left = with + (float64(room)-with*(p.data+p.media))/max(1, p.data)
		}
	}
	past := 0
	for _, f := range days[:len(days)-1] {
		if now.Sub(f.Day) >= aDay {
			past++
		}
	}
	switch {
	case r.MaxAge > 0 && ages(days[0], r.MaxAge) < left:
		o.Course = CourseSufficient
	case left < 2 && past >= 2: // a day that was deleted made this room
		o.Course = CourseFull
	default:
		o.Course, o.Left = CourseFilling, time.Duration(min(max(0, left), 36500)*float64(aDay))
	}
	return o
}
