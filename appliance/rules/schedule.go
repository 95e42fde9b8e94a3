package rules

import "time"

// Schedule says when a rule is watched: in any of its periods, by the wall clock of a place.
type Schedule struct {
	Periods []Period
	// Location, nil: UTC.
	Location *time.Location
}

// Period is a span of wall-clock time that begins on some days of the week.
type Period struct {
	// Days it begins on, by time.Weekday; none: every day.
	Days [7]bool
	// Start and End are minutes after midnight, 0 to 1439. An End that is not after Start is on the next day.
	Start, End int
}

// Active tells whether the rule is watched at that time.
func (s *Schedule) Active(at time.Time) bool {
	loc := s.Location
	if loc == nil {
		loc = time.UTC
	}
	local := at.In(loc)
	minute := local.Hour()*60 + local.Minute()
	today := local.Weekday()
	yesterday := (today + 6) % 7
	for _, p := range s.Periods {
		if p.End > p.Start {
			if p.on(today) && minute >= p.Start && minute < p.End {
				return true
			}
			continue
		}
		if (p.on(today) && minute >= p.Start) || (p.on(yesterday) && minute < p.End) {
			return true
		}
	}
	return false
}

func (p *Period) on(day time.Weekday) bool { return p.Days == [7]bool{} || p.Days[day] }
