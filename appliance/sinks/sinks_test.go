package sinks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/secret"
	"github.com/vedette/vedette/appliance/sinks"
	"github.com/vedette/vedette/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "c4nary-s3cret"

// box is a store with sinks over it.
type box struct {
	t     *testing.T
	dir   string
	store *store.Store
	sinks *sinks.Sinks
	n     int    // events written
	stop  func() // ends everything
}

func open(t *testing.T, dir string) *box {
	t.Helper()
	b := &box{t: t, dir: dir, store: store.New(store.Config{Dir: dir, Window: time.Millisecond})}
	ctx, cancel := context.WithCancel(context.Background())
	sinksCtx, stopSinks := context.WithCancel(ctx)
	var storing, sending sync.WaitGroup
	storing.Go(func() {
		if err := b.store.Run(ctx); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	<-b.store.Ready()
	b.stop = sync.OnceFunc(func() {
		stopSinks()
		sending.Wait()
		cancel()
		storing.Wait()
	})
	t.Cleanup(b.stop)
	key, err := secret.Open(filepath.Join(dir, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	b.sinks = sinks.New(sinks.Config{Store: b.store, Secrets: key, Box: "box-1", MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	if err := b.sinks.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	sending.Go(func() {
		if err := b.sinks.Run(sinksCtx); err != nil {
			t.Errorf("sinks: %v", err)
		}
	})
	return b
}

// happen stores n more events of two cameras; each carries its number.
func (b *box) happen(n int) {
	b.t.Helper()
	var batch store.Batch
	for range n {
		b.n++
		batch.Events = append(batch.Events, store.Event{
			Camera: []string{"door", "yard"}[b.n%2], Type: "zone_entered", Time: time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC).Add(time.Duration(b.n) * time.Millisecond),
			Track:   store.TrackID{Sequence: 1, Local: int64(b.n)},
			Payload: fmt.Appendf(nil, `{"n":"%d","zone":"cameras/door/zones/porch","inside":"%d"}`, b.n, b.n%3),
		})
	}
	done, err := b.store.Append(b.t.Context(), batch)
	if err == nil {
		err = <-done
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// last is the number of the newest event.
func (b *box) last() int64 {
	b.t.Helper()
	list, err := b.store.EventsAfter(b.t.Context(), 0, 1000)
	if err != nil || len(list) == 0 {
		b.t.Fatalf("%d events, %v", len(list), err)
	}
	return list[len(list)-1].Seq
}

func (b *box) create(id string, sink *vedettev1.Sink) *vedettev1.Sink {
	b.t.Helper()
	s, err := b.sinks.CreateSink(b.t.Context(), &vedettev1.CreateSinkRequest{SinkId: id, Sink: sink})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// inbox is what a receiver got.
type inbox struct {
	t    *testing.T
	got  chan *vedettev1.Event
	next int
}

func newInbox(t *testing.T) *inbox {
	return &inbox{t: t, got: make(chan *vedettev1.Event, 100_000), next: 1}
}

// take notes one event as JSON.
func (i *inbox) take(body []byte) {
	var e struct {
		Name, Camera, Type string
		Attributes         map[string]string
	}
	if err := json.Unmarshal(body, &e); err != nil {
		i.t.Errorf("body %q: %v", body, err)
	}
	i.got <- &vedettev1.Event{Name: e.Name, Camera: e.Camera, Type: e.Type, Attributes: e.Attributes}
}

// all waits for every event up to number n: each must come at least once, and none before the one ahead of it.
func (i *inbox) all(n int) (again int) {
	i.t.Helper()
	deadline := time.After(30 * time.Second)
	for i.next <= n {
		select {
		case e := <-i.got:
			got, err := strconv.Atoi(e.GetAttributes()["n"])
			switch {
			case err != nil || got > i.next:
				i.t.Fatalf("got %q when %d was due", e.GetAttributes()["n"], i.next)
			case got < i.next:
				again++
			default:
				i.next++
			}
		case <-deadline:
			i.t.Fatalf("event %d did not come", i.next)
		}
	}
	return again
}

// state waits until a sink's status is as wanted.
func (b *box) state(id string, ok func(*vedettev1.DeliveryStatus) bool) *vedettev1.DeliveryStatus {
	b.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := b.sinks.GetSink(b.t.Context(), &vedettev1.GetSinkRequest{Name: "sinks/" + id})
		if err != nil {
			b.t.Fatal(err)
		}
		if ok(s.GetStatus()) {
			return s.GetStatus()
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("the status stays %v", s.GetStatus())
		}
	}
}

func idle(s *vedettev1.DeliveryStatus) bool {
	return s.GetState() == vedettev1.DeliveryState_DELIVERY_STATE_IDLE
}

func hook(uri string) *vedettev1.Sink {
	return &vedettev1.Sink{Secret: canary, Target: &vedettev1.Sink_Webhook{Webhook: &vedettev1.WebhookTarget{Uri: uri}}}
}

func TestSinkIsThereAfterARestartAndItsSecretIsNowhereInClear(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	created := b.create("hook", hook("https://receiver.example/x"))
	if created.GetUid() == "" || created.GetSecret() != "" || !created.GetSecretSet() {
		t.Errorf("created %v", created)
	}
	b.stop()
	b = open(t, dir)
	read, err := b.sinks.GetSink(t.Context(), &vedettev1.GetSinkRequest{Name: "sinks/hook"})
	if err != nil {
		t.Fatal(err)
	}
	read.Status, created.Status = nil, nil
	if diff := cmp.Diff(created, read, protocmp.Transform()); diff != "" {
		t.Errorf("after the restart (-before +after):\n%s", diff)
	}
	b.stop()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(canary)) {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpdateKeepsTheSecretUnlessTold(t *testing.T) {
	b := open(t, t.TempDir())
	created := b.create("hook", hook("https://receiver.example/x"))
	update := func(s *vedettev1.Sink, paths ...string) (*vedettev1.Sink, error) {
		s.Name = "sinks/hook"
		return b.sinks.UpdateSink(t.Context(), &vedettev1.UpdateSinkRequest{Sink: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	s, err := update(&vedettev1.Sink{Disabled: true}, "disabled")
	if err != nil || !s.GetSecretSet() || s.GetWebhook().GetUri() == "" || s.GetStatus().GetState() != vedettev1.DeliveryState_DELIVERY_STATE_DISABLED {
		t.Errorf("disabled: %v, %v", s, err)
	}
	var conflict *store.ConflictError
	if _, err := update(&vedettev1.Sink{Etag: created.GetEtag()}, "disabled"); !errors.As(err, &conflict) {
		t.Errorf("with an old etag: %v", err)
	}
	if s, err = update(&vedettev1.Sink{}, "secret"); err != nil || s.GetSecretSet() {
		t.Errorf("without a secret: %v, %v", s, err)
	}
	s, err = update(&vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: []string{"k:9092"}, Topic: "t"}}}, "kafka")
	if err != nil || s.GetKafka().GetTopic() != "t" || s.GetWebhook() != nil {
		t.Errorf("another target: %v, %v", s, err)
	}
}

func TestDeletedSinkLeavesNoCursor(t *testing.T) {
	b := open(t, t.TempDir())
	b.happen(3)
	b.create("hook", hook("http://127.0.0.1:1/"))
	if seq, err := b.store.SinkCursor(t.Context(), "hook"); err != nil || seq != b.last() {
		t.Errorf("a new sink's cursor is %d, %v: it should stand at the newest event", seq, err)
	}
	b.happen(1)
	b.state("hook", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 0 })
	if _, err := b.sinks.DeleteSink(t.Context(), &vedettev1.DeleteSinkRequest{Name: "sinks/hook"}); err != nil {
		t.Fatal(err)
	}
	if seq, err := b.store.SinkCursor(t.Context(), "hook"); err != nil || seq != 0 {
		t.Errorf("cursor %d, %v", seq, err)
	}
	if _, err := b.sinks.GetSink(t.Context(), &vedettev1.GetSinkRequest{Name: "sinks/hook"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the delete: %v", err)
	}
	list, err := b.sinks.ListSinks(t.Context(), &vedettev1.ListSinksRequest{})
	if err != nil || len(list.GetSinks()) != 0 {
		t.Errorf("list %v, %v", list, err)
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	b := open(t, t.TempDir())
	web := func(w *vedettev1.WebhookTarget) *vedettev1.Sink {
		if w.GetUri() == "" {
			w.Uri = "https://receiver.example/"
		}
		return &vedettev1.Sink{Target: &vedettev1.Sink_Webhook{Webhook: w}}
	}
	for _, tc := range []struct {
		name, id, field string
		sink            *vedettev1.Sink
	}{
		{"no target", "ok", "sink.target", &vedettev1.Sink{}},
		{"a bad id", "Nope", "sink_id", hook("https://receiver.example/")},
		{"a password in the address", "ok", "sink.webhook.uri", hook("https://user:" + canary + "@receiver.example/")},
		{"another scheme", "ok", "sink.webhook.uri", hook("ftp://receiver.example/")},
		{"no address", "ok", "sink.webhook.uri", hook("")},
		{"a header of the box's own", "ok", "sink.webhook.headers", web(&vedettev1.WebhookTarget{Headers: map[string]string{"vedette-signature": "x"}})},
		{"a header with a line break", "ok", "sink.webhook.headers", web(&vedettev1.WebhookTarget{Headers: map[string]string{"X": "a\r\nb"}})},
		{"a template that cannot be read", "ok", "sink.webhook.template", web(&vedettev1.WebhookTarget{Template: "{{.name"})},
		{"a template that calls itself", "ok", "sink.webhook.template", web(&vedettev1.WebhookTarget{Template: `{{define "a"}}xxxxxxxxxxxxxxxx{{template "a"}}{{end}}{{template "a"}}`})},
		{"a topic with a wildcard", "ok", "sink.mqtt.topic_prefix", &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://b", TopicPrefix: "a/#"}}}},
		{"a password without a user", "ok", "sink.mqtt.username", &vedettev1.Sink{Secret: "x", Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://b"}}}},
		{"a subject with a wildcard", "ok", "sink.nats.subject_prefix", &vedettev1.Sink{Target: &vedettev1.Sink_Nats{Nats: &vedettev1.NatsTarget{Uri: "nats://b", SubjectPrefix: "a.*"}}}},
		{"a broker without a port", "ok", "sink.kafka.brokers[0]", &vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: []string{"k"}, Topic: "t"}}}},
		{"no topic", "ok", "sink.kafka.topic", &vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: []string{"k:1"}}}}},
		{"a camera that is no name", "ok", "sink.cameras[0]", func() *vedettev1.Sink { s := hook("https://x/"); s.Cameras = []string{"door"}; return s }()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := b.sinks.CreateSink(t.Context(), &vedettev1.CreateSinkRequest{SinkId: tc.id, Sink: tc.sink})
			var bad *cameras.InvalidError
			if !errors.As(err, &bad) || len(bad.Violations) != 1 || bad.Violations[0].Field != tc.field {
				t.Errorf("got %v, want one fault of %s", err, tc.field)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Error("the fault quotes the password")
			}
		})
	}
	if _, err := b.sinks.CreateSink(t.Context(), &vedettev1.CreateSinkRequest{SinkId: "dry", Sink: hook("https://x/"), ValidateOnly: true}); err != nil {
		t.Error(err)
	}
	if _, err := b.sinks.GetSink(t.Context(), &vedettev1.GetSinkRequest{Name: "sinks/dry"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("validate_only made it: %v", err)
	}
}
