package rulebook

import (
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // schedules mean the same on a box without a time zone data base
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
)

// Limits of rules.
const (
	maxRules       = 64 // of a camera
	maxDisplayName = 200
	maxClasses     = 64
	maxCorners     = 64
	maxPeriods     = 32
	maxInertia     = time.Minute
	maxStay        = 7 * 24 * time.Hour
	maxOccupancy   = 10_000
	minArea        = 1e-5 // of the picture
	minLength      = 1e-3
)

const idPattern = `^[a-z]([a-z0-9-]{0,46}[a-z0-9])?$`

func invalid(field, format string, args ...any) error {
	return &cameras.InvalidError{Violations: []cameras.Violation{{Field: field, Description: fmt.Sprintf(format, args...)}}}
}

// faults collects what is wrong with one rule.
type faults struct {
	prefix string
	list   []cameras.Violation
}

func (f *faults) add(field, format string, args ...any) {
	f.list = append(f.list, cameras.Violation{Field: f.prefix + field, Description: fmt.Sprintf(format, args...)})
}

func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	return &cameras.InvalidError{Violations: f.list}
}

// validate reports every fault at once.
func validate(kind, id string, r rule) error {
	f := &faults{}
	if !regexp.MustCompile(idPattern).MatchString(id) {
		f.add(kind+"_id", "%q: 1 to 48 of a-z, 0-9 and -, the first a letter and the last not -", id)
	}
	f.prefix = kind + "."
	f.rule(r)
	return f.err()
}

func (f *faults) rule(r rule) {
	if n := utf8.RuneCountInString(r.GetDisplayName()); n > maxDisplayName {
		f.add("display_name", "%d characters, at most %d", n, maxDisplayName)
	}
	if _, ok := vedettev1.Anchor_name[int32(r.GetAnchor())]; !ok {
		f.add("anchor", "%d is no such anchor", r.GetAnchor())
	}
	if len(r.GetClasses()) > maxClasses {
		f.add("classes", "%d classes, at most %d", len(r.GetClasses()), maxClasses)
	}
	for i, c := range r.GetClasses() {
		if c == "" || len(c) > 64 {
			f.add(fmt.Sprintf("classes[%d]", i), "%q: 1 to 64 bytes", c)
		}
	}
	if s := r.GetMinScore(); !(s >= 0 && s <= 1) {
		f.add("min_score", "%v is not within 0 and 1", s)
	}
	f.schedule(r.GetSchedule())
	switch r := r.(type) {
	case *vedettev1.Zone:
		f.polygon(r.GetPolygon())
		f.duration("inertia", r.GetInertia(), maxInertia)
		f.duration("dwell", r.GetDwell(), maxStay)
		f.duration("loitering", r.GetLoitering(), maxStay)
		if n := r.GetOccupancy(); n < 0 || n > maxOccupancy {
			f.add("occupancy", "%d is not within 0 and %d", n, maxOccupancy)
		}
	case *vedettev1.Line:
		f.duration("inertia", r.GetInertia(), maxInertia)
		f.ends(r.GetStart(), r.GetEnd())
	}
}

func (f *faults) duration(field string, d *durationpb.Duration, most time.Duration) {
	if d != nil && (!d.IsValid() || d.AsDuration() < 0 || d.AsDuration() > most) {
		f.add(field, "not within 0 and %s", most)
	}
}

func (f *faults) place(field string, p *vedettev1.Point) bool {
	if p == nil {
		f.add(field, "missing")
		return false
	}
	if !(p.GetX() >= 0 && p.GetX() <= 1 && p.GetY() >= 0 && p.GetY() <= 1) {
		f.add(field, "(%v, %v) is outside the picture: coordinates are fractions of it, 0 to 1", p.GetX(), p.GetY())
		return false
	}
	return true
}

func (f *faults) ends(a, b *vedettev1.Point) {
	if okA, okB := f.place("start", a), f.place("end", b); !okA || !okB {
		return
	}
	if dx, dy := b.GetX()-a.GetX(), b.GetY()-a.GetY(); dx*dx+dy*dy < minLength*minLength {
		f.add("end", "is where the line starts: a line has a length")
	}
}

func (f *faults) polygon(list []*vedettev1.Point) {
	if n := len(list); n < 3 || n > maxCorners {
		f.add("polygon", "%d corners: a zone has 3 to %d", n, maxCorners)
		return
	}
	ok := true
	for i, p := range list {
		ok = f.place(fmt.Sprintf("polygon[%d]", i), p) && ok
	}
	if !ok {
		return
	}
	area := 0.0
	for i, p := range list {
		q := list[(i+1)%len(list)]
		area += float64(p.GetX())*float64(q.GetY()) - float64(q.GetX())*float64(p.GetY())
	}
	for i := range list {
		for j := i + 2; j < len(list); j++ {
			if i == 0 && j == len(list)-1 {
				continue // neighbours
			}
			if cross(list[i], list[i+1], list[j], list[(j+1)%len(list)]) {
				f.add("polygon", "the side from corner %d crosses the side from corner %d", i, j)
				return
			}
		}
	}
	if area < 0 {
		area = -area
	}
	if area/2 < minArea {
		f.add("polygon", "it has no area")
	}
}

// cross tells whether two sides meet.
func cross(a, b, c, d *vedettev1.Point) bool {
	turn := func(p, q, r *vedettev1.Point) float64 {
		return float64(q.GetX()-p.GetX())*float64(r.GetY()-p.GetY()) - float64(q.GetY()-p.GetY())*float64(r.GetX()-p.GetX())
	}
	return turn(a, b, c)*turn(a, b, d) < 0 && turn(c, d, a)*turn(c, d, b) < 0
}

func (f *faults) schedule(s *vedettev1.Schedule) {
	if s == nil {
		return
	}
	if _, err := location(s.GetTimeZone()); err != nil {
		f.add("schedule.time_zone", "%q is no time zone of the IANA data base, such as Europe/Oslo", s.GetTimeZone())
	}
	if n := len(s.GetPeriods()); n == 0 || n > maxPeriods {
		f.add("schedule.periods", "%d periods: a schedule has 1 to %d", n, maxPeriods)
	}
	for i, p := range s.GetPeriods() {
		for _, d := range p.GetDays() {
			if d < vedettev1.Weekday_WEEKDAY_MONDAY || d > vedettev1.Weekday_WEEKDAY_SUNDAY {
				f.add(fmt.Sprintf("schedule.periods[%d].days", i), "%d is no day of the week", d)
			}
		}
		for name, text := range map[string]string{"start": p.GetStart(), "end": p.GetEnd()} {
			if _, ok := minutes(text); !ok {
				f.add(fmt.Sprintf("schedule.periods[%d].%s", i, name), "%q is no time of the form HH:MM", text)
			}
		}
	}
}

// location is a time zone; empty: UTC. "Local" is refused: a box's own zone may change under a rule.
func location(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q: not allowed", name)
	}
	return time.LoadLocation(name)
}
