package camera

import (
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
)

func TestABurstIsHeldUntilPicturesComeAtTheirPace(t *testing.T) {
	const ms = time.Millisecond
	type unit struct{ media, received time.Duration }
	paced := func(from, n int) (units []unit) {
		for i := from; i < from+n; i++ {
			units = append(units, unit{time.Duration(i) * 40 * ms, time.Duration(i) * 40 * ms})
		}
		return units
	}
	burst := func(n int, gap func(i int) time.Duration) (units []unit) {
		at := time.Duration(n) * 40 * ms
		for i := range n {
			at += gap(i)
			units = append(units, unit{time.Duration(i) * 40 * ms, at})
		}
		return units
	}
	for name, c := range map[string]struct {
		units []unit
		held  int
	}{
		"at their pace": {paced(0, 10), 3},
		"a burst":       {append(burst(50, func(int) time.Duration { return ms / 2 }), paced(51, 5)...), 53},
		"a burst with a pause": {append(burst(50, func(i int) time.Duration {
			if i == 30 {
				return 60 * ms
			}
			return ms / 2
		}), paced(53, 5)...), 53},
		"a burst without an end": {burst(5000, func(int) time.Duration { return ms }), 1001},
		"out of order": {[]unit{
			{0, 160 * ms}, {120 * ms, 280 * ms}, {40 * ms, 281 * ms}, {80 * ms, 282 * ms}, {240 * ms, 400 * ms}, {160 * ms, 401 * ms}, {200 * ms, 440 * ms}, {360 * ms, 520 * ms},
		}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			var e early
			held := 0
			for _, u := range c.units {
				held++
				if !e.hold(ingest.AccessUnit{Ticks: ingest.TicksOf(u.media), Received: ingest.Instant{Mono: time.Hour + u.received}}, 200*ms) {
					break
				}
			}
			if held != c.held {
				t.Errorf("%d are held", held)
			}
		})
	}
	var e early
	if e.hold(ingest.AccessUnit{Data: make([]byte, earlyBytes)}, time.Second) {
		t.Error("more is held than fits")
	}
}
