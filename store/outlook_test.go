package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheOutlookFollowsThePaceOfTheLastDays(t *testing.T) {
	const gb = 1 << 30
	today := dayTime(dayOf(noon.UnixMicro()))
	// history is so many whole days of 4 GB, 3 of them pictures, after a first one that began late, and half of today.
	history := func(whole int) (days []FileStats) {
		days = append(days, FileStats{Day: today.Add(-time.Duration(whole+1) * aDay), Bytes: gb / 100})
		for n := whole; n > 0; n-- {
			days = append(days, FileStats{Day: today.Add(-time.Duration(n) * aDay), Bytes: gb, MediaBytes: 3 * gb})
		}
		return append(days, FileStats{Day: today, Bytes: gb / 2, MediaBytes: 3 * gb / 2})
	}
	bare := history(30)
	for i := range bare[:len(bare)-8] {
		bare[i].MediaBytes = 0
	}
	for name, c := range map[string]struct {
		r    Retention
		days []FileStats
		room int64
		want Outlook
	}{
		"nothing is kept":                          {room: gb},
		"no whole day is there yet":                {days: history(0), room: gb},
		"space runs out":                           {days: history(3), room: 164 * gb, want: Outlook{CourseFilling, 41 * aDay, 4 * gb}},
		"a little room and nothing to delete":      {days: history(0)[1:], room: gb},
		"days are too old before":                  {r: Retention{MaxAge: 30 * aDay}, days: history(3), room: 164 * gb, want: Outlook{CourseSufficient, 0, 4 * gb}},
		"they are so too late":                     {r: Retention{MaxAge: 90 * aDay}, days: history(3), room: 164 * gb, want: Outlook{CourseFilling, 41 * aDay, 4 * gb}},
		"each day costs the oldest":                {days: history(9), room: 3 * gb, want: Outlook{CourseFull, 0, 4 * gb}},
		"no room at all":                           {days: history(9), room: -gb, want: Outlook{CourseFull, 0, 4 * gb}},
		"one whole day, which may have begun late": {days: history(2)[2:], room: -gb, want: Outlook{}},
		"pictures go before their days":            {r: Retention{MediaAge: 7 * aDay}, days: bare, room: 10 * gb, want: Outlook{CourseFilling, 8*aDay + aDay/2, 4 * gb}},
		"pictures will go, but space is earlier":   {r: Retention{MediaAge: 7 * aDay}, days: history(3), room: 8 * gb, want: Outlook{CourseFilling, 2 * aDay, 4 * gb}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := c.r.paceOf(noon, c.days)
			have := c.r.outlook(noon, c.days, p, c.room)
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Error("(-want +have)\n", diff)
			}
		})
	}
}

// On its first day a box reckons with what an hour brought.
func TestTheOutlookOfAFirstDayIsKnownAfterAnHour(t *testing.T) {
	clock := newClock(noon)
	s := open(t, Config{Dir: t.TempDir(), Now: clock.now, FreeSpace: func(string) (int64, int64, error) { return 100 << 30, 200 << 30, nil }, Retention: Retention{Interval: time.Hour}})
	s.appendNow(t, event(noon))
	look := func(after time.Duration) Outlook {
		clock.set(noon.Add(after))
		s.retain(t.Context())
		return s.Stats().Outlook
	}
	if o := look(0); o != (Outlook{}) {
		t.Errorf("at once: %+v", o)
	}
	check(t, s.WriteMedia(noon, "tracks/a.jpg", make([]byte, 10<<20)))
	if o := look(59 * time.Minute); o != (Outlook{}) {
		t.Errorf("before an hour: %+v", o)
	}
	if o := look(time.Hour); o.Course != CourseFilling || o.BytesPerDay < 240<<20 || o.BytesPerDay > 250<<20 || o.Left < 350*aDay || o.Left > 450*aDay {
		t.Errorf("after an hour: %+v", o)
	}
}
