package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// broker is a real mosquitto, which forgets everything when it stops.
type broker struct {
	t       *testing.T
	address string
	config  string
	process *exec.Cmd
}

func startBroker(t *testing.T, more string) *broker {
	t.Helper()
	if _, err := findMosquitto(); err != nil {
		t.Skipf("mosquitto is not installed: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, address: ln.Addr().String(), config: filepath.Join(t.TempDir(), "mosquitto.conf")}
	_, port, _ := net.SplitHostPort(b.address)
	_ = ln.Close()
	if err := os.WriteFile(b.config, fmt.Appendf(nil, "listener %s 127.0.0.1\nallow_anonymous true\npersistence false\nlog_dest none\n%s", port, more), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func findMosquitto() (string, error) {
	if path, err := exec.LookPath("mosquitto"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/mosquitto")
}

func (b *broker) start() {
	b.t.Helper()
	path, err := findMosquitto()
	if err != nil {
		b.t.Fatal(err)
	}
	b.process = exec.Command(path, "-c", b.config)
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", b.address); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatal("mosquitto does not listen")
		}
	}
}

func (b *broker) stop() {
	if b.process == nil {
		return
	}
	_ = b.process.Process.Kill()
	_ = b.process.Wait()
	b.process = nil
}

// message is what a subscriber got.
type message struct {
	topic, payload string
	retained       bool
}

// subscribe hears everything below vedette/ and homeassistant/.
func (b *broker) subscribe() <-chan message {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	got := make(chan message, 10_000)
	client := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(p paho.PublishReceived) (bool, error) {
			got <- message{p.Packet.Topic, string(p.Packet.Payload), p.Packet.Retain}
			return true, nil
		},
	}})
	if _, err := client.Connect(b.t.Context(), &paho.Connect{ClientID: "subscriber", CleanStart: true, KeepAlive: 30}); err != nil {
		b.t.Fatal(err)
	}
	_, err = client.Subscribe(b.t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{
		{Topic: "vedette/#", QoS: 1, RetainAsPublished: true}, {Topic: "homeassistant/#", QoS: 1, RetainAsPublished: true},
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = client.Disconnect(&paho.Disconnect{})
		<-client.Done()
	})
	return got
}

func await(t *testing.T, got <-chan message, ok func(message) bool) message {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case m := <-got:
			if ok(m) {
				return m
			}
		case <-deadline:
			t.Fatal("the message does not come")
		}
	}
}

func is(topic, payload string) func(message) bool {
	return func(m message) bool { return m.topic == topic && m.payload == payload }
}

func TestMQTTDeliversOverABrokerThatForgets(t *testing.T) {
	broker := startBroker(t, "")
	b, in := open(t, t.TempDir()), newInbox(t)
	got := broker.subscribe()
	b.create("broker", &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://" + broker.address, HomeAssistant: true}}})
	if m := await(t, got, is("vedette/status", "online")); !m.retained {
		t.Error("the status is not retained")
	}
	b.happen(300)
	configs := map[string]bool{}
	for n := 0; n < 300; {
		m := await(t, got, func(message) bool { return true })
		switch {
		case strings.HasPrefix(m.topic, "homeassistant/"):
			configs[strings.Split(m.topic, "/")[1]] = m.retained && strings.Contains(m.payload, `"availability_topic":"vedette/status"`)
		case strings.HasSuffix(m.topic, "/events/zone_entered"):
			in.take([]byte(m.payload))
			n++
		case strings.HasSuffix(m.topic, "/zones/porch/occupancy") && !m.retained:
			t.Error("the occupancy is not retained")
		}
	}
	in.all(300)
	if !configs["event"] || !configs["binary_sensor"] || !configs["sensor"] {
		t.Errorf("Home Assistant was told of %v", configs)
	}
	broker.stop()
	b.happen(300) // the broker is away
	b.state("broker", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 0 })
	broker.start()
	// What was published before the subscriber is back is gone, but for what is retained; so look at the status.
	b.state("broker", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() >= 600 })
	if m := await(t, broker.subscribe(), is("vedette/status", "online")); !m.retained {
		t.Error("the status is not retained after the restart")
	}
}

func TestMQTTSaysWhenTheBoxIsGone(t *testing.T) {
	broker := startBroker(t, "")
	sink := func(address string) *vedettev1.Sink {
		return &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://" + address}}}
	}
	got := broker.subscribe()

	b := open(t, t.TempDir())
	b.create("broker", sink(broker.address))
	await(t, got, is("vedette/status", "online"))
	b.stop() // in good order
	await(t, got, is("vedette/status", "offline"))

	// The line is cut: the broker speaks for the box.
	ctx, cut := context.WithCancel(t.Context())
	address := forward(ctx, t, broker.address)
	b = open(t, t.TempDir())
	b.create("broker", sink(address))
	await(t, got, is("vedette/status", "online"))
	cut()
	await(t, got, is("vedette/status", "offline"))
	b.state("broker", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 0 })
}

// forward passes one connection on to an address until ctx ends.
func forward(ctx context.Context, t *testing.T, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		_ = ln.Close()
		out, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		stop := context.AfterFunc(ctx, func() {
			_ = in.Close()
			_ = out.Close()
		})
		defer stop()
		back := make(chan struct{})
		go func() {
			defer close(back)
			pump(in, out)
		}()
		pump(out, in)
		<-back
	}()
	t.Cleanup(func() { <-done })
	return ln.Addr().String()
}

func pump(to, from net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}
