// Package packetdump writes what a camera and the box said to each other as a capture file that network analysers read:
// the RTSP dialogue as TCP segments on port 554, RTP and RTCP as UDP datagrams, whatever they travelled by.
//
// The format is pcap (draft-ietf-opsawg-pcap) with raw IPv4 packets (link type 228). Addresses are those of documentation
// (RFC 5737): 192.0.2.1 is the camera, 192.0.2.2 the box.
package packetdump

import (
	"encoding/binary"
	"sync"
	"time"
)

// Kind of a packet.
type Kind int

// The kinds.
const (
	Request Kind = iota + 1 // RTSP, from the box
	Answer                  // RTSP, from the camera
	RTP
	RTCP
)

const (
	linkTypeIPv4 = 228
	// maxPacket is what an IPv4 packet holds.
	maxPacket = 65535
	ipHeader  = 20
	tcpHeader = 20
	udpHeader = 8
)

// Header begins every file.
func Header() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xA1B23C4D) // times in nanoseconds
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, maxPacket)
	return binary.LittleEndian.AppendUint32(b, linkTypeIPv4)
}

// writer makes records. The zero value is ready.
type writer struct {
	said [2]uint32 // TCP bytes, by the camera and by the box
}

var (
	camera = [4]byte{192, 0, 2, 1} //nolint:gochecknoglobals // constants of a kind Go has not
	box    = [4]byte{192, 0, 2, 2} //nolint:gochecknoglobals // likewise
)

// appendRecord adds one packet to b. What does not fit a packet is cut.
func (w *writer) appendRecord(b []byte, kind Kind, at time.Time, payload []byte) []byte {
	header, protocol := udpHeader, byte(17)
	if kind == Request || kind == Answer {
		header, protocol = tcpHeader, 6
	}
	payload = payload[:min(len(payload), maxPacket-ipHeader-header)]
	total := ipHeader + header + len(payload)
	b = binary.LittleEndian.AppendUint32(b, uint32(at.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(at.Nanosecond()))
	b = binary.LittleEndian.AppendUint32(b, uint32(total))
	b = binary.LittleEndian.AppendUint32(b, uint32(total))
	from, to, fromPort, toPort := camera, box, uint16(5004), uint16(5004)
	switch kind {
	case Request:
		from, to, fromPort, toPort = box, camera, 50000, 554
	case Answer:
		fromPort, toPort = 554, 50000
	case RTCP:
		fromPort, toPort = 5005, 5005
	case RTP:
	}
	ip := len(b)
	b = append(b, 0x45, 0, byte(total>>8), byte(total), 0, 0, 0x40, 0, 64, protocol, 0, 0)
	b = append(append(b, from[:]...), to[:]...)
	binary.BigEndian.PutUint16(b[ip+10:], checksum(b[ip:ip+ipHeader]))
	b = binary.BigEndian.AppendUint16(b, fromPort)
	b = binary.BigEndian.AppendUint16(b, toPort)
	if header == udpHeader {
		b = binary.BigEndian.AppendUint16(b, uint16(udpHeader+len(payload)))
		b = append(b, 0, 0) // no checksum (RFC 768)
		return append(b, payload...)
	}
	mine, other := &w.said[kind-Request], w.said[Answer-kind]
	b = binary.BigEndian.AppendUint32(b, 1+*mine)
	b = binary.BigEndian.AppendUint32(b, 1+other)
	b = append(b, 5<<4, 0x18, 0xFF, 0xFF, 0, 0, 0, 0)
	*mine += uint32(len(payload))
	return append(b, payload...)
}

// checksum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return ^uint16(sum)
}

// Tap is where packets pass. Nothing is done with them while nobody listens. The zero value is ready; safe for
// concurrent use.
type Tap struct {
	mu        sync.Mutex // guards everything below
	listeners map[*Listener]struct{}
}

// Active reports whether anybody listens.
func (t *Tap) Active() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.listeners) > 0
}

// Packet shows a packet to everybody who listens; it never waits. The payload is copied.
func (t *Tap) Packet(kind Kind, at time.Time, payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.listeners {
		l.packet(kind, at, payload)
	}
}

// maxWaiting bounds what waits for a listener, in bytes.
const maxWaiting = 4 << 20

// Listen begins a file of at most maxBytes.
func (t *Tap) Listen(maxBytes int64) *Listener {
	l := &Listener{tap: t, left: maxBytes, waiting: Header(), came: make(chan struct{}, 1)}
	l.left -= int64(len(l.waiting))
	l.came <- struct{}{}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listeners == nil {
		t.listeners = map[*Listener]struct{}{}
	}
	t.listeners[l] = struct{}{}
	return l
}

// Listener is one file under way.
type Listener struct {
	tap  *Tap
	came chan struct{} // one token: there is something

	mu      sync.Mutex // guards everything below
	writer  writer
	waiting []byte
	left    int64 // bytes until it is full
	full    bool
	dropped uint64
}

func (l *Listener) packet(kind Kind, at time.Time, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return
	}
	if len(l.waiting)+len(payload) > maxWaiting {
		l.dropped++
		return
	}
	before := len(l.waiting)
	l.waiting = l.writer.appendRecord(l.waiting, kind, at, payload)
	if l.left -= int64(len(l.waiting) - before); l.left < 0 {
		l.waiting, l.full = l.waiting[:before], true
	}
	select {
	case l.came <- struct{}{}:
	default:
	}
}

// Came tells when there is something to take.
func (l *Listener) Came() <-chan struct{} { return l.came }

// Take returns the next bytes of the file, and whether it is full.
func (l *Listener) Take() (b []byte, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, l.waiting = l.waiting, nil
	return b, l.full
}

// Close ends it and returns how many packets were left out because nobody took what waited.
func (l *Listener) Close() (dropped uint64) {
	l.tap.mu.Lock()
	delete(l.tap.listeners, l)
	l.tap.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}
