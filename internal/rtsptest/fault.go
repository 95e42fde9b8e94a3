package rtsptest

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/pion/rtp"
)

// Fault is something cameras do.
type Fault struct {
	Name string
	// Codec of the clip it is tried on: a key of FaultClips.
	Codec string
	// Hard: no pictures come while it lasts, so that a session ends. Otherwise the camera says when it has
	// happened (Faulty.Struck).
	Hard bool
	// Late: it begins after pictures have come.
	Late bool
	// UDP: it is seen by clients that read over UDP alone.
	UDP bool

	arm func(*Config, *Faulty)
	// fail and heal do what the configuration cannot.
	fail, heal func(*Faulty)
}

// Faulty is a camera with a fault that can be switched on and off.
type Faulty struct {
	fault   Fault
	tb      testing.TB
	on      atomic.Bool
	healed  chan struct{}
	struck  chan struct{}
	once    sync.Once
	left    atomic.Int64 // packets until it has struck
	held    *rtp.Packet  // by a reordering camera
	asked   atomic.Int64 // times, by a camera that cannot make up its mind
	unheard atomic.Int64 // when a client left, UnixNano
	cfg     Config

	mu     sync.Mutex // guards everything below
	camera *Camera
}

// FaultClips renders what Faults needs.
func FaultClips(tb testing.TB) map[string]*Clip {
	tb.Helper()
	small := ClipConfig{Width: 64, Height: 64, Frames: 50, GOP: 5}
	h265, mjpeg, reordered, long, wide := small, small, small, small, small
	h265.Codec, mjpeg.Codec = "h265", "mjpeg"
	reordered.BFrames, reordered.GOP = 2, 10
	// Ten seconds from keyframe to keyframe at 25 pictures a second, at twenty times the speed.
	long.GOP, long.Frames, long.Rate = 250, 250, 500
	wide.Width = 96
	clips := map[string]*Clip{}
	for name, cfg := range map[string]ClipConfig{"h264": small, "h265": h265, "mjpeg": mjpeg, "b-frames": reordered, "long": long, "wide": wide} {
		clips[name] = Render(tb, cfg)
	}
	resized := *clips["h264"]
	resized.Other = clips["wide"]
	clips["resized"] = &resized
	return clips
}

// Start begins to serve, with the fault in place from the start unless it is Late.
func (f Fault) Start(tb testing.TB, clip *Clip) *Faulty {
	tb.Helper()
	c := &Faulty{fault: f, tb: tb, healed: make(chan struct{}), struck: make(chan struct{}), cfg: Config{Clip: clip}}
	c.left.Store(40)
	if f.arm != nil {
		f.arm(&c.cfg, c)
	}
	c.camera = Start(tb, c.cfg)
	if !f.Late {
		c.Fail()
	}
	return c
}

// Address of the stream.
func (c *Faulty) Address() string { return c.current().Address() }

func (c *Faulty) current() *Camera {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.camera
}

// OpenSessions returns how many sessions the camera holds.
func (c *Faulty) OpenSessions() int {
	open, _, _ := c.current().Sessions()
	return open
}

// Fail switches the fault on; once is enough.
func (c *Faulty) Fail() {
	if !c.on.Swap(true) && c.fault.fail != nil {
		c.fault.fail(c)
	}
}

// Struck is closed when a fault that is not Hard has touched enough packets.
func (c *Faulty) Struck() <-chan struct{} { return c.struck }

// Heal makes it a good camera.
func (c *Faulty) Heal() {
	if !c.on.Swap(false) {
		return
	}
	close(c.healed)
	if c.fault.heal != nil {
		c.fault.heal(c)
	}
}

// Close ends the camera.
func (c *Faulty) Close() {
	c.Heal()
	c.current().Close()
}

// hit counts a packet; the fault has struck after 40.
func (c *Faulty) hit() {
	if c.left.Add(-1) <= 0 {
		c.once.Do(func() { close(c.struck) })
	}
}

// hang answers nothing to a method until it is healed.
func hang(m base.Method) func(*Config, *Faulty) {
	return func(cfg *Config, c *Faulty) {
		cfg.Request = func(got base.Method, done <-chan struct{}) *base.Response {
			if got == m && c.on.Load() {
				select {
				case <-c.healed:
				case <-done:
				}
			}
			return nil
		}
	}
}

// refuse answers a method with a status.
func refuse(m base.Method, code base.StatusCode) func(*Config, *Faulty) {
	return func(cfg *Config, c *Faulty) {
		cfg.Request = func(got base.Method, _ <-chan struct{}) *base.Response {
			if got == m && c.on.Load() {
				return &base.Response{StatusCode: code}
			}
			return nil
		}
	}
}

// packets changes packets while the fault lasts.
func packets(change func(c *Faulty, p *rtp.Packet) []*rtp.Packet) func(*Config, *Faulty) {
	return func(cfg *Config, c *Faulty) {
		cfg.Packet = func(p *rtp.Packet) []*rtp.Packet {
			if !c.on.Load() {
				return []*rtp.Packet{p}
			}
			c.hit()
			return change(c, p)
		}
	}
}

// untouched counts packets and changes none.
func untouched(_ *Faulty, p *rtp.Packet) []*rtp.Packet { return []*rtp.Packet{p} }

// clock lies about the time from the start, for good.
func clock(lie func(time.Time) time.Time) func(*Config, *Faulty) {
	return func(cfg *Config, c *Faulty) {
		packets(untouched)(cfg, c)
		cfg.NTP = lie
	}
}

func lose(c *Faulty, p *rtp.Packet) []*rtp.Packet {
	if c.left.Load()%3 == 0 {
		return nil
	}
	return []*rtp.Packet{p}
}

func reorder(c *Faulty, p *rtp.Packet) []*rtp.Packet {
	if c.held == nil {
		held := *p
		c.held = &held
		return nil
	}
	first := c.held
	c.held = nil
	return []*rtp.Packet{p, first}
}

func corrupt(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
	bad := *p
	bad.Payload = bytes.Clone(p.Payload)
	for i := 3; i < len(bad.Payload); i += 17 {
		bad.Payload[i] ^= 0x55
	}
	return []*rtp.Packet{&bad}
}

func truncate(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
	short := *p
	short.Payload = p.Payload[:(len(p.Payload)+2)/3]
	return []*rtp.Packet{&short}
}

// withoutKeyframes drops what an H.264 decoder could begin with: IDR slices, parameter sets and packets that may hold
// them.
func withoutKeyframes(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
	if len(p.Payload) > 0 {
		switch p.Payload[0] & 0x1F {
		case 5, 7, 8, 24, 28:
			return nil
		}
	}
	return []*rtp.Packet{p}
}

// beginnings sends the first fragment of a picture and nothing after it.
func beginnings(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
	if len(p.Payload) < 3 || p.Payload[0]&0x1F >= 24 {
		return nil
	}
	first := *p
	first.Marker = false
	first.Payload = append([]byte{p.Payload[0]&0x60 | 28, 0x80 | p.Payload[0]&0x1F}, p.Payload[1:]...)
	return []*rtp.Packet{&first}
}

// flip refuses every other DESCRIBE.
func flip(cfg *Config, c *Faulty) {
	cfg.Request = func(got base.Method, _ <-chan struct{}) *base.Response {
		if got == base.Describe && c.on.Load() && c.asked.Add(1)%2 == 1 {
			return &base.Response{StatusCode: base.StatusUnauthorized}
		}
		return nil
	}
}

// Faults lists them.
func Faults() []Fault {
	begun := time.Now()
	pause := func(on bool) func(*Faulty) { return func(c *Faulty) { c.current().Pause(on) } }
	resize := func(on bool) func(*Faulty) { return func(c *Faulty) { c.current().Switch(on) } }
	all := []Fault{
		{Name: "no answer to DESCRIBE", Hard: true, arm: hang(base.Describe)},
		{Name: "no answer to SETUP", Hard: true, arm: hang(base.Setup)},
		{Name: "no answer to PLAY", Hard: true, arm: hang(base.Play)},
		{Name: "accepts and says nothing", Hard: true, arm: answers(silent)},
		{Name: "answers to other questions than asked", Hard: true, arm: answers(otherNumber)},
		{Name: "answers drip", Hard: true, arm: answers(drip)},
		{Name: "credentials refused now and then", Hard: true, arm: flip},
		{Name: "credentials refused for a while", Hard: true, arm: refuse(base.Describe, base.StatusUnauthorized)},
		{Name: "no session left", Hard: true, arm: refuse(base.Setup, base.StatusNotEnoughBandwidth)},
		{Name: "service unavailable", Hard: true, arm: refuse(base.Describe, base.StatusServiceUnavailable)},
		{Name: "path not there yet", Hard: true, arm: refuse(base.Describe, base.StatusNotFound)},
		{Name: "internal error at PLAY", Hard: true, arm: refuse(base.Play, base.StatusInternalServerError)},
		{Name: "transport refused", Hard: true, arm: refuse(base.Setup, base.StatusUnsupportedTransport)},
		{Name: "no media after PLAY", Hard: true, fail: pause(true), heal: pause(false)},
		{Name: "sender reports without media", Hard: true, Late: true, arm: func(cfg *Config, _ *Faulty) { cfg.ReportsWhilePaused = true }, fail: pause(true), heal: pause(false)},
		{Name: "media drip and no picture is whole", Hard: true, Late: true, arm: packets(beginnings)},
		{Name: "the end of a session is not heard", Hard: true, Late: true, arm: deaf, fail: pause(true), heal: pause(false)},
		{Name: "datagrams lost on the way", Hard: true, UDP: true, arm: firewall},
		{Name: "packets larger than a datagram", Hard: true, UDP: true, arm: oversize},
		{Name: "silence in mid-stream", Hard: true, Late: true, fail: pause(true), heal: pause(false)},
		{Name: "no keyframe", Hard: true, arm: packets(withoutKeyframes)},
		{Name: "connection lost", Hard: true, Late: true, fail: func(c *Faulty) { c.current().Kick() }},
		{Name: "power lost and back", Hard: true, Late: true, fail: func(c *Faulty) { c.current().Close() }, heal: reborn},
		{Name: "packets lost", arm: packets(lose)},
		{Name: "packets lost, H.265", Codec: "h265", arm: packets(lose)},
		{Name: "packets lost, MJPEG", Codec: "mjpeg", arm: packets(lose)},
		{Name: "packets lost, B-frames", Codec: "b-frames", arm: packets(lose)},
		{Name: "packets lost, 250 pictures from keyframe to keyframe", Codec: "long", arm: packets(lose)},
		{Name: "B-frames", Codec: "b-frames", arm: packets(untouched)},
		{Name: "another size in mid-stream", Codec: "resized", Late: true, arm: packets(untouched), fail: resize(true), heal: resize(false)},
		{Name: "packets out of order", arm: packets(reorder)},
		{Name: "packets twice", arm: packets(func(_ *Faulty, p *rtp.Packet) []*rtp.Packet { return []*rtp.Packet{p, p} })},
		{Name: "packets corrupted", Late: true, arm: packets(corrupt)},
		{Name: "packets cut short, H.265", Codec: "h265", Late: true, arm: packets(truncate)},
		{Name: "another sender's number", Late: true, arm: packets(func(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
			p.SSRC ^= 0xDEADBEEF
			return []*rtp.Packet{p}
		})},
		{Name: "media time jumps", Late: true, arm: packets(func(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
			p.Timestamp += 90000 * 3600
			return []*rtp.Packet{p}
		})},
		{Name: "media time wraps", arm: packets(func(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
			p.Timestamp += ^uint32(0) - 90000 // one second of it left when the camera starts
			return []*rtp.Packet{p}
		})},
		{Name: "media time stands still", Late: true, arm: packets(func(_ *Faulty, p *rtp.Packet) []*rtp.Packet {
			p.Timestamp = 4711
			return []*rtp.Packet{p}
		})},
		{Name: "the camera lives in 1970", arm: clock(func(now time.Time) time.Time { return time.Unix(now.Unix()%86400, 0) })},
		{Name: "the camera lives in another zone", arm: clock(func(now time.Time) time.Time { return now.Add(3 * time.Hour) })},
		{Name: "the camera's clock is an hour of 500 ppm ahead and goes on", arm: clock(func(now time.Time) time.Time {
			return now.Add(1800*time.Millisecond + now.Sub(begun)/2000)
		})},
		{Name: "no sender reports", arm: func(cfg *Config, c *Faulty) {
			clock(nil)(cfg, c)
			cfg.NoReports = true
		}},
	}
	for i := range all {
		all[i].Codec = or(all[i].Codec, "h264")
	}
	return all
}

// reborn serves on the address of the camera that died.
func reborn(c *Faulty) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cfg := c.cfg
	cfg.Address = c.camera.Host()
	c.camera = Start(c.tb, cfg)
}
