package sinks

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// kafka produces events to a topic; those of one camera go to one partition, in order.
type kafka struct {
	target   *vedettev1.KafkaTarget
	password string
	tls      *tls.Config
	client   *kgo.Client
}

const kafkaTimeout = 20 * time.Second

func newKafka(sink *vedettev1.Sink, password string) *kafka {
	return &kafka{target: sink.GetKafka(), password: password, tls: trust(sink.GetCaPem())}
}

func (k *kafka) connect(ctx context.Context) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(k.target.GetBrokers()...), kgo.DefaultProduceTopic(k.target.GetTopic()), kgo.ClientID("vedette"),
		kgo.RecordDeliveryTimeout(kafkaTimeout), kgo.DialTimeout(natsTimeout), kgo.AllowAutoTopicCreation(),
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

func (k *kafka) deliver(ctx context.Context, events []*vedettev1.Event) (int, error) {
	records := make([]*kgo.Record, len(events))
	for i, e := range events {
		body, err := encode(e)
		if err != nil {
			return 0, err
		}
		records[i] = &kgo.Record{
			Key: []byte(e.GetCamera()), Value: body, Timestamp: e.GetTime().AsTime(),
			Headers: []kgo.RecordHeader{{Key: "type", Value: []byte(e.GetType())}, {Key: "name", Value: []byte(e.GetName())}},
		}
	}
	faults := map[*kgo.Record]error{}
	for _, r := range k.client.ProduceSync(ctx, records...) {
		if r.Err != nil {
			faults[r.Record] = r.Err
		}
	}
	for i, r := range records {
		if err := faults[r]; err != nil {
			return i, fmt.Errorf("produce to Kafka: %w", err)
		}
	}
	return len(records), nil
}
