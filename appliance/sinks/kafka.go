package sinks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// kafka produces events to a topic; those of one camera go to one partition, in order.
type kafka struct {
	target   *vedettev1.KafkaTarget
	box      self
	password string
	tls      *tls.Config
	client   *kgo.Client
}

const kafkaTimeout = 20 * time.Second

func newKafka(sink *vedettev1.Sink, password string, box self) *kafka {
	return &kafka{target: sink.GetKafka(), box: box, password: password, tls: trust(sink.GetCaPem())}
}

func (k *kafka) connect(ctx context.Context) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(k.target.GetBrokers()...), kgo.DefaultProduceTopic(k.target.GetTopic()), kgo.ClientID("vedette"),
		kgo.RecordDeliveryTimeout(kafkaTimeout), kgo.ProducerLinger(0),
		kgo.AllowIdempotentProduceCancellation(), // a record that is given up is sent again later; the box must not wait for a cluster that is gone
		kgo.DialTimeout(natsTimeout), kgo.AllowAutoTopicCreation(),
	}
	if k.target.GetTls() {
		options = append(options, kgo.DialTLSConfig(k.tls))
	}
	if u := k.target.GetUsername(); u != "" {
		options = append(options, kgo.SASL(scram.Auth{User: u, Pass: k.password}.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return fmt.Errorf("prepare the Kafka client: %w", err)
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	k.client = client
	return nil
}

// lost is nil: the client finds brokers again by itself, and an error of deliver says when it does not.
func (k *kafka) lost() <-chan struct{} { return nil }

func (k *kafka) close() {
	if k.client != nil {
		k.client.Close()
		k.client = nil
	}
}

// deliver produces one record of each camera at a time: of records on their way together, one may be refused and those
// behind it taken.
func (k *kafka) deliver(ctx context.Context, events []*vedettev1.Event) (int, error) {
	return byCamera(ctx, events, k.produce)
}

func (k *kafka) produce(ctx context.Context, e *vedettev1.Event) error {
	body, err := encode(e)
	if err != nil {
		return &refusedError{err: err, event: true}
	}
	err = k.client.ProduceSync(ctx, &kgo.Record{
		Key: []byte(e.GetCamera()), Value: body, Timestamp: e.GetTime().AsTime(),
		Headers: []kgo.RecordHeader{{Key: "type", Value: []byte(e.GetType())}, {Key: "name", Value: []byte(e.GetName())}, {Key: "box", Value: []byte(k.box.id)}, {Key: "box-name", Value: []byte(k.box.name)}},
	}).FirstErr()
	if err == nil {
		return nil
	}
	wrapped := fmt.Errorf("produce to Kafka: %w", err)
	for _, fault := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp} {
		if errors.Is(err, fault) {
			return &refusedError{err: wrapped, event: true}
		}
	}
	return wrapped
}
