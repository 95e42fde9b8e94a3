package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestManyBoxesFillOneDatabase feeds the stream as the sinks of boxes do, some events twice, and asks the operator's
// questions.
func TestManyBoxesFillOneDatabase(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	if !ns.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not come up")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	db, err := sql.Open("sqlite3", filepath.Join(t.TempDir(), "hub.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{"vedette.events.>"}}); err != nil {
		t.Fatal(err)
	}
	const boxes, events = 5, 40
	for box := range boxes {
		for i := range events {
			body := fmt.Sprintf(`{"name": "cameras/door/events/%d", "camera": "cameras/door", "type": "line_crossed", "time": "2026-05-01T10:%02d:00Z", "attributes": {"direction": "forward"}}`, i, i)
			for range 1 + i%2 { // at least once
				// Two boxes have one name.
				m := nats.NewMsg(fmt.Sprintf("vedette.events.box-%d.door.line_crossed", box/2))
				m.Header.Set("Vedette-Box", fmt.Sprintf("id-%d", box))
				m.Data = []byte(body)
				if _, err := js.PublishMsg(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, err := js.Publish(t.Context(), "vedette.events.box-0.door.x", []byte("no event")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var gathering sync.WaitGroup
	gathering.Go(func() {
		if err := gather(ctx, nc, "events", db); err != nil {
			t.Errorf("gather: %v", err)
		}
	})
	stream, err := js.Stream(t.Context(), "events")
	if err != nil {
		t.Fatal(err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for poll := time.NewTicker(20 * time.Millisecond); ; <-poll.C {
		consumer, err := stream.Consumer(deadline, "hub")
		if err == nil {
			if info, err := consumer.Info(deadline); err == nil && info.NumPending == 0 && info.NumAckPending == 0 {
				break
			}
		}
		if deadline.Err() != nil {
			t.Fatal("the events were not gathered")
		}
	}
	stop()
	gathering.Wait()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM events").Scan(&n); err != nil || n != boxes*events {
		t.Errorf("%d events, %v, want %d", n, err, boxes*events)
	}

	web := httptest.NewServer(reports(db, "secret"))
	defer web.Close()
	for _, c := range []struct {
		box, token, body string
		want             int
	}{
		{"id-1", "secret", `{"box": "box-0", "version": "1.2.3", "phase": "RUNNING", "desired": "a", "applied": "a", "cameras": 4, "streaming": 3}`, http.StatusNoContent},
		{"box-2", "secret", `{"phase": "REFUSED", "desired": "b", "applied": "a", "message": "no signature"}`, http.StatusNoContent},
		{"box-2", "guess", `{}`, http.StatusUnauthorized},
		{"box-2", "secret", `nonsense`, http.StatusBadRequest},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, web.URL+"/boxes/"+c.box, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.body, resp.Status, c.want)
		}
	}
	for query, want := range map[string]string{
		"boxes": "id-1", "behind": "no signature", "counts": "2026-05-01T10:00Z", "events": "line_crossed", "silent": "SEEN",
	} {
		var out bytes.Buffer
		if err := answer(t.Context(), db, query, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s", query, err, out.String())
		}
	}
	if err := answer(t.Context(), db, "nothing", &bytes.Buffer{}); err == nil {
		t.Error("a query that is none was answered")
	}
}
