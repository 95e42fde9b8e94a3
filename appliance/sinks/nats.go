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
	box    string // id
	secret string
	tls    *tls.Config // nil: as the address says
	conn   *nats.Conn
	stream jetstream.JetStream
	gone   chan struct{}
}

const natsTimeout = 5 * time.Second

func newNATS(sink *vedettev1.Sink, secret string, box self) *natsStream {
	t := sink.GetNats()
	n := &natsStream{uid: sink.GetUid(), box: box.id, secret: secret, target: &vedettev1.NatsTarget{
		Uri: t.GetUri(), Username: t.GetUsername(), SubjectPrefix: or(t.GetSubjectPrefix(), "vedette.events"), Stream: t.GetStream(), Box: or(t.GetBox(), box.name),
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
	if n.stream, err = jetstream.New(conn); err == nil {
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

// deliver publishes without leaving a gap in the stream that is filled later.
func (n *natsStream) deliver(ctx context.Context, events []*vedettev1.Event) (int, error) {
	return byCamera(ctx, events, n.publish)
}

func (n *natsStream) publish(ctx context.Context, e *vedettev1.Event) error {
	body, err := encode(e)
	if err != nil {
		return &refusedError{err: err, event: true}
	}
	subject := strings.Join([]string{
		n.target.GetSubjectPrefix(), level(n.target.GetBox()), level(strings.TrimPrefix(e.GetCamera(), "cameras/")), level(e.GetType()),
	}, ".")
	// A second delivery within the stream's window is recognised by its id.
	_, err = n.stream.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: nats.Header{"Vedette-Box": {n.box}}, Data: body}, jetstream.WithMsgID(n.uid+"/"+e.GetName()))
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("publish to NATS: %w", err)
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum) {
		return &refusedError{err: wrapped, event: true}
	}
	return wrapped
}
