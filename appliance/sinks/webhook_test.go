package sinks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// receive answers a webhook's requests: fault may refuse one before it is taken, or take it and then say that it failed.
func receive(t *testing.T, in *inbox, fault func(n int) (status int, takeIt bool)) *httptest.Server {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		status, take := fault(n)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("request %d: %v", n, err)
		}
		if take {
			checkSignature(t, r.Header.Get("Vedette-Signature"), body)
			var all struct{ Events []json.RawMessage }
			if err := json.Unmarshal(body, &all); err != nil {
				t.Errorf("request %d: %v", n, err)
			}
			for _, e := range all.Events {
				in.take(e)
			}
		}
		if status == 0 { // hang up
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	return s
}

func checkSignature(t *testing.T, header string, body []byte) {
	t.Helper()
	stamp, sum, ok := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(canary))
	_, _ = fmt.Fprintf(mac, "%s.%s", stamp, body)
	if !ok || sum != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %q is not that of the body", header)
	}
}

func TestFaultyReceiverGetsEverythingInOrder(t *testing.T) {
	b, in := open(t, t.TempDir()), newInbox(t)
	r := rand.New(rand.NewPCG(1, 1))
	s := receive(t, in, func(int) (int, bool) {
		switch r.IntN(5) {
		case 0:
			return http.StatusInternalServerError, false
		case 1:
			return http.StatusBadGateway, true // it has it, but says otherwise
		case 2:
			return 0, r.IntN(2) == 0
		}
		return http.StatusOK, true
	})
	b.create("hook", hook(s.URL))
	for range 50 {
		b.happen(20)
	}
	again := in.all(1000)
	st := b.state("hook", idle)
	if st.GetDelivered() != 1000 || st.GetFailures() == 0 || again == 0 {
		t.Errorf("status %v, %d events came again: the receiver was not faulty enough to show anything", st, again)
	}
}

// TestBoxThatWasOfflineDeliversEverythingOnce: thousands of events happen while the receiver is away. Meanwhile a
// subscriber sees each commit at once, and another sink its events; afterwards everything comes once and in order.
func TestBoxThatWasOfflineDeliversEverythingOnce(t *testing.T) {
	dir := t.TempDir()
	b, in, live := open(t, dir), newInbox(t), newInbox(t)
	var away atomic.Bool
	away.Store(true)
	s := receive(t, in, func(int) (int, bool) {
		if away.Load() {
			return http.StatusServiceUnavailable, false
		}
		return http.StatusNoContent, true
	})
	up := receive(t, live, func(int) (int, bool) { return http.StatusOK, true })
	b.create("hook", hook(s.URL))
	b.create("other", hook(up.URL))
	news := b.store.Subscribe(0)
	for range 40 {
		b.happen(100)
		for seen := 0; seen < 100; {
			c, err := news.Next(t.Context())
			if err != nil || c.Missed > 0 {
				t.Fatalf("a subscriber missed %d windows: %v", c.Missed, err)
			}
			seen += len(c.Events)
		}
	}
	live.all(4000)
	b.state("hook", func(s *vedettev1.DeliveryStatus) bool {
		return s.GetState() == vedettev1.DeliveryState_DELIVERY_STATE_BACKOFF && s.GetDelivered() == 0 && s.GetMessage() != "" && s.GetOldestWaitingTime() != nil
	})
	if failing := b.sinks.Failing(); len(failing) != 1 || failing["hook"].GetMessage() == "" {
		t.Errorf("failing: %v, want the hook alone", failing)
	}
	told := map[string]float64{}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(b.sinks)
	families, err := metrics.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			told[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if len(told) != 8 || told["vedette_sink_failures_total hook"] < 1 || told["vedette_sink_delivered_total other"] < 1 || told["vedette_sink_failures_total other"] != 0 {
		t.Errorf("metrics: %v", told)
	}
	b.stop() // and the box restarts
	n := b.n
	b = open(t, dir)
	b.n = n
	away.Store(false)
	b.happen(10)
	if again := in.all(4010); again != 0 {
		t.Errorf("%d events came again although nothing failed after they were taken", again)
	}
}

func TestTemplateMakesTheBody(t *testing.T) {
	b := open(t, t.TempDir())
	bodies := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.Header.Get("Content-Type") + " " + r.Header.Get("X-Room") + " " + string(body)
	}))
	defer s.Close()
	sink := hook(s.URL)
	sink.Types, sink.Cameras = []string{"zone_entered"}, []string{"cameras/yard"}
	sink.GetWebhook().Template = `{"text":{{json (printf "%s %s" .type .attributes.n)}},"at":"{{.time}}"}`
	sink.GetWebhook().ContentType = "application/vnd.chat+json"
	sink.GetWebhook().Headers = map[string]string{"X-Room": "gate"}
	b.create("hook", sink)
	b.happen(2) // one of each camera
	want := `application/vnd.chat+json gate {"text":"zone_entered 1","at":"2031-05-06T12:00:00.001Z"}`
	if got := <-bodies; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if st := b.state("hook", idle); st.GetDelivered() != 1 || st.GetDeliveredSeq() != b.last() {
		t.Errorf("status %v: the other camera's event should be passed over", st)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	b := open(t, t.TempDir())
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a signed request went elsewhere") }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	b.create("hook", hook(s.URL))
	b.happen(1)
	b.state("hook", func(s *vedettev1.DeliveryStatus) bool {
		return s.GetFailures() > 1 && strings.Contains(s.GetMessage(), "307")
	})
}
