// Package fmp4 packs coded pictures as they came from a camera into fragmented MP4 (ISO/IEC 14496-12), without
// decoding anything: for a browser picture by picture (Muxer), for a file group by group (Writer).
//
// A file of one camera's pictures from one time to another:
//
//	w := fmp4.NewWriter(file)
//	for … {
//		err := w.Add(codec, fmp4.Unit{Units: u.GetUnits(), Key: u.GetKeyframe(), Ticks: u.GetRtpTicks(), Capture: …})
//	}
//	err := w.Close()
package fmp4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/av1"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4/seekablebuffer"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mp4/codecs"
)

// Codec of a track.
type Codec int

// The codecs. There is no MJPEG: no browser plays it in MP4, and each of its pictures is a file already.
const (
	H264 Codec = iota + 1
	H265
	AV1
)

// ErrCodec says that a codec does not go into MP4 here.
var ErrCodec = errors.New("this codec does not go into MP4: only H.264, H.265 and AV1 do")

// ErrFormatChanged says that a unit does not continue the file: another codec, or other parameter sets.
var ErrFormatChanged = errors.New("the stream's format changed: what follows needs a file of its own")

// Rate of media time, in ticks a second.
const Rate = 90000

// Unit is one coded picture.
type Unit struct {
	// Units are NAL units without start codes (H.264, H.265; keyframes with their parameter sets), or one
	// temporal unit of OBUs with their sizes (AV1).
	Units [][]byte
	// Key: decoding can begin here.
	Key bool
	// Ticks is presentation time in 1/90000 s, from any origin.
	Ticks int64
	// Capture time; zero: unknown.
	Capture time.Time
	// Gap: units before it are missing, or Ticks has another origin than before.
	Gap bool
}

// Muxer packs the pictures of one stream. Not safe for concurrent use.
type Muxer struct {
	line     timeline
	sets     [][]byte
	mime     string
	init     []byte
	sequence uint32
}

// NewMuxer begins with a keyframe, which holds what the header needs. ErrCodec and damaged parameter sets are errors.
func NewMuxer(codec Codec, key Unit) (*Muxer, error) {
	m := &Muxer{line: timeline{codec: codec}}
	var err error
	if m.sets, err = parameterSets(codec, key.Units); err != nil {
		return nil, err
	}
	track := &fmp4.InitTrack{ID: 1, TimeScale: Rate}
	switch codec {
	case H264:
		track.Codec = &codecs.H264{SPS: m.sets[0], PPS: m.sets[1]}
		m.mime = fmt.Sprintf("avc1.%02x%02x%02x", m.sets[0][1], m.sets[0][2], m.sets[0][3])
	case H265:
		track.Codec = &codecs.H265{VPS: m.sets[0], SPS: m.sets[1], PPS: m.sets[2]}
		m.mime, err = h265MIME(m.sets[1])
	case AV1:
		track.Codec = &codecs.AV1{SequenceHeader: m.sets[0]}
		m.mime, err = av1MIME(m.sets[0])
	}
	if err != nil {
		return nil, err
	}
	m.mime = `video/mp4; codecs="` + m.mime + `"`
	var b seekablebuffer.Buffer
	if err := (&fmp4.Init{Tracks: []*fmp4.InitTrack{track}}).Marshal(&b); err != nil {
		return nil, fmt.Errorf("write the header of an MP4: %w", err)
	}
	m.init = b.Bytes()
	return m, nil
}

// MIME names the content as a browser's MediaSource wants to hear it.
func (m *Muxer) MIME() string { return m.mime }

// Init returns the header, which goes before the first fragment.
func (m *Muxer) Init() []byte { return m.init }

// Follow lets presentation go on where that of the muxer before ended, as a player that is given another header wants it.
// The next unit is a keyframe.
func (m *Muxer) Follow(before *Muxer) {
	codec := m.line.codec
	m.line, m.sequence = before.line, before.sequence
	m.line.codec, m.line.decoding, m.line.moved = codec, nil, true
}

// Continues reports whether a keyframe needs no other header than this.
func (m *Muxer) Continues(codec Codec, key Unit) bool {
	sets, err := parameterSets(codec, key.Units)
	if err != nil || codec != m.line.codec || len(sets) != len(m.sets) {
		return false
	}
	for i := range sets {
		if string(sets[i]) != string(m.sets[i]) {
			return false
		}
	}
	return true
}

// Fragment packs one picture and holds nothing back: as the next one's time is not known, the picture lasts as
// long as the one before, or a little longer where pictures come unevenly, and one that comes much later than that goes
// on sooner: browsers show nothing across such a hole until the next keyframe. at is its presentation time in the MP4. A time that jumps, after a gap above all, does not
// leave a hole: presentation goes on where it was. With a capture time, a producer reference time box goes first.
func (m *Muxer) Fragment(u Unit) (data []byte, at time.Duration, err error) {
	m.line.live = true
	s, err := m.line.place(u)
	if err != nil {
		return nil, 0, err
	}
	data, err = m.fragment([]sample{s}, u.Capture)
	return data, ticks(s.pts), err
}

func ticks(t int64) time.Duration { return time.Duration(t) * time.Second / Rate }

// fragment writes samples that follow each other.
func (m *Muxer) fragment(samples []sample, capture time.Time) ([]byte, error) {
	track := &fmp4.PartTrack{ID: 1, BaseTime: uint64(samples[0].dts)}
	for _, s := range samples {
		track.Samples = append(track.Samples, &fmp4.Sample{
			Duration: uint32(s.duration), PTSOffset: int32(s.pts - s.dts), IsNonSyncSample: !s.key, Payload: s.payload,
		})
	}
	m.sequence++
	var b seekablebuffer.Buffer
	if !capture.IsZero() {
		_, _ = b.Write(referenceTime(capture, samples[0].pts)) // a buffer
	}
	head := b.Len()
	var moof seekablebuffer.Buffer
	if err := (fmp4.Part{SequenceNumber: m.sequence, Tracks: []*fmp4.PartTrack{track}}).Marshal(&moof); err != nil {
		return nil, fmt.Errorf("write a fragment of an MP4: %w", err)
	}
	return append(b.Bytes()[:head:head], moof.Bytes()...), nil
}

// referenceTime is a prft box: section 8.16.5, version 1; flags 24 say that the time is that of capture.
func referenceTime(capture time.Time, pts int64) []byte {
	const toNTP = 2208988800
	b := make([]byte, 0, 32)
	b = binary.BigEndian.AppendUint32(b, 32)
	b = append(b, "prft\x01\x00\x00\x18"...)
	b = binary.BigEndian.AppendUint32(b, 1)
	seconds := uint64(capture.Unix() + toNTP)
	b = binary.BigEndian.AppendUint64(b, seconds<<32|uint64(capture.Nanosecond())<<32/1e9)
	return binary.BigEndian.AppendUint64(b, uint64(pts))
}

// parameterSets finds what the header needs in a keyframe.
func parameterSets(codec Codec, units [][]byte) ([][]byte, error) {
	var sets [][]byte
	var names []string
	var kind func([]byte) int
	switch codec {
	case H264:
		names = []string{"SPS", "PPS"}
		kind = func(u []byte) int { return int(u[0]&0x1F) - 7 }
	case H265:
		names = []string{"VPS", "SPS", "PPS"}
		kind = func(u []byte) int { return int(u[0]>>1&0x3F) - 32 }
	case AV1:
		names = []string{"sequence header"}
		kind = func(u []byte) int { return int(u[0]>>3&0xF) - 1 }
		var err error
		if units, err = obus(units); err != nil {
			return nil, err
		}
	default:
		return nil, ErrCodec
	}
	sets = make([][]byte, len(names))
	for _, u := range units {
		if len(u) == 0 {
			continue
		}
		if i := kind(u); i >= 0 && i < len(sets) && sets[i] == nil {
			if sets[i] = u; codec == AV1 {
				sets[i] = withoutSize(u)
			}
		}
	}
	for i, name := range names {
		if len(sets[i]) < 2 || name == "SPS" && len(sets[i]) < 4 {
			return nil, fmt.Errorf("the keyframe has no %s", name)
		}
	}
	return sets, nil
}

// obus splits temporal units (section 5.3 of the AV1 specification), leaving delimiters out, which are not for MP4. The
// OBUs keep their sizes.
func obus(units [][]byte) ([][]byte, error) {
	var all [][]byte
	for _, u := range units {
		for len(u) > 0 {
			payload, size, err := obuPlace(u)
			if err != nil {
				return nil, fmt.Errorf("read a temporal unit: %w", err)
			}
			if n := payload + size; u[0]>>3&0xF != 2 {
				all = append(all, u[:n:n])
			}
			u = u[payload+size:]
		}
	}
	return all, nil
}

// obuPlace says where an OBU's payload begins and how long it is.
func obuPlace(u []byte) (payload, size int, err error) {
	at := 1
	if u[0]&4 != 0 { // an extension
		at++
	}
	if u[0]&2 == 0 {
		return 0, 0, errors.New("an OBU without its size")
	}
	if len(u) <= at {
		return 0, 0, errors.New("an OBU is cut short")
	}
	var length av1.LEB128
	n, err := length.Unmarshal(u[at:])
	if err != nil {
		return 0, 0, err
	}
	if at += n; int(length) > len(u)-at {
		return 0, 0, errors.New("an OBU is cut short")
	}
	return at, int(length), nil
}

// withoutSize is an OBU as the header of an MP4 wants to be given it, without extension.
func withoutSize(obu []byte) []byte {
	at, _, err := obuPlace(obu)
	if err != nil {
		return nil // what obus has split has a place
	}
	return append([]byte{obu[0] &^ 6}, obu[at:]...)
}

// h265MIME is section E.3 of ISO/IEC 14496-15.
func h265MIME(b []byte) (string, error) {
	var sps h265.SPS
	if err := sps.Unmarshal(b); err != nil {
		return "", fmt.Errorf("read an SPS: %w", err)
	}
	p := sps.ProfileTierLevel
	var compatible uint32
	for i, set := range p.GeneralProfileCompatibilityFlag {
		if set {
			compatible |= 1 << i // reversed: flag 0 is the last bit
		}
	}
	tier := "L"
	if p.GeneralTierFlag == 1 {
		tier = "H"
	}
	text := fmt.Sprintf("hvc1.%s%d.%x.%s%d", [...]string{"", "A", "B", "C"}[p.GeneralProfileSpace&3], p.GeneralProfileIdc, compatible, tier, p.GeneralLevelIdc)
	// The six bytes of constraint flags lie behind the compatibility flags: 2 bytes of NAL header, 1 of ids, 1 of
	// profile, 4 of compatibility. No byte of them can be an emulation prevention one before the third zero.
	if raw := h264.EmulationPreventionRemove(b); len(raw) >= 14 {
		constraints := raw[8:14]
		n := len(constraints)
		for n > 0 && constraints[n-1] == 0 {
			n--
		}
		var b strings.Builder
		for _, c := range constraints[:n] {
			fmt.Fprintf(&b, ".%X", c)
		}
		text += b.String()
	}
	return text, nil
}

// av1MIME is section 5 of "AV1 Codec ISO Media File Format Binding".
func av1MIME(b []byte) (string, error) {
	var h av1.SequenceHeader
	if err := h.Unmarshal(b); err != nil {
		return "", fmt.Errorf("read a sequence header: %w", err)
	}
	tier, level := "M", uint8(0)
	if len(h.SeqLevelIdx) > 0 {
		level = h.SeqLevelIdx[0]
	}
	if len(h.SeqTier) > 0 && h.SeqTier[0] {
		tier = "H"
	}
	return fmt.Sprintf("av01.%d.%02d%s.%02d", h.SeqProfile, level, tier, max(8, h.ColorConfig.BitDepth)), nil
}
