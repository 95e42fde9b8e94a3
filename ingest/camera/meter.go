package camera

import "time"

// Measured is what a stream turned out to be. Zero fields are not known yet.
type Measured struct {
	// Rate in pictures a second and BitRate in bits a second, over the last seconds.
	Rate, BitRate float64
	// GOP is the number of pictures from one keyframe to the next, as last seen.
	GOP int
	// SenderReports: the camera tells its time; ClockOffset is that time minus the box's.
	SenderReports bool
	ClockOffset   time.Duration
	// Gate is what the motion gate does.
	Gate GateState
	// Decoder in use; DecoderFallback is why a preferred one is not.
	Decoder, DecoderFallback string
}

// meterWindow is long enough for a camera of one picture a second, short enough to follow a change.
const meterWindow = 2 * time.Second

// meter counts access units in windows that begin and end with one. The zero value is ready.
type meter struct {
	start, last time.Duration // mono; 0: no unit yet
	units       int           // after the one at start
	bytes       int
	done        Measured // of the newest whole window
	sinceKey    int      // units since the keyframe, itself included; 0: no keyframe yet
}

func (m *meter) add(mono time.Duration, bytes int, key bool) {
	if key {
		if m.sinceKey > 0 {
			m.done.GOP = m.sinceKey
		}
		m.sinceKey = 0
	}
	if key || m.sinceKey > 0 {
		m.sinceKey++
	}
	if m.start == 0 {
		m.start, m.last = mono, mono
		return
	}
	m.units++
	m.bytes += bytes
	m.last = mono
	if mono-m.start >= meterWindow {
		m.done.Rate, m.done.BitRate = m.rates()
		m.start, m.units, m.bytes = mono, 0, 0
	}
}

// restart begins a window with the last unit: those before it came in a burst.
func (m *meter) restart() { m.start, m.units, m.bytes = m.last, 0, 0 }

func (m *meter) rates() (units, bits float64) {
	d := (m.last - m.start).Seconds()
	if d <= 0 {
		return 0, 0
	}
	return float64(m.units) / d, float64(m.bytes) * 8 / d
}

// measured returns the newest rates: those of the window under way while there is no whole one, and none
// when nothing has come for longer than a window.
func (m *meter) measured(now time.Duration) Measured {
	r := m.done
	if m.start == 0 || now-m.last > 2*meterWindow {
		r.Rate, r.BitRate = 0, 0
		return r
	}
	if r.Rate == 0 && m.last-m.start >= meterWindow/8 {
		r.Rate, r.BitRate = m.rates()
	}
	return r
}
