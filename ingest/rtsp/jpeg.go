package rtsp

import (
	"encoding/binary"
	"slices"
)

// jpegs makes of a camera's JPEG packets (RFC 2435) those that the library reads, which knows neither restart intervals (types
// 64 to 127) nor tables that are sent once for all pictures (quantisation 128 to 254).
type jpegs struct {
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

// picture puts the restart interval (section B.2.4.4 of JPEG) into a picture that has one.
func (j *jpegs) picture(b []byte) []byte {
	if j.interval == 0 || len(b) < 2 {
		return b
	}
	return slices.Insert(b, 2, 0xFF, 0xDD, 0, 4, byte(j.interval>>8), byte(j.interval))
}
