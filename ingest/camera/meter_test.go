package camera

import (
	"math"
	"testing"
	"time"
)

func TestABurstIsNoRate(t *testing.T) {
	var m meter
	for i := range 50 {
		m.add(time.Second+time.Duration(i)*time.Millisecond, 1000, i == 0)
	}
	m.restart()
	at := time.Second + 49*time.Millisecond
	for range 100 {
		at += 40 * time.Millisecond
		m.add(at, 1000, false)
		if r := m.measured(at).Rate; r > 25.1 || r > 0 && r < 24.9 {
			t.Fatalf("%v pictures a second", r)
		}
	}
	if r := m.measured(at); r.Rate == 0 || r.BitRate < 199000 || r.BitRate > 201000 {
		t.Errorf("%+v", r)
	}
}

func TestAMeterFollowsTheStreamAndForgetsOneThatStopped(t *testing.T) {
	var m meter
	now := time.Hour
	feed := func(units int, every time.Duration, bytes, gop int) {
		for i := range units {
			m.add(now, bytes, i%gop == 0)
			now += every
		}
	}
	if got := m.measured(now); got != (Measured{}) {
		t.Errorf("before the first unit: %+v", got)
	}
	feed(13, 40*time.Millisecond, 1000, 50)
	if got := m.measured(now); math.Abs(got.Rate-25) > 0.01 || got.GOP != 0 {
		t.Errorf("after half a second of 25 a second: %+v", got)
	}
	m = meter{}
	feed(200, 40*time.Millisecond, 1000, 50)
	if got := m.measured(now); math.Abs(got.Rate-25) > 0.01 || math.Abs(got.BitRate-200_000) > 1 || got.GOP != 50 {
		t.Errorf("25 a second of 1000 bytes, keyframes every 50: %+v", got)
	}
	feed(100, 100*time.Millisecond, 500, 20)
	if got := m.measured(now); math.Abs(got.Rate-10) > 0.01 || math.Abs(got.BitRate-40_000) > 1 || got.GOP != 20 {
		t.Errorf("10 a second of 500 bytes, keyframes every 20: %+v", got)
	}
	if got := m.measured(now + time.Minute); got.Rate != 0 || got.BitRate != 0 || got.GOP != 20 {
		t.Errorf("a minute after the last unit: %+v", got)
	}
	m = meter{}
	feed(10, 2500*time.Millisecond, 500, 1)
	if got := m.measured(now); math.Abs(got.Rate-0.4) > 0.001 {
		t.Errorf("slower than the window: %+v", got)
	}
}
