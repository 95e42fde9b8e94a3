package rtsp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpav1"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtph264"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtph265"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmjpeg"
	"github.com/pion/rtcp"
	"github.com/pion/rtp"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
)

type packet = rtp.Packet

// track turns the packets of one video track into access units.
type track struct {
	media  *description.Media
	format format.Format
	camera ingest.Camera
	sink   ingest.Sink
	now    func() ingest.Instant

	depacketise func(*packet) ([][]byte, error)
	assembler   bitstream.Assembler
	stream      ingest.Stream
	announced   bool

	rate     int // ticks of the clock in a second
	clock    unwrapper
	expected uint16 // next sequence number
	started  bool
	ssrc     uint32
	any      bool           // a packet has come
	begun    bool           // packets of the next access unit have come
	lost     bool           // packets are missing since the last access unit
	damaged  bool           // and they are missing within the next one
	stamp    uint32         // RTP time of the packets of the next one
	arrived  ingest.Instant // of the last of them

	// end is a packet's payload that ends an access unit and says nothing; nil: a unit ends by itself.
	end []byte
	// Some cameras mark the end of every slice. Then units end where RTP time changes.
	slices   int // units that went on with the picture of the one before
	unmarked bool
	sent     uint32 // RTP time of the last unit
}

// What comes no further behind has come again, or too late; further behind, the camera counts anew.
const maxLate = 64

// So many units that go on with another's picture tell that a camera marks slices.
const maxSlices = 2

// pick chooses the first video track this build decodes. all is what the description says besides.
func pick(desc *description.Session, all map[uint8]said) (*track, error) {
	var others []string
	for _, m := range desc.Medias {
		if m.Type != description.MediaTypeVideo || m.IsBackChannel {
			continue
		}
		for _, f := range m.Formats {
			t, err := trackOf(m, f, all[f.PayloadType()])
			if err != nil {
				return nil, err
			}
			if t != nil {
				return t, nil
			}
			others = append(others, name(f))
		}
	}
	text := "the camera offers no video"
	if len(others) > 0 {
		text = "the camera's video is " + strings.Join(others, ", ") + ", which cannot be decoded here"
	}
	return nil, &ingest.Error{Reason: ingest.ReasonCodecUnsupported, Stage: ingest.StageDescribe, Err: errors.New(text)}
}

// name of a format as the SDP has it.
func name(f format.Format) string {
	if codec, _, _ := strings.Cut(f.RTPMap(), "/"); codec != "" {
		return codec
	}
	return fmt.Sprintf("payload type %d", f.PayloadType())
}

// trackOf returns nil for a format nobody here reads.
func trackOf(m *description.Media, f format.Format, said said) (*track, error) {
	t := &track{media: m, format: f, rate: cmp.Or(said.clock, f.ClockRate())}
	wrap := func(err error) error {
		if err != nil {
			return &ingest.Error{Reason: ingest.ReasonProtocol, Stage: ingest.StageDescribe, Err: fmt.Errorf("track %s: %w", name(f), err)}
		}
		return nil
	}
	switch f := plain(f).(type) {
	case *format.H264:
		t.end = []byte{9, 0xF0}
		// Mode 1 includes mode 0, which is also meant where nothing is said, and which the library refuses over UDP: its
		// packets may be too large. Whether they are is seen when they come (maxOversize).
		f.PacketizationMode = max(f.PacketizationMode, 1)
		d, err := f.CreateDecoder()
		if err != nil {
			return nil, wrap(err)
		}
		t.depacketise = d.Decode
		t.assembler = bitstream.NewAssembler(ingest.H264, said.sets...)
	case *format.H265:
		t.end = []byte{35 << 1, 1, 0x50}
		d, err := f.CreateDecoder()
		if err != nil {
			return nil, wrap(err)
		}
		t.depacketise = d.Decode
		t.assembler = bitstream.NewAssembler(ingest.H265, said.sets...)
	case *format.AV1:
		t.end = []byte{1 << 4, 2 << 3}
		d, err := f.CreateDecoder()
		if err != nil {
			return nil, wrap(err)
		}
		t.depacketise = d.Decode
		t.assembler = bitstream.NewAssembler(ingest.AV1)
	case *format.MJPEG:
		d, err := f.CreateDecoder()
		if err != nil {
			return nil, wrap(err)
		}
		j := jpegs{size: said.size}
		t.depacketise = func(p *packet) ([][]byte, error) {
			picture, err := d.Decode(j.packet(p))
			return [][]byte{j.picture(picture)}, err
		}
		t.assembler = bitstream.NewAssembler(ingest.MJPEG)
	default:
		return nil, nil
	}
	t.stream = t.assembler.Stream()
	t.stream.Live, t.stream.RTCP = true, true
	return t, nil
}

// plain is a format the library does not know by its payload type, but by its name.
func plain(f format.Format) format.Format {
	g, ok := f.(*format.Generic)
	if !ok {
		return f
	}
	switch strings.ToUpper(name(f)) {
	case "H264":
		return &format.H264{PayloadTyp: g.PayloadTyp, PacketizationMode: 1}
	case "H265":
		return &format.H265{PayloadTyp: g.PayloadTyp}
	case "AV1":
		return &format.AV1{PayloadTyp: g.PayloadTyp}
	case "JPEG":
		return &format.MJPEG{}
	default:
		return f
	}
}

// packet takes one RTP packet, in order of arrival (TCP) or of sequence (UDP).
func (t *track) packet(p *packet) {
	at := t.now()
	if !t.any {
		t.any = true
		t.sink.Reached(ingest.StageFirstPacket)
	}
	t.sink.Packets(1, uint64(len(p.Payload)), 0, 0)
	if behind := int16(t.expected - p.SequenceNumber); t.started && p.SSRC == t.ssrc && behind > 0 && behind <= maxLate {
		return
	}
	gap := t.started && (p.SSRC != t.ssrc || p.SequenceNumber != t.expected)
	t.damaged = t.damaged || gap && t.begun
	if t.begun && (p.Timestamp != t.stamp || p.SSRC != t.ssrc) && t.end != nil {
		// Its end was lost, or has no mark.
		t.depacket(&packet{Header: rtp.Header{Marker: true, Timestamp: t.stamp, SequenceNumber: t.expected, SSRC: t.ssrc}, Payload: t.end})
	}
	if gap {
		t.lost = true
		// A new SSRC is a new sender: its clock has nothing to do with the old one's.
		if p.SSRC != t.ssrc {
			t.clock = unwrapper{}
		}
	}
	t.started, t.begun, t.ssrc, t.expected = true, true, p.SSRC, p.SequenceNumber+1
	t.stamp, t.arrived = p.Timestamp, at
	if t.unmarked {
		unmarked := *p
		unmarked.Marker = false
		p = &unmarked
	}
	t.depacket(p)
}

// depacket gives a packet to the depacketiser, and on what comes out.
func (t *track) depacket(p *packet) {
	units, err := t.depacketise(p)
	switch {
	case anyOf(err, rtph264.ErrMorePacketsNeeded, rtph265.ErrMorePacketsNeeded, rtpav1.ErrMorePacketsNeeded, rtpmjpeg.ErrMorePacketsNeeded):
		return
	case anyOf(err, rtph264.ErrNonStartingPacketAndNoPrevious, rtph265.ErrNonStartingPacketAndNoPrevious,
		rtpav1.ErrNonStartingPacketAndNoPrevious, rtpmjpeg.ErrNonStartingPacketAndNoPrevious):
		t.lost = true
		return
	case err != nil:
		t.lost, t.begun = true, false
		t.sink.Packets(0, 0, 0, 1)
		return
	}
	t.begun = false
	data, key, changed := t.assembler.Assemble(units)
	if len(data) == 0 {
		return
	}
	if changed || !t.announced {
		t.announced = true
		s := t.assembler.Stream()
		s.Transport, s.Live, s.RTCP = t.stream.Transport, true, true
		t.sink.Stream(s)
	}
	if t.stamp == t.sent && !t.lost && t.assembler.Continues(units) {
		t.slices++
		t.unmarked = t.slices >= maxSlices && t.end != nil
	}
	t.sent = t.stamp
	t.sink.AccessUnit(ingest.AccessUnit{
		Data: data, Ticks: t.clock.ticks(t.stamp, t.rate), Received: t.arrived, Keyframe: key, Recovery: t.assembler.Recovery(),
		Lost: t.lost || t.damaged, Damaged: t.damaged || t.lost && !t.assembler.Begins(units),
	})
	t.lost, t.damaged = false, false
}

// anyOf reports whether err is one of those.
func anyOf(err error, of ...error) bool {
	return err != nil && slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// report takes an RTCP sender report.
func (t *track) report(sr *rtcp.SenderReport) {
	if !t.started || sr.SSRC != t.ssrc || sr.NTPTime == 0 {
		return
	}
	t.sink.SenderReport(ingest.SenderReport{
		Ticks: t.clock.peek(sr.RTPTime, t.rate), NTP: ntpTime(sr.NTPTime), Received: t.now(),
	})
}

// ntpTime converts the 64-bit format of RFC 3550, section 4, era 0 until 2036, then era 1.
func ntpTime(v uint64) time.Time {
	const toUnix = 2208988800
	seconds := int64(v >> 32)
	if seconds < toUnix-100*365*86400/2 && seconds < 1<<31 {
		seconds += 1 << 32
	}
	return time.Unix(seconds-toUnix, int64((v&math.MaxUint32)*1e9>>32))
}

// unwrapper makes 64-bit media time of 32-bit RTP time.
type unwrapper struct {
	started bool
	last    uint32
	sum     int64
}

func (u *unwrapper) ticks(ts uint32, rate int) ingest.Ticks {
	if !u.started {
		u.started, u.last = true, ts
	}
	u.sum += int64(int32(ts - u.last))
	u.last = ts
	return scale(u.sum, rate)
}

// peek converts without moving on.
func (u *unwrapper) peek(ts uint32, rate int) ingest.Ticks {
	return scale(u.sum+int64(int32(ts-u.last)), rate)
}

func scale(v int64, rate int) ingest.Ticks {
	if rate == 90000 || rate <= 0 {
		return ingest.Ticks(v)
	}
	return ingest.Ticks(v/int64(rate)*90000 + v%int64(rate)*90000/int64(rate))
}
