package rtsp

import (
	"bytes"
	"encoding/binary"
	"image"
	"slices"
)

// jpegs makes of a camera's JPEG packets (RFC 2435) those that the library reads, which knows neither restart intervals (types
// 64 to 127) nor tables that are sent once for all pictures (quantisation 128 to 254), nor pictures larger than packets can say,
// 2040 pixels, which have the side 0 there.
type jpegs struct {
	size     image.Point // of pictures that do not say it, by the SDP or by packets' extensions; 0: not known
	interval uint16      // of restarts, of the picture under way; 0: none
	tables   [127][]byte // by quantisation, from 128 on, with their header
}

const (
	jpegHeader    = 8
	restartHeader = 4
	tableHeader   = 4
	maxTables     = 128 // bytes: one for luma, one for chroma
)

// packet returns the packet, or one in its place.
func (j *jpegs) packet(p *packet) *packet {
	b := p.Payload
	if len(b) < jpegHeader {
		return p
	}
	first := b[1]|b[2]|b[3] == 0 // of its picture
	if first {
		j.interval = 0
		if p.Extension {
			j.extension(p)
		}
	}
	restarts, sent := b[4] >= 64 && b[4] < 128, b[5] >= 128 && b[5] < 255
	if !restarts && !sent {
		return p
	}
	b = slices.Clone(b)
	if restarts {
		if len(b) < jpegHeader+restartHeader {
			return p
		}
		j.interval = binary.BigEndian.Uint16(b[jpegHeader:])
		b[4] -= 64
		b = slices.Delete(b, jpegHeader, jpegHeader+restartHeader)
	}
	if first && sent && len(b) >= jpegHeader+tableHeader {
		kept := &j.tables[b[5]-128]
		length := int(binary.BigEndian.Uint16(b[jpegHeader+2:]))
		end := jpegHeader + tableHeader + length
		switch {
		case length == 0 && *kept != nil:
			b = slices.Replace(b, jpegHeader, end, *kept...)
		case length > 0 && length <= maxTables && end <= len(b):
			*kept = slices.Clone(b[jpegHeader:end])
		}
	}
	mended := *p
	mended.Payload = b
	return &mended
}

// extension reads the size from a header extension, in which cameras may send the JPEG's own headers (ONVIF Streaming
// Specification, section 5.1.3, "RTP JPEG extension").
func (j *jpegs) extension(p *packet) {
	if p.ExtensionProfile != 0xFFD8 && p.ExtensionProfile != 0xFFFF {
		return
	}
	if at, ok := frameHeader(p.GetExtension(0)); ok {
		j.size = at.size()
	}
}

// picture puts what the library does not know into a picture: its size and the restart interval (section B.2.4.4 of JPEG).
func (j *jpegs) picture(b []byte) []byte {
	if at, ok := frameHeader(b); ok && j.size != (image.Point{}) {
		if is := at.size(); is.X == 0 || is.Y == 0 {
			binary.BigEndian.PutUint16(at[5:], uint16(j.size.Y))
			binary.BigEndian.PutUint16(at[7:], uint16(j.size.X))
		}
	}
	if j.interval == 0 || len(b) < 2 {
		return b
	}
	return slices.Insert(b, 2, 0xFF, 0xDD, 0, 4, byte(j.interval>>8), byte(j.interval))
}

// frame is the header of a JPEG's frame (section B.2.2), from its marker on, as far as the sides.
type frame []byte

func (f frame) size() image.Point {
	return image.Pt(int(binary.BigEndian.Uint16(f[7:])), int(binary.BigEndian.Uint16(f[5:])))
}

// frameHeader finds the frame's header among a JPEG's segments.
func frameHeader(b []byte) (frame, bool) {
	b = bytes.TrimPrefix(b, []byte{0xFF, 0xD8})
	for len(b) >= 9 && b[0] == 0xFF {
		if b[1] == 0xC0 || b[1] == 0xC1 {
			return frame(b), true
		}
		n := 2 + int(binary.BigEndian.Uint16(b[2:]))
		if n > len(b) {
			break
		}
		b = b[n:]
	}
	return nil, false
}
