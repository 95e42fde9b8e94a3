package av

/*
#include <stdlib.h>
#include "av.h"
*/
import "C"

import (
	"fmt"
	"io"
	"math"
	"time"
	"unsafe"
)

// Demuxer reads the video of a file.
type Demuxer struct {
	Codec         Codec
	Width, Height int
	// Rate in pictures a second as the file claims; 0: unknown.
	Rate float64
	// Turn is by how many degrees clockwise players are asked to turn the pictures, 0 … 359.
	Turn int

	d      C.vd_demuxer
	packet *C.AVPacket
	read   int64 // packets so far
}

// Packet is one access unit of a file, in decoding order.
type Packet struct {
	// Data is in Annex B for H.264 and H.265, keyframes with their parameter sets; valid until the next
	// Read.
	Data []byte
	// PTS is when the picture is shown, since the file's start; DTS when it is decoded. In a raw stream without times
	// both are by the stream's rate, in decoding order.
	PTS, DTS time.Duration
	Key      bool
}

// OpenFile opens a file (MP4, Matroska, MPEG-TS, AVI, raw H.264, …) and finds its video. Nothing
// but this file is opened, whatever it says. The error is ErrNoVideo when it holds none, or in other codecs alone.
func OpenFile(path string) (*Demuxer, error) {
	quiet()
	name := C.CString("file:" + path)
	defer C.free(unsafe.Pointer(name))
	m := &Demuxer{}
	if err := status(C.vd_demuxer_open(&m.d, name)); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	m.Codec = codecOf(m.d.codec_id)
	if m.Codec == 0 {
		text := C.GoString(C.avcodec_get_name(uint32(m.d.codec_id)))
		C.vd_demuxer_close(&m.d)
		return nil, fmt.Errorf("open %s: its video is %s: %w", path, text, ErrNoVideo)
	}
	if m.packet = C.av_packet_alloc(); m.packet == nil {
		C.vd_demuxer_close(&m.d)
		return nil, fmt.Errorf("open %s: out of memory", path)
	}
	m.Width, m.Height = int(m.d.width), int(m.d.height)
	m.Turn = (360 - int(math.Round(float64(m.d.turn)))%360) % 360
	if m.d.rate.den > 0 {
		m.Rate = float64(m.d.rate.num) / float64(m.d.rate.den)
	}
	return m, nil
}

// Read fills p with the next access unit; io.EOF at the end. It reads the file.
func (m *Demuxer) Read(p *Packet) error {
	C.av_packet_unref(m.packet)
	code := C.vd_demuxer_read(&m.d, m.packet)
	if code == C.vd_end {
		return io.EOF
	}
	if err := status(code); err != nil {
		return fmt.Errorf("read file: %w", err)
	}
	p.Data = unsafe.Slice((*byte)(unsafe.Pointer(m.packet.data)), int(m.packet.size))
	p.Key = m.packet.flags&C.AV_PKT_FLAG_KEY != 0
	p.DTS = m.duration(m.packet.dts)
	p.PTS = m.duration(m.packet.pts)
	switch {
	case m.d.raw != 0, m.packet.pts == C.AV_NOPTS_VALUE && m.packet.dts == C.AV_NOPTS_VALUE:
		// A raw stream has no times but its rate.
		rate := m.Rate
		if !(rate > 0) {
			rate = 25
		}
		p.DTS = time.Duration(float64(m.read) / rate * float64(time.Second))
		p.PTS = p.DTS
	case m.packet.pts == C.AV_NOPTS_VALUE:
		p.PTS = p.DTS
	case m.packet.dts == C.AV_NOPTS_VALUE:
		p.DTS = p.PTS
	}
	m.read++
	return nil
}

func (m *Demuxer) duration(t C.int64_t) time.Duration {
	if t == C.AV_NOPTS_VALUE {
		return 0
	}
	return time.Duration(C.av_rescale(t, C.int64_t(m.d.time_base.num)*1_000_000_000, C.int64_t(m.d.time_base.den)))
}

// Rewind starts again at the beginning.
func (m *Demuxer) Rewind() error {
	m.read = 0
	if err := status(C.vd_demuxer_rewind(&m.d)); err != nil {
		return fmt.Errorf("rewind file: %w", err)
	}
	return nil
}

// Close closes the file.
func (m *Demuxer) Close() {
	C.av_packet_free(&m.packet)
	C.vd_demuxer_close(&m.d)
}
