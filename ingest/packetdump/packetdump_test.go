package packetdump_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest/packetdump"
)

// record is one packet read back.
type record struct {
	protocol byte
	fromPort uint16
	sequence uint32 // TCP
	payload  []byte
}

// read is an independent reader of the format.
func read(tb testing.TB, b []byte) []record {
	tb.Helper()
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xA1B23C4D || binary.LittleEndian.Uint32(b[20:]) != 228 {
		tb.Fatalf("no header: %x", b[:min(len(b), 24)])
	}
	var all []record
	for b = b[24:]; len(b) > 0; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		p := b[16 : 16+n]
		b = b[16+n:]
		if p[0] != 0x45 || int(binary.BigEndian.Uint16(p[2:])) != n {
			tb.Fatalf("IP header %x of %d bytes", p[:20], n)
		}
		var sum uint32
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(p[i:]))
		}
		if sum>>16+sum&0xFFFF != 0xFFFF {
			tb.Fatalf("IP checksum of %x", p[:20])
		}
		r := record{protocol: p[9], fromPort: binary.BigEndian.Uint16(p[20:])}
		if r.protocol == 6 {
			r.sequence, r.payload = binary.BigEndian.Uint32(p[24:]), p[40:]
		} else {
			r.payload = p[28:]
		}
		all = append(all, r)
	}
	return all
}

func TestADumpIsReadBack(t *testing.T) {
	var tap packetdump.Tap
	if tap.Active() {
		t.Error("active without a listener")
	}
	tap.Packet(packetdump.RTP, time.Now(), []byte("unheard"))
	l := tap.Listen(1 << 20)
	at := time.Unix(1700000000, 5)
	for _, p := range []struct {
		kind packetdump.Kind
		text string
	}{{packetdump.Request, "OPTIONS"}, {packetdump.Answer, "RTSP/1.0 200"}, {packetdump.Request, "DESCRIBE"}, {packetdump.RTP, "rtp"}, {packetdump.RTCP, "rtcp"}} {
		tap.Packet(p.kind, at, []byte(p.text))
	}
	<-l.Came()
	b, full := l.Take()
	got := read(t, b)
	if len(got) != 5 || full {
		t.Fatalf("%d packets, full %v", len(got), full)
	}
	for i, want := range []record{
		{6, 50000, 1, []byte("OPTIONS")},
		{6, 554, 1, []byte("RTSP/1.0 200")},
		{6, 50000, 8, []byte("DESCRIBE")},
		{17, 5004, 0, []byte("rtp")},
		{17, 5005, 0, []byte("rtcp")},
	} {
		if g := got[i]; g.protocol != want.protocol || g.fromPort != want.fromPort || g.sequence != want.sequence || !bytes.Equal(g.payload, want.payload) {
			t.Errorf("packet %d: %+v, want %+v", i, g, want)
		}
	}
	if dropped := l.Close(); dropped != 0 || tap.Active() {
		t.Errorf("%d dropped, active %v", dropped, tap.Active())
	}
}

func TestADumpIsBoundedAndASlowListenerCounted(t *testing.T) {
	var tap packetdump.Tap
	small, slow := tap.Listen(1000), tap.Listen(1<<40)
	payload := make([]byte, 200)
	for range 40000 {
		tap.Packet(packetdump.RTP, time.Now(), payload)
	}
	b, full := small.Take()
	if !full || len(b) > 1000 || len(read(t, b)) != 4 {
		t.Errorf("%d bytes of at most 1000, full %v", len(b), full)
	}
	if b, _ := slow.Take(); len(b) > 5<<20 {
		t.Errorf("%d bytes wait", len(b))
	}
	if slow.Close() == 0 {
		t.Error("nothing was counted as dropped")
	}
}

func FuzzADumpCanBeRead(f *testing.F) {
	f.Add(uint8(0), []byte("x"), uint8(2), []byte{})
	f.Fuzz(func(t *testing.T, k1 uint8, p1 []byte, k2 uint8, p2 []byte) {
		var tap packetdump.Tap
		l := tap.Listen(1 << 30)
		tap.Packet(packetdump.Kind(k1%4+1), time.Unix(int64(len(p1)), 0), p1)
		tap.Packet(packetdump.Kind(k2%4+1), time.Now(), p2)
		b, _ := l.Take()
		got := read(t, b)
		if len(got) != 2 || !bytes.Equal(got[0].payload, p1[:min(len(p1), len(got[0].payload))]) || !bytes.HasPrefix(p2, got[1].payload) {
			t.Errorf("%d packets", len(got))
		}
	})
}
