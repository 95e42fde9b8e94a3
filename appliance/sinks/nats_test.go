package sinks_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// serveNATS runs a server with JetStream that wants the canary as token.
func serveNATS(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, Authorization: canary})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// TestManyBoxesFeedOneStream has two boxes publish, with a restart of the server between.
func TestManyBoxesFeedOneStream(t *testing.T) {
	dir := t.TempDir()
	s := serveNATS(t, dir, -1)
	uri := s.ClientURL()
	boxes := []*box{open(t, t.TempDir()), open(t, t.TempDir())}
	for i, b := range boxes {
		b.create("hub", &vedettev1.Sink{Secret: canary, Target: &vedettev1.Sink_Nats{Nats: &vedettev1.NatsTarget{
			Uri: uri, Stream: "VEDETTE", Box: []string{"north", "south"}[i],
		}}})
		b.happen(500)
		b.state("hub", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 500 })
	}
	address, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the server listens on %v", s.Addr())
	}
	s.Shutdown()
	s.WaitForShutdown()
	for _, b := range boxes {
		b.happen(500)
		b.state("hub", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 0 })
	}
	s = serveNATS(t, dir, address.Port)
	for _, b := range boxes {
		b.state("hub", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 1000 })
		b.stop()
	}
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	conn, err := nats.Connect(uri, nats.Token(canary))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"north", "south"} {
		c, err := js.OrderedConsumer(t.Context(), "VEDETTE", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"vedette.events." + name + ".>"}})
		if err != nil {
			t.Fatal(err)
		}
		in, last := newInbox(t), map[string]int{"cameras/door": 0, "cameras/yard": -1}
		for n := 0; n < 1000; {
			list, err := c.Fetch(1000-n, jetstream.FetchMaxWait(20*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for m := range list.Messages() {
				if !strings.HasSuffix(m.Subject(), ".zone_entered") {
					t.Errorf("subject %s", m.Subject())
				}
				in.take(m.Data())
				e := <-in.got
				number, err := strconv.Atoi(e.GetAttributes()["n"])
				if was := last[e.GetCamera()]; err != nil || number != was+2 {
					t.Errorf("%s: %q comes after %d of %s", name, e.GetAttributes()["n"], was, e.GetCamera())
				}
				last[e.GetCamera()] = number
				n++
			}
			if list.Error() != nil {
				t.Fatal(list.Error())
			}
		}
	}
}
