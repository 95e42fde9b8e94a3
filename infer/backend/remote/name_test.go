package remote_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// nameServer answers every question for an IPv4 address with these, and has the process ask nobody else.
func nameServer(t *testing.T, addresses ...string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			for _, a := range addresses {
				if q.Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(a).To4())},
					})
				}
			}
			if b, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(b, from)
			}
		}
	}()
	goes, dials := net.DefaultResolver.PreferGo, net.DefaultResolver.Dial
	net.DefaultResolver.PreferGo = true
	net.DefaultResolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}
	t.Cleanup(func() {
		net.DefaultResolver.PreferGo, net.DefaultResolver.Dial = goes, dials
		_ = conn.Close()
		<-ended
	})
}

// executed asks a server how often it ran echo.
func executed(t *testing.T, address string) uint64 {
	t.Helper()
	c, err := v2client.New(strings.TrimPrefix(address, "grpc://"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r, err := c.ModelStatistics(t.Context(), &inference.ModelStatisticsRequest{Name: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetModelStats()[0].GetExecutionCount()
}

func TestX7AllAddressesOfANameShareTheLoad(t *testing.T) {
	a := startAt(t, "127.0.0.2:0", "127.0.0.2:0")
	_, grpcPort, _ := net.SplitHostPort(strings.TrimPrefix(a.grpc, "grpc://"))
	_, httpPort, _ := net.SplitHostPort(strings.TrimPrefix(a.http, "http://"))
	b := startAt(t, "127.0.0.3:"+grpcPort, "127.0.0.3:"+httpPort)
	nameServer(t, "127.0.0.2", "127.0.0.3")
	over := load(t, model(t, "", "url", "grpc://many.example:"+grpcPort, "remote_model", "echo"))
	web := load(t, model(t, "", "url", "http://many.example:"+httpPort, "remote_model", "echo"))
	ask := func(in backend.Instance) {
		t.Helper()
		r, err := run(t, in, backend.Job{Inputs: []tensor.Tensor{numbers("INPUT0", 1)}})
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	// Both are asked as soon as both are connected to.
	for n := 0; executed(t, a.grpc) == 0 || executed(t, b.grpc) == 0; n++ {
		if n == 10_000 {
			t.Fatal("one address of two gets all requests")
		}
		ask(over)
	}
	ask(web)
	// One that goes is stood in for, over either protocol.
	a.stop()
	for range 20 {
		ask(over)
		ask(web)
	}
}
