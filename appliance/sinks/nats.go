package sinks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// natsStream publishes events to a stream of NATS JetStream, which many boxes may feed.
type natsStream struct {
	target *vedettev1.NatsTarget
	uid    string
	secret string
	tls    *tls.Config // nil: as the address says
	conn   *nats.Conn
	stream jetstream.JetStream
	gone   chan struct{}
}

const natsTimeout = 5 * time.Second

func newNATS(sink *vedettev1.Sink, secret, box string) *natsStream {
	t := sink.GetNats()
	n := &natsStream{uid: sink.GetUid(), secret: secret, target: &vedettev1.NatsTarget{
		Uri: t.GetUri(), Username: t.GetUsername(), SubjectPrefix: or(t.GetSubjectPrefix(), "vedette.events"), Stream: t.GetStream(), Box: or(t.GetBox(), box),
	}}
	if sink.GetCaPem() != "" {
		n.tls = trust(sink.GetCaPem())
	}
	return n
}

func (n *natsStream) connect(ctx context.Context) error {
	gone := make(chan struct{})
	options := []nats.Option{
		nats.Name("vedette " + n.target.GetBox()), nats.Timeout(natsTimeout), nats.NoReconnect(), // the delivery does that
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
	}
	if n.tls != nil {
		options = append(options, nats.Secure(n.tls))
	}
	switch {
	case n.target.GetUsername() != "":
		options = append(options, nats.UserInfo(n.target.GetUsername(), n.secret))
	case n.secret != "":
		options = append(options, nats.Token(n.secret))
	}
	conn, err := nats.Connect(n.target.GetUri(), options...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	n.conn, n.gone = conn, gone
	if n.stream, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(batch)); err == nil {
		err = n.ensureStream(ctx)
	}
	if err != nil {
		n.close()
		return fmt.Errorf("prepare the NATS stream: %w", err)
	}
	return nil
}

func (n *natsStream) ensureStream(ctx context.Context) error {
	if n.target.GetStream() == "" {
		return nil
	}
	_, err := n.stream.Stream(ctx, n.target.GetStream())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err = n.stream.CreateStream(ctx, jetstream.StreamConfig{Name: n.target.GetStream(), Subjects: []string{n.target.GetSubjectPrefix() + ".>"}})
	return err
}

func (n *natsStream) lost() <-chan struct{} { return n.gone }

func (n *natsStream) close() {
	if n.conn == nil {
		return
	}
	n.conn.Close()
	<-n.gone
	n.conn, n.stream, n.gone = nil, nil, nil
}

// deliver has the whole batch in flight at once; the server keeps the order of one connection.
func (n *natsStream) deliver(ctx context.Context, events []*vedettev1.Event) (int, error) {
	var acks []jetstream.PubAckFuture
	var fault error
	for _, e := range events {
		body, err := encode(e)
		if err == nil {
			subject := strings.Join([]string{
				n.target.GetSubjectPrefix(), level(n.target.GetBox()), level(strings.TrimPrefix(e.GetCamera(), "cameras/")), level(e.GetType()),
			}, ".")
			var ack jetstream.PubAckFuture
			// A second delivery within the stream's window is recognised by its id.
			ack, err = n.stream.PublishMsgAsync(&nats.Msg{Subject: subject, Data: body}, jetstream.WithMsgID(n.uid+"/"+e.GetName()))
			acks = append(acks, ack)
		}
		if err != nil {
			fault = fmt.Errorf("publish to NATS: %w", err)
			break
		}
	}
	for i, ack := range acks {
		if ack == nil {
			return i, fault
		}
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return i, fmt.Errorf("publish to NATS: %w", err)
		case <-n.gone:
			return i, errLost
		case <-ctx.Done():
			return i, fmt.Errorf("publish to NATS: %w", ctx.Err())
		}
	}
	return len(acks), fault
}
