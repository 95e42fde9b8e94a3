package sinks_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// TestBoxStopsWhileKafkaIsAway has the cluster hang up on every record: whether it has them, nobody knows.
func TestBoxStopsWhileKafkaIsAway(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	asked := make(chan struct{}, 1)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case asked <- struct{}{}:
		default:
		}
		return nil, errors.New("hang up"), true
	})
	b := open(t, t.TempDir())
	b.create("bus", &vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: cluster.ListenAddrs(), Topic: "events"}}})
	b.happen(10)
	<-asked
	b.stop()
}

func TestKafkaKeepsTheOrderOfEachCamera(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	// Now and then the leader has moved.
	n := 0
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if n++; n%100 == 50 {
			return nil, errors.New("hang up"), true
		}
		return nil, nil, false
	})
	b := open(t, t.TempDir())
	b.create("bus", &vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: cluster.ListenAddrs(), Topic: "events"}}})
	for range 20 {
		b.happen(25)
	}
	b.state("bus", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 500 })
	b.stop()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	last, partition := map[string]string{}, map[string]int32{}
	got := 0
	for got < 500 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil && !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			in := newInbox(t)
			in.take(r.Value)
			e := <-in.got
			camera, number := string(r.Key), e.GetAttributes()["n"]
			if p, ok := partition[camera]; ok && p != r.Partition {
				t.Errorf("%s is in partitions %d and %d", camera, p, r.Partition)
			}
			partition[camera] = r.Partition
			if old := last[camera]; len(number) < len(old) || (len(number) == len(old) && number <= old) {
				t.Errorf("%s: %s came after %s", camera, number, old)
			}
			last[camera] = number
		})
	}
	if last["cameras/door"] != "500" || last["cameras/yard"] != "499" {
		t.Errorf("the last ones are %v", last)
	}
}
