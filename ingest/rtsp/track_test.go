package rtsp

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
	"github.com/pion/rtp"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/internal/rtsptest"
)

// collector keeps what a track delivers.
type collector struct {
	streams int
	units   []ingest.AccessUnit
	bad     uint64
}

func (*collector) Reached(ingest.Stage)             {}
func (c *collector) Stream(ingest.Stream)           { c.streams++ }
func (*collector) SenderReport(ingest.SenderReport) {}
func (c *collector) AccessUnit(u ingest.AccessUnit) { c.units = append(c.units, u) }
func (c *collector) Packets(_, _, _, bad uint64)    { c.bad += bad }

// FuzzTrack makes packets of arbitrary bytes: whatever comes, units have content, are announced, and hold no more than
// what came and the parameter sets.
func FuzzTrack(f *testing.F) {
	f.Add(uint8(0), []byte{8, 0, 0x65, 1, 2, 3, 4, 5, 6, 7, 4, 0x80, 0x41, 1, 2, 3})
	f.Add(uint8(1), []byte{6, 0x80, 0x26, 1, 2, 3, 4, 5})
	f.Add(uint8(2), []byte{9, 0x80, 0, 0, 0, 0, 1, 80, 8, 8, 1})
	f.Add(uint8(2), []byte{18, 0x80, 0, 0, 0, 0, 65, 200, 8, 8, 0, 4, 0xFF, 0xFF, 0, 0, 0, 0, 1, 2})
	f.Add(uint8(0), []byte{4, 0, 0x7C, 0x85, 1, 2, 4, 0x80, 0x7C, 0x45, 3, 4}) // a picture in fragments
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		formats := []format.Format{
			&format.H264{PayloadTyp: 96, PacketizationMode: 1}, &format.H265{PayloadTyp: 96}, &format.MJPEG{}, &format.AV1{PayloadTyp: 96},
		}
		track, err := trackOf(&description.Media{Type: description.MediaTypeVideo}, formats[int(kind)%len(formats)], said{})
		if err != nil || track == nil {
			t.Fatalf("%v, %v", track, err)
		}
		c, came := &collector{}, 0
		track.sink = c
		track.now = func() ingest.Instant { return ingest.Instant{Mono: time.Second, Wall: time.Unix(1, 0)} }
		// A packet is its length, its marker and its payload.
		for n := uint16(0); len(b) >= 2; n++ {
			size := min(int(b[0]), len(b)-2)
			p := &rtp.Packet{Payload: b[2 : 2+size]}
			p.SequenceNumber, p.Marker, p.Timestamp = n+uint16(b[1]&3), b[1]&0x80 != 0, uint32(n)*3600*uint32(b[1]&0x40)
			came += size
			b = b[2+size:]
			track.packet(p)
		}
		for _, u := range c.units {
			if len(u.Data) == 0 || c.streams == 0 {
				t.Fatalf("a unit of %d bytes, %d streams", len(u.Data), c.streams)
			}
			// Start codes, headers and tables of a JPEG, and parameter sets seen before are added.
			if len(u.Data) > 8*came+4096 {
				t.Fatalf("a unit of %d bytes out of %d", len(u.Data), came)
			}
		}
	})
}

// Cameras mark the ends of pictures, the ends of slices, or nothing, and networks lose the marks.
func TestPicturesAreToldApartWhateverMarksThem(t *testing.T) {
	sliced := []string{"-slices", "4"}
	clips := map[string]*rtsptest.Clip{
		"h264": rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 30, GOP: 10, Extra: sliced}),
		"h265": rtsptest.Render(t, rtsptest.ClipConfig{Codec: "h265", Width: 128, Height: 256, Frames: 30, GOP: 10, Extra: []string{"-x265-params", "slices=4:keyint=10:min-keyint=10:scenecut=0:bframes=0:aud=1:log-level=none:open-gop=0:repeat-headers=1"}}),
	}
	for codec, clip := range clips {
		packets := packetsOf(t, clip)
		for name, c := range map[string]struct {
			change func(i int, p *rtp.Packet) bool // false: lost
			first  int                             // the unit that is the first to be as it was sent
			lost   bool
		}{
			"as it should be":      {func(int, *rtp.Packet) bool { return true }, 0, false},
			"no marks":             {func(_ int, p *rtp.Packet) bool { p.Marker = false; return true }, 0, false},
			"marks on every slice": {func(_ int, p *rtp.Packet) bool { p.Marker = true; return true }, 1, false},
			"lost marks":           {func(i int, p *rtp.Packet) bool { return !p.Marker || i%3 != 0 }, 0, true},
		} {
			t.Run(codec+", "+name, func(t *testing.T) {
				var f format.Format = &format.H264{PayloadTyp: 96, PacketizationMode: 1}
				if codec == "h265" {
					f = &format.H265{PayloadTyp: 96}
				}
				track, err := trackOf(&description.Media{Type: description.MediaTypeVideo}, f, said{})
				if err != nil {
					t.Fatal(err)
				}
				now := time.Duration(0)
				c2 := &collector{}
				track.sink, track.now = c2, func() ingest.Instant { return ingest.Instant{Mono: now} }
				for i, p := range packets {
					q := *p
					// The last of a picture comes at the picture's time.
					now = time.Duration(q.Timestamp/3600) * time.Second
					if c.change(i, &q) {
						track.packet(&q)
					}
				}
				got := map[ingest.Ticks]ingest.AccessUnit{}
				for _, u := range c2.units {
					if _, twice := got[u.Ticks]; !twice || u.Ticks >= ingest.Ticks(3600*c.first) {
						if twice {
							t.Errorf("picture %d came twice", u.Ticks/3600)
						}
						got[u.Ticks] = u
					}
				}
				for i, want := range clip.Units[:len(clip.Units)-1] {
					u, came := got[ingest.Ticks(i*3600)]
					if i < c.first {
						continue
					}
					if !came || u.Keyframe != want.Key || u.Received.Mono != time.Duration(i)*time.Second {
						t.Fatalf("picture %d came %v: key %v, at %v", i, came, u.Keyframe, u.Received.Mono)
					}
					if !c.lost && (u.Lost || u.Damaged) && i > c.first || !u.Damaged && !whole(u.Data, want.NALUs) {
						t.Errorf("picture %d is not what was sent: lost %v, damaged %v", i, u.Lost, u.Damaged)
					}
				}
			})
		}
	}
}

// whole reports whether a unit holds every slice that was sent, and no other.
func whole(data []byte, sent [][]byte) bool {
	slices := func(units [][]byte) (n int) {
		for _, u := range units {
			n += len(u)
		}
		return n
	}
	for _, u := range sent {
		if !bytes.Contains(data, u) {
			return false
		}
	}
	return slices(bitstream.Units(data)) <= slices(sent)+200 // parameter sets
}

// packetsOf makes a packet of each slice, a picture every 3600 ticks.
func packetsOf(t *testing.T, clip *rtsptest.Clip) []*rtp.Packet {
	t.Helper()
	var packets []*rtp.Packet
	for i, u := range clip.Units {
		for n, unit := range u.NALUs {
			packets = append(packets, &rtp.Packet{
				Header:  rtp.Header{Version: 2, PayloadType: 96, SequenceNumber: uint16(len(packets)), Timestamp: uint32(3600 * i), Marker: n == len(u.NALUs)-1, SSRC: 7},
				Payload: unit,
			})
		}
	}
	return packets
}

// What the library writes, it does not read again.
func TestJPEGsAreReadThatTheLibraryDoesNotKnow(t *testing.T) {
	plain := rtsptest.ClipConfig{Codec: "mjpeg", Width: 64, Height: 64, Frames: 5}
	sliced := plain
	sliced.Extra = []string{"-threads", "4", "-thread_type", "slice"}
	wide := plain
	wide.Width, wide.Height, wide.Frames = 2560, 64, 2
	large := rtsptest.Render(t, wide)
	for name, c := range map[string]struct {
		clip      *rtsptest.Clip
		once      bool
		said      image.Point // in the SDP
		extension bool        // says it
	}{
		"restarts":                     {clip: rtsptest.Render(t, sliced)},
		"tables once":                  {clip: rtsptest.Render(t, plain), once: true},
		"both":                         {clip: rtsptest.Render(t, sliced), once: true},
		"wide, by the SDP":             {clip: large, said: image.Pt(2560, 64)},
		"wide, by an extension":        {clip: large, extension: true},
		"not wide, and the SDP errs":   {clip: rtsptest.Render(t, sliced), said: image.Pt(2560, 64)},
		"wide, and one says otherwise": {clip: large, said: image.Pt(640, 480), extension: true},
	} {
		t.Run(name, func(t *testing.T) {
			track, err := trackOf(&description.Media{Type: description.MediaTypeVideo}, &format.MJPEG{}, said{size: c.said})
			if err != nil {
				t.Fatal(err)
			}
			e, err := (&format.MJPEG{}).CreateEncoder()
			if err != nil {
				t.Fatal(err)
			}
			got := &collector{}
			track.sink, track.now = got, func() ingest.Instant { return ingest.Instant{Mono: time.Second} }
			for i, u := range c.clip.Units {
				// The library writes no such width.
				sent := slices.Clone(u.NALUs[0])
				at, _ := frameHeader(sent)
				header := slices.Clone(at[:20])
				if c.clip == large {
					binary.BigEndian.PutUint16(at[7:], 0)
				}
				packets, err := e.Encode(sent)
				if err != nil {
					t.Fatal(err)
				}
				for n, p := range packets {
					if c.extension && n == 0 {
						p.Extension, p.ExtensionProfile = true, 0xFFD8
						if err := p.SetExtension(0, header); err != nil {
							t.Fatal(err)
						}
					}
					if p.Timestamp = uint32(3600 * i); c.once {
						p.Payload[5] = 200
						at := 8
						if p.Payload[4] >= 64 {
							at += 4
						}
						if length := int(p.Payload[at+2])<<8 | int(p.Payload[at+3]); n == 0 && i > 0 {
							p.Payload = slices.Concat(p.Payload[:at], []byte{0, 0, 0, 0}, p.Payload[at+4+length:])
						}
					}
					track.packet(p)
				}
			}
			if len(got.units) != len(c.clip.Units) || got.bad > 0 {
				t.Fatalf("%d pictures, %d bad packets", len(got.units), got.bad)
			}
			for i, u := range c.clip.Units {
				want, err := jpeg.Decode(bytes.NewReader(u.NALUs[0]))
				if err != nil {
					t.Fatal(err)
				}
				is, err := jpeg.Decode(bytes.NewReader(got.units[i].Data))
				if err != nil || !reflect.DeepEqual(is, want) {
					t.Errorf("picture %d is another than was sent: %v", i, err)
				}
			}
			if restarts := bytes.Contains(got.units[0].Data, []byte{0xFF, 0xDD}); restarts != bytes.Contains(c.clip.Units[0].NALUs[0], []byte{0xFF, 0xDD}) {
				t.Errorf("restarts: %v", restarts)
			}
		})
	}
}

func TestWhatADescriptionSaysOfATrackIsTheTracks(t *testing.T) {
	got := read([]byte("v=0\r\na=x-dimensions:1,1\r\nm=audio 0 RTP/AVP 0 99\r\na=x-dimensions:2,2\r\n" +
		"m=video 0 RTP/AVP 96 97\r\na=rtpmap:96 H264/1000\r\na=rtpmap:97 H265/0\r\na=fmtp:96 SPROP-PARAMETER-SETS=Zw==, aA ;x=1\r\na=fmtp:97 sprop-vps=AAAAAUA=; sprop-pps=!,RA==\r\n" +
		"m=video 0 RTP/AVP 96 26\r\na=rtpmap:96 H264/2000\r\na=framesize:26 3840-2160\r\na=fmtp:96 sprop-parameter-sets=Zg==\r\n" +
		"m=video 0 RTP/AVP 100\na=x-dimensions: 2560 , 1440\n"))
	want := map[uint8]said{
		96: {clock: 1000, sets: [][]byte{{0x67}, {0x68}}}, 97: {sets: [][]byte{{0x40}, {0x44}}},
		26: {size: image.Pt(3840, 2160)}, 100: {size: image.Pt(2560, 1440)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// FuzzSDP reads descriptions: a track or an error that says what is wrong, never both, never neither.
func FuzzSDP(f *testing.F) {
	f.Add([]byte("v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\r\na=control:trackID=0\r\n"))
	f.Add([]byte("v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 26\r\n"))
	f.Add([]byte("v=0\r\nm=audio 0 RTP/AVP 0\r\n"))
	f.Add([]byte("v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nt=0 0\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/16000\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H265\r\na=fmtp:96 sprop-sps=!\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		mended := mend(b)
		if readable(b) && !readable(mended) || !bytes.Equal(mend(mended), mended) {
			t.Fatalf("mended to %q", mended)
		}
		parsed, err := sdpunmarshaler.Unmarshal(mended)
		if err != nil {
			return
		}
		var desc description.Session
		if desc.Unmarshal2(parsed) != nil {
			return
		}
		track, err := pick(&desc, read(b))
		if (track == nil) == (err == nil) {
			t.Fatalf("%v and %v", track, err)
		}
		if err != nil {
			if e := ingest.AsError(err); e.Reason != ingest.ReasonCodecUnsupported && e.Reason != ingest.ReasonProtocol {
				t.Fatalf("an untyped fault: %v", err)
			}
			return
		}
		if track.format.ClockRate() < 0 || track.depacketise == nil {
			t.Fatalf("a track that cannot be read: %+v", track)
		}
	})
}

// FuzzLogin answers challenges: what is left of them is what the library reads, and the answer fits the challenge.
func FuzzLogin(f *testing.F) {
	f.Add(`Digest realm="a", nonce="b", qop="auth", opaque="c"`, `Basic realm="x"`)
	f.Add(`Digest realm="a \"b", nonce="b", Basic realm="x"`, `basic `)
	f.Fuzz(func(t *testing.T, one, two string) {
		l := &login{user: "u", password: "p"}
		r := &base.Response{StatusCode: base.StatusUnauthorized, Header: base.Header{"WWW-Authenticate": {one, two}}}
		l.question(r)
		left := r.Header["WWW-Authenticate"]
		if len(left) == 1 {
			if err := new(headers.Authenticate).Unmarshal(left); err != nil {
				t.Fatalf("%q: %v", left, err)
			}
		}
		u, err := base.ParseURL("rtsp://host/x")
		if err != nil {
			t.Fatal(err)
		}
		q := &base.Request{Method: base.Describe, URL: u, Header: base.Header{}}
		l.answer(q)
		if got, asked := len(q.Header["Authorization"]), l.asked != nil; (got == 1) != asked || asked && len(left) != 1 {
			t.Fatalf("%d answers to %+v", got, l.asked)
		}
	})
}

// FuzzBlank shows messages without credentials, whatever else stands in them.
func FuzzBlank(f *testing.F) {
	f.Add("Digest username=\"u\", response=\"abc\"", "secret")
	f.Add("***", "x")
	f.Fuzz(func(t *testing.T, authorization, password string) {
		if strings.ContainsAny(authorization, "\r\n") || len(authorization) < 12 {
			return // no header holds a line break; few letters may stand anywhere
		}
		u, err := base.ParseURL("rtsp://host/x")
		if err != nil {
			t.Fatal(err)
		}
		b, err := (base.Request{Method: base.Describe, URL: u, Header: base.Header{"Authorization": {authorization}, "CSeq": {"1"}}}).Marshal()
		if err != nil {
			return
		}
		shown := string(blank(append(b, password...), ingest.Camera{Password: password}))
		if strings.Contains(shown, authorization) && !strings.Contains("***", authorization) {
			t.Fatalf("%q shows %q", shown, authorization)
		}
		if len(password) > 8 && !strings.Contains(password, "*") && strings.Contains(shown, password) {
			t.Fatalf("%q shows %q", shown, password)
		}
	})
}
