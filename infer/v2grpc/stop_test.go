package v2grpc_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A client that never looks at its connection does not keep the server: it closes it after one farewell, instead of waiting
// for an answer to that and then sending another.
func TestP2StopsWithoutIdleClients(t *testing.T) {
	s := serve(t, nil)
	conn, err := net.Dial("tcp", s.conn.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	farewells := 0
	for settled := false; ; {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch frame.(type) {
		case *http2.SettingsFrame:
			if !settled { // the server serves the connection
				settled = true
				s.cancel()
			}
		case *http2.GoAwayFrame:
			farewells++
		}
	}
	if farewells != 1 {
		t.Errorf("it said farewell %d times", farewells)
	}
}
