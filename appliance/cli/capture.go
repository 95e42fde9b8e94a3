package cli

import (
	"encoding/binary"
	"fmt"
	"io"
)

// capture passes a capture file (pcap, draft-ietf-opsawg-pcap, in this box's byte order, of raw IPv4 packets) on to to and
// counts what is in it: the dialogue travels as TCP, RTP to port 5004 and RTCP to port 5005 as UDP.
type capture struct {
	to      io.Writer
	written int

	rest                []byte // not a whole record yet
	begun               bool   // the file's header has passed
	messages, rtp, rtcp int
}

// What stands where in a capture file.
const (
	captureHeader = 24
	recordHeader  = 16
	ipHeader      = 20
	protocolTCP   = 6
	portRTCP      = 5005
)

// Write implements io.Writer.
func (c *capture) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	if !c.begun && len(c.rest) >= captureHeader {
		c.begun, c.rest = true, c.rest[captureHeader:]
	}
	for c.begun && len(c.rest) >= recordHeader {
		end := recordHeader + int(binary.LittleEndian.Uint32(c.rest[8:]))
		if len(c.rest) < end {
			break
		}
		c.count(c.rest[recordHeader:end])
		c.rest = c.rest[end:]
	}
	n, err := c.to.Write(b)
	c.written += n
	return n, err
}

func (c *capture) count(packet []byte) {
	switch {
	case len(packet) < ipHeader+4:
	case packet[9] == protocolTCP:
		c.messages++
	case binary.BigEndian.Uint16(packet[ipHeader+2:]) == portRTCP:
		c.rtcp++
	default:
		c.rtp++
	}
}

// empty reports whether nothing was captured.
func (c *capture) empty() bool { return c.messages+c.rtp+c.rtcp == 0 }

func (c *capture) String() string {
	return fmt.Sprintf("%d RTSP messages, %d RTP and %d RTCP packets", c.messages, c.rtp, c.rtcp)
}
