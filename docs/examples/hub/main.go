// Command hub gathers what many boxes tell: events from a stream of NATS JetStream that their sinks feed, and the status
// that each reports, in one SQLite database that operators query.
//
//	hub -nats nats://127.0.0.1:4222 -stream events -db hub.db -http 127.0.0.1:8070 -token SECRET
//	vedette sink add hub nats://hub:4222 --stream events            # on every box
//	vedette serve --hub http://hub:8070 --hub-token FILE --box NAME # on every box
//	hub -db hub.db -query boxes                                     # or silent, counts, events
package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const schema = `
CREATE TABLE IF NOT EXISTS boxes (
  id TEXT PRIMARY KEY, box TEXT NOT NULL, seen TEXT NOT NULL, version TEXT, phase TEXT, desired TEXT, applied TEXT, message TEXT, cameras INTEGER, streaming INTEGER
);
CREATE TABLE IF NOT EXISTS events (
  id TEXT NOT NULL, box TEXT NOT NULL, name TEXT NOT NULL, camera TEXT, type TEXT, time TEXT, track TEXT, attributes TEXT, PRIMARY KEY (id, name)
);
CREATE INDEX IF NOT EXISTS events_by_time ON events (time);
CREATE INDEX IF NOT EXISTS events_by_type ON events (type, time);
`

// queries are what an operator asks most.
func queries() map[string]string {
	return map[string]string{
		"boxes":  "SELECT box, id, seen, version, phase, cameras, streaming, message FROM boxes ORDER BY box",
		"silent": "SELECT box, id, seen FROM boxes WHERE seen < strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-5 minutes') ORDER BY seen",
		"behind": "SELECT box, id, phase, desired, applied, message FROM boxes WHERE desired <> applied ORDER BY box",
		"counts": "SELECT box, id, camera, type, strftime('%Y-%m-%dT%H:00Z', time) AS hour, count(*) AS n FROM events GROUP BY 2, 3, 4, 5 ORDER BY hour DESC, n DESC LIMIT 100",
		"events": "SELECT time, box, id, camera, type, track FROM events ORDER BY time DESC LIMIT 100",
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	server := flag.String("nats", nats.DefaultURL, "address of NATS")
	stream := flag.String("stream", "events", "stream that the boxes feed")
	file := flag.String("db", "hub.db", "database")
	address := flag.String("http", "127.0.0.1:8070", "where boxes report to")
	token := flag.String("token", "", "what boxes must show; empty: nothing")
	query := flag.String("query", "", "print the answer to one of "+strings.Join(slices.Sorted(maps.Keys(queries())), ", "))
	flag.Parse()
	db, err := sql.Open("sqlite3", "file:"+*file+"?_journal_mode=WAL&_busy_timeout=10000&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	if *query != "" {
		return answer(ctx, db, *query, os.Stdout)
	}
	nc, err := nats.Connect(*server, nats.Name("vedette hub"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", ln.Addr())
	web := &http.Server{Handler: reports(db, *token), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	err = gather(ctx, nc, *stream, db)
	return errors.Join(err, web.Close(), ignore(<-served, http.ErrServerClosed))
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// event is an event as the sinks of boxes send it.
type event struct {
	Name, Camera, Type, Time, Track string
	Attributes                      json.RawMessage
}

// gather takes events from the stream, a batch in a transaction. A durable consumer goes on where it was; an event that
// comes twice is one row.
func gather(ctx context.Context, nc *nats.Conn, stream string, db *sql.DB) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var consumer jetstream.Consumer
	for {
		consumer, err = js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "hub", AckPolicy: jetstream.AckExplicitPolicy})
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		select { // the first box makes it
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	if err != nil {
		return fmt.Errorf("consume stream %q: %w", stream, err)
	}
	for ctx.Err() == nil {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		var messages []jetstream.Msg
		for m := range batch.Messages() {
			messages = append(messages, m)
		}
		if err := keep(ctx, db, messages); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func keep(ctx context.Context, db *sql.DB, messages []jetstream.Msg) error {
	if len(messages) == 0 {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, m := range messages {
		var e event
		// vedette.events.BOX.CAMERA.TYPE, with a prefix that the sinks may have changed.
		parts := strings.Split(m.Subject(), ".")
		if len(parts) < 3 || json.Unmarshal(m.Data(), &e) != nil {
			fmt.Fprintln(os.Stderr, "hub: left out what is no event:", m.Subject())
			continue
		}
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			cmp.Or(m.Headers().Get("Vedette-Box"), parts[len(parts)-3]), parts[len(parts)-3], e.Name, e.Camera, e.Type, e.Time, e.Track, string(e.Attributes)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for _, m := range messages {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// reports keeps what boxes say of themselves: PUT /boxes/ID.
func reports(db *sql.DB, token string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /boxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		if given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 0 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		var s struct {
			Box, Version, Phase, Desired, Applied, Message string
			Cameras, Streaming                             int
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err == nil {
			err = json.Unmarshal(body, &s)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, err = db.ExecContext(r.Context(), "INSERT OR REPLACE INTO boxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", r.PathValue("id"), cmp.Or(s.Box, r.PathValue("id")),
			time.Now().UTC().Format(time.RFC3339), s.Version, s.Phase, s.Desired, s.Applied, s.Message, s.Cameras, s.Streaming)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /queries/{query}", func(w http.ResponseWriter, r *http.Request) {
		if err := answer(r.Context(), db, r.PathValue("query"), w); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	})
	return mux
}

// answer prints what a query gives.
func answer(ctx context.Context, db *sql.DB, name string, to io.Writer) (err error) {
	text, ok := queries()[name]
	if !ok {
		return fmt.Errorf("there is no query %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(queries())), ", "))
	}
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, strings.ToUpper(strings.Join(columns, "\t")))
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = v.String
		}
		_, _ = fmt.Fprintln(out, strings.Join(line, "\t"))
	}
	return errors.Join(rows.Err(), out.Flush())
}
