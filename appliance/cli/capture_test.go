package cli

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// packetOf makes a record of a capture file.
func packetOf(protocol byte, port uint16, payload string) []byte {
	ip := make([]byte, ipHeader+4, ipHeader+4+len(payload))
	ip[9] = protocol
	binary.BigEndian.PutUint16(ip[ipHeader+2:], port)
	ip = append(ip, payload...)
	b := make([]byte, recordHeader)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(ip)))
	return append(b, ip...)
}

func captureFile() []byte {
	b := make([]byte, captureHeader)
	for _, p := range [][]byte{
		packetOf(protocolTCP, 554, "DESCRIBE"), packetOf(protocolTCP, 50000, "RTSP/1.0 200 OK"), packetOf(17, 5004, "picture"), packetOf(17, 5004, ""), packetOf(17, 5004, "picture"),
		packetOf(17, portRTCP, "report"),
	} {
		b = append(b, p...)
	}
	return b
}

func TestACaptureOfNothingButItsHeaderIsEmpty(t *testing.T) {
	var to bytes.Buffer
	c := capture{to: &to}
	if _, err := c.Write(make([]byte, captureHeader)); err != nil || !c.empty() || to.Len() != captureHeader {
		t.Errorf("%v, %v after %d bytes", err, &c, to.Len())
	}
}

func FuzzPacketsAreCountedHoweverTheFileIsCut(f *testing.F) {
	for cut := range len(captureFile()) {
		f.Add(uint(cut), uint(cut/2))
	}
	f.Fuzz(func(t *testing.T, a, b uint) {
		file := captureFile()
		a %= uint(len(file) + 1)
		b %= a + 1
		var to bytes.Buffer
		c := capture{to: &to}
		for _, part := range [][]byte{file[:b], file[b:a], file[a:]} {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if c.messages != 2 || c.rtp != 3 || c.rtcp != 1 || c.written != len(file) || !bytes.Equal(to.Bytes(), file) {
			t.Errorf("cut at %d and %d: %v, %d of %d bytes", b, a, &c, c.written, len(file))
		}
	})
}
