package sinks_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// tell stores one event with a text of its own.
func (b *box) tell(camera, kind, text string) {
	b.t.Helper()
	b.n++
	done, err := b.store.Append(b.t.Context(), store.Batch{Events: []store.Event{{
		Camera: camera, Type: kind, Time: time.Date(2031, 5, 6, 12, 0, b.n, 0, time.UTC), Payload: fmt.Appendf(nil, `{"n":"%d","text":%q}`, b.n, text),
	}}})
	if err == nil {
		err = <-done
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) letters(id string) []*vedettev1.DeadLetter {
	b.t.Helper()
	var all []*vedettev1.DeadLetter
	for token := ""; ; {
		r, err := b.sinks.ListDeadLetters(b.t.Context(), &vedettev1.ListDeadLettersRequest{Parent: "sinks/" + id, PageSize: 2, PageToken: token})
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, r.GetDeadLetters()...)
		if token = r.GetNextPageToken(); token == "" {
			return all
		}
	}
}

func settled(delivered, dead int64) func(*vedettev1.DeliveryStatus) bool {
	return func(s *vedettev1.DeliveryStatus) bool {
		return s.GetDelivered() == delivered && s.GetDeadLetters() == dead && idle(s)
	}
}

// picky is a webhook that answers bodies with status as fault says (0: takes them), and keeps what it took.
type picky struct {
	fault atomic.Pointer[func(body string) int]
	mu    sync.Mutex
	took  []string // what stands in a body after "text":
}

func newPicky(t *testing.T, fault func(body string) int) (*picky, *vedettev1.Sink) {
	p := &picky{}
	p.fault.Store(&fault)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if status := (*p.fault.Load())(string(body)); status != 0 {
			w.WriteHeader(status)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, part := range bytes.Split(body, []byte(`"text":"`))[1:] {
			p.took = append(p.took, string(part[:bytes.IndexByte(part, '"')]))
		}
	}))
	t.Cleanup(s.Close)
	return p, hook(s.URL)
}

func (p *picky) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.took)
}

func none(string) int { return 0 }

func TestEventThatAReceiverRefusesIsSetAsideAndCanBeSentAgain(t *testing.T) {
	refuse := func(body string) int {
		if strings.Contains(body, "poison") {
			return http.StatusUnprocessableEntity
		}
		return 0
	}
	p, sink := newPicky(t, refuse)
	dir := t.TempDir()
	b := open(t, dir)
	b.create("hook", sink)
	var want []string
	for i := range 150 {
		text := fmt.Sprint("fine", i)
		if i%60 == 30 {
			text = fmt.Sprint("poison", i)
		} else {
			want = append(want, text)
		}
		b.tell("door", "zone_entered", text)
	}
	b.state("hook", settled(148, 2))
	if got := p.taken(); !slices.Equal(got, want) {
		t.Errorf("the receiver has %d events: %v", len(got), got)
	}
	b.stop() // and the box restarts
	n := b.n
	b = open(t, dir)
	b.n = n
	b.tell("door", "zone_entered", "poison-late")
	b.state("hook", settled(0, 3))
	letters := b.letters("hook")
	if len(letters) != 3 || letters[0].GetEvent().GetAttributes()["text"] != "poison30" || letters[2].GetEvent().GetAttributes()["text"] != "poison-late" ||
		!strings.Contains(letters[0].GetReason(), "422") || letters[0].GetAttempts() != 5 {
		t.Fatalf("the dead letters are %v", letters)
	}

	// Refused again, it is a dead letter as before.
	if r, err := b.sinks.RedeliverDeadLetters(t.Context(), &vedettev1.RedeliverDeadLettersRequest{Parent: "sinks/hook", Names: []string{letters[0].GetName()}}); err != nil || r.GetCount() != 1 {
		t.Errorf("one is sent again: %v, %v", r, err)
	}
	b.state("hook", func(*vedettev1.DeliveryStatus) bool { return b.letters("hook")[0].GetAttempts() == 6 })
	fine := none
	p.fault.Store(&fine)
	if r, err := b.sinks.DeleteDeadLetters(t.Context(), &vedettev1.DeleteDeadLettersRequest{Parent: "sinks/hook", Names: []string{letters[1].GetName()}}); err != nil || r.GetCount() != 1 {
		t.Errorf("one is given up: %v, %v", r, err)
	}
	if r, err := b.sinks.RedeliverDeadLetters(t.Context(), &vedettev1.RedeliverDeadLettersRequest{Parent: "sinks/hook", All: true}); err != nil || r.GetCount() != 2 {
		t.Errorf("the rest is sent again: %v, %v", r, err)
	}
	b.state("hook", settled(2, 0))
	if got, want := p.taken(), append(want, "poison30", "poison-late"); !slices.Equal(got, want) {
		t.Errorf("the receiver has %v", got[len(got)-3:])
	}
}

// TestReceiverThatFailsAtOneEventIsToldFromOneThatFails: an answer of 500 alone says nothing of the event.
func TestReceiverThatFailsAtOneEventIsToldFromOneThatFails(t *testing.T) {
	var refused atomic.Int64
	var p *picky
	some := func(body string) int {
		if strings.Contains(body, "poison") {
			return http.StatusInternalServerError
		}
		return 0
	}
	p, sink := newPicky(t, func(body string) int {
		if refused.Add(1) > 60 && strings.Contains(body, `"a0"`) {
			p.fault.Store(&some)
			return 0
		}
		return http.StatusInternalServerError
	})
	b := open(t, t.TempDir())
	b.create("hook", sink)
	for i := range 5 {
		b.tell("door", "zone_entered", fmt.Sprint("a", i))
	}
	b.state("hook", settled(5, 0))
	b.tell("door", "zone_entered", "poison1")
	b.tell("door", "zone_entered", "poison2")
	b.state("hook", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 5 && s.GetFailures() > 70 })
	if n := len(b.letters("hook")); n != 0 {
		t.Errorf("%d events were set aside before the receiver took another one", n)
	}
	b.tell("door", "zone_entered", "b")
	b.state("hook", settled(6, 2))
	if got := strings.Join(p.taken(), " "); got != "a0 a1 a2 a3 a4 b" {
		t.Errorf("the receiver has %s", got)
	}
}

// TestReceiverThatRecoversWhileItIsComparedLosesNothing has the receiver come back just when the third event is tried.
func TestReceiverThatRecoversWhileItIsComparedLosesNothing(t *testing.T) {
	var refused atomic.Int64
	var well atomic.Bool
	p, sink := newPicky(t, func(body string) int {
		if refused.Add(1) > 60 && strings.Contains(body, `"a2"`) {
			well.Store(true)
		}
		if well.Load() {
			return 0
		}
		return http.StatusInternalServerError
	})
	b := open(t, t.TempDir())
	b.create("hook", sink)
	for i := range 5 {
		b.tell("door", "zone_entered", fmt.Sprint("a", i))
	}
	b.state("hook", settled(5, 0))
	if got := strings.Join(p.taken(), " "); got != "a2 a0 a1 a3 a4" {
		t.Errorf("the receiver has %s", got)
	}
}

func TestBatchThatIsTooLargeIsSentInSmallerOnes(t *testing.T) {
	p, sink := newPicky(t, func(body string) int {
		if len(body) > 2000 {
			return http.StatusRequestEntityTooLarge
		}
		return 0
	})
	b := open(t, t.TempDir())
	sink.Disabled = true
	b.create("hook", sink)
	for i := range 80 {
		b.tell("door", "zone_entered", fmt.Sprint("event", i))
	}
	if _, err := b.sinks.UpdateSink(t.Context(), &vedettev1.UpdateSinkRequest{Sink: &vedettev1.Sink{Name: "sinks/hook"}, UpdateMask: maskOf("disabled")}); err != nil {
		t.Fatal(err)
	}
	b.state("hook", settled(80, 0))
	if got := p.taken(); len(got) != 80 || got[79] != "event79" {
		t.Errorf("the receiver has %v", got)
	}
}

func TestDeadLettersAreAskedForByName(t *testing.T) {
	b := open(t, t.TempDir())
	b.create("hook", hook("https://receiver.example/x"))
	redeliver := func(parent string, all bool, names ...string) error {
		_, err := b.sinks.RedeliverDeadLetters(t.Context(), &vedettev1.RedeliverDeadLettersRequest{Parent: parent, Names: names, All: all})
		return err
	}
	for what, err := range map[string]error{
		"neither":         redeliver("sinks/hook", false),
		"both":            redeliver("sinks/hook", true, "sinks/hook/deadLetters/1"),
		"another sink's":  redeliver("sinks/hook", false, "sinks/other/deadLetters/1"),
		"no number":       redeliver("sinks/hook", false, "sinks/hook/deadLetters/x"),
		"no name":         redeliver("hook", true),
		"too many":        redeliver("sinks/hook", false, make([]string, 1001)...),
		"a negative page": second(b.sinks.ListDeadLetters(t.Context(), &vedettev1.ListDeadLettersRequest{Parent: "sinks/hook", PageSize: -1})),
	} {
		if _, ok := errors.AsType[*cameras.InvalidError](err); !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := redeliver("sinks/hook", false, "sinks/hook/deadLetters/7"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := b.sinks.ListDeadLetters(t.Context(), &vedettev1.ListDeadLettersRequest{Parent: "sinks/hook", PageToken: "x"}); !errors.Is(err, store.ErrPageToken) {
		t.Errorf("a token of nothing: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestMQTTBrokerThatRefusesLargeMessagesGetsTheOthers(t *testing.T) {
	for _, limit := range []string{"message_size_limit 2000", "max_packet_size 2000"} {
		t.Run(limit, func(t *testing.T) {
			broker := startBroker(t, limit+"\n")
			got := broker.subscribe()
			b, in := open(t, t.TempDir()), newInbox(t)
			b.create("broker", &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://" + broker.address}}})
			await(t, got, is("vedette/status", "online"))
			b.tell("door", "zone_entered", "small")
			b.tell("door", "zone_entered", strings.Repeat("large", 1000))
			b.tell("door", "zone_entered", "small")
			b.state("broker", settled(2, 1))
			for _, n := range []string{"1", "3"} {
				in.take([]byte(await(t, got, func(m message) bool { return strings.Contains(m.topic, "/events/") }).payload))
				if e := <-in.got; e.GetAttributes()["n"] != n {
					t.Errorf("event %s came, want %s", e.GetAttributes()["n"], n)
				}
			}
		})
	}
}

// streamOf connects as another program would, and makes the stream that the sink publishes to.
func streamOf(t *testing.T, uri string, cfg jetstream.StreamConfig) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	conn, err := nats.Connect(uri, nats.Token(canary))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.Subjects = "VEDETTE", []string{"vedette.events.>"}
	stream, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return js, stream
}

// numbers are the numbers of the events in a stream, in its order.
func numbers(t *testing.T, stream jetstream.Stream, count uint64) string {
	t.Helper()
	var list []string
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != count {
		t.Fatalf("the stream has %+v, %v", info.State, err)
	}
	in := newInbox(t)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		in.take(m.Data)
		e := <-in.got
		list = append(list, strings.TrimPrefix(e.GetCamera(), "cameras/")+e.GetAttributes()["n"])
	}
	return strings.Join(list, " ")
}

// TestNATSNeverOvertakesAnEventThatFails has the stream refuse events of a kind for a while: those behind them of the same
// camera wait, although the stream would take them.
func TestNATSNeverOvertakesAnEventThatFails(t *testing.T) {
	s := serveNATS(t, t.TempDir(), -1)
	defer s.WaitForShutdown()
	defer s.Shutdown()
	limits := jetstream.StreamConfig{Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxMsgSize: 3000}
	js, stream := streamOf(t, s.ClientURL(), limits)
	b := open(t, t.TempDir())
	b.create("hub", &vedettev1.Sink{Secret: canary, Disabled: true, Target: &vedettev1.Sink_Nats{Nats: &vedettev1.NatsTarget{Uri: s.ClientURL()}}})
	for _, kind := range []string{"a", "a", "b", "c"} { // the second a is refused, b and c would not be
		b.tell("door", kind, "")
	}
	b.tell("yard", "a", "") // nor is this
	b.tell("door", "d", strings.Repeat("large", 1000))
	b.tell("door", "d", "")
	if _, err := b.sinks.UpdateSink(t.Context(), &vedettev1.UpdateSinkRequest{Sink: &vedettev1.Sink{Name: "sinks/hub"}, UpdateMask: maskOf("disabled")}); err != nil {
		t.Fatal(err)
	}
	b.state("hub", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 3 })
	if got := numbers(t, stream, 2); got != "door1 yard5" && got != "yard5 door1" {
		t.Errorf("the stream has %s", got)
	}
	limits.MaxMsgsPerSubject = 100
	limits.Name, limits.Subjects = "VEDETTE", []string{"vedette.events.>"}
	if _, err := js.UpdateStream(t.Context(), limits); err != nil {
		t.Fatal(err)
	}
	b.state("hub", settled(6, 1))
	if got := strings.ReplaceAll(numbers(t, stream, 6), "yard5 ", ""); got != "door1 door2 door3 door4 door7" {
		t.Errorf("the stream has %s", got)
	}
	if letters := b.letters("hub"); len(letters) != 1 || letters[0].GetEvent().GetAttributes()["n"] != "6" {
		t.Errorf("the dead letters are %v", letters)
	}
}

func TestKafkaThatRefusesLargeRecordsGetsTheOthers(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "3000"}))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b := open(t, t.TempDir())
	b.create("bus", &vedettev1.Sink{Disabled: true, Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: cluster.ListenAddrs(), Topic: "events"}}})
	want := map[string]string{}
	for i := range 100 {
		camera, text := []string{"door", "yard", "hall"}[i%3], "small"
		if i%40 == 20 {
			text = incompressible(20_000)
		}
		b.tell(camera, "zone_entered", text)
		if text == "small" {
			want["cameras/"+camera] += fmt.Sprint(b.n, " ")
		}
	}
	if _, err := b.sinks.UpdateSink(t.Context(), &vedettev1.UpdateSinkRequest{Sink: &vedettev1.Sink{Name: "sinks/bus"}, UpdateMask: maskOf("disabled")}); err != nil {
		t.Fatal(err)
	}
	st := b.state("bus", func(s *vedettev1.DeliveryStatus) bool { return s.GetDeadLetters() == 2 && idle(s) })
	got, last := map[string]string{}, map[string]int64{}
	for n := int64(0); n < st.GetDelivered(); {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			in := newInbox(t)
			in.take(r.Value)
			e := <-in.got
			var number int64
			_, _ = fmt.Sscan(e.GetAttributes()["n"], &number)
			if camera := string(r.Key); number > last[camera] { // again: of another camera's refusal
				got[camera] += fmt.Sprint(number, " ")
				last[camera] = number
			}
		})
	}
	for camera := range want {
		if got[camera] != want[camera] {
			t.Errorf("%s: the topic has %s, want %s", camera, got[camera], want[camera])
		}
	}
}

func incompressible(n int) string {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return hex.EncodeToString(b)
}

func maskOf(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
