package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Token is what a client shows to be let in. The store sees only the hash of its secret.
type Token struct {
	ID         string // given by the store
	Hash       []byte // unique
	User       string
	Spec       []byte // opaque: role, scopes, ...
	CreateTime time.Time
	ExpireTime time.Time // zero: never; the caller enforces it
	UsedTime   time.Time
}

// CreateToken adds a token and returns it with ID and CreateTime set.
func (s *Store) CreateToken(ctx context.Context, t Token) (Token, error) {
	if len(t.Hash) == 0 || t.User == "" {
		return Token{}, fmt.Errorf("token: %w: it needs a hash and a user", ErrInvalid)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	t.ID, t.CreateTime = hex.EncodeToString(id[:]), fromMicro(s.cfg.Now().UnixMicro())
	err := s.configure(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `INSERT INTO tokens (id, hash, user, spec, create_us, expire_us) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, t.ID, t.Hash, t.User, t.Spec, micro(t.CreateTime), nullMicro(t.ExpireTime))
		return orNone(r, err, ErrExists)
	})
	if err != nil {
		return Token{}, fmt.Errorf("token of user %q: %w", t.User, err)
	}
	return t, nil
}

// TokenByHash finds a token; ErrNotFound.
func (s *Store) TokenByHash(ctx context.Context, hash []byte) (Token, error) {
	list, err := s.tokens(ctx, "hash = ?", hash)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	return list[0], nil
}

// ListTokens lists the tokens of a user ("": of all), by id.
func (s *Store) ListTokens(ctx context.Context, user string) ([]Token, error) {
	if user == "" {
		return s.tokens(ctx, "true")
	}
	return s.tokens(ctx, "user = ?", user)
}

func (s *Store) tokens(ctx context.Context, where string, args ...any) (list []Token, err error) {
	if err := s.running(); err != nil {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, `SELECT id, hash, user, spec, create_us, coalesce(expire_us, 0), coalesce(used_us, 0)
		FROM tokens WHERE `+where+" ORDER BY id", args...)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var t Token
		var create, expire, used int64
		if err := rows.Scan(&t.ID, &t.Hash, &t.User, &t.Spec, &create, &expire, &used); err != nil {
			return nil, explain(err)
		}
		t.CreateTime, t.ExpireTime, t.UsedTime = fromMicro(create), fromMicro(expire), fromMicro(used)
		list = append(list, t)
	}
	return list, explain(rows.Err())
}

// TouchToken notes that a token was used now. Call it seldom: it is a write.
func (s *Store) TouchToken(ctx context.Context, id string) error {
	return s.changeToken(ctx, id, "UPDATE tokens SET used_us = ? WHERE id = ?", s.cfg.Now().UnixMicro(), id)
}

// DeleteToken removes a token; ErrNotFound.
func (s *Store) DeleteToken(ctx context.Context, id string) error {
	return s.changeToken(ctx, id, "DELETE FROM tokens WHERE id = ?", id)
}

func (s *Store) changeToken(ctx context.Context, id, statement string, args ...any) error {
	err := s.configure(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, statement, args...)
		return orNone(r, err, ErrNotFound)
	})
	if err != nil {
		return fmt.Errorf("token %q: %w", id, err)
	}
	return nil
}

func nullMicro(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: micro(t), Valid: !t.IsZero()} }

// AuditEntry is one change somebody made or tried to make.
type AuditEntry struct {
	ID       int64 // given by the store, growing
	Time     time.Time
	Actor    string
	Action   string // the method
	Resource string
	Outcome  string // "OK" or the code it was refused with
	Detail   []byte // opaque
}

// maxAudit bounds the audit log; the oldest entries go first.
const maxAudit = 100_000

// Audit writes an entry; durable when it returns. A zero Time becomes now. The newest 100 000 entries are kept.
func (s *Store) Audit(ctx context.Context, e AuditEntry) error {
	if e.Time.IsZero() {
		e.Time = s.cfg.Now()
	}
	err := s.change(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, "INSERT INTO audit (time_us, actor, action, resource, outcome, detail) VALUES (?, ?, ?, ?, ?, ?)",
			e.Time.UnixMicro(), e.Actor, e.Action, e.Resource, e.Outcome, e.Detail)
		if err != nil {
			return err
		}
		id, err := r.LastInsertId()
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM audit WHERE id <= ?", id-maxAudit)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// ListAudit lists entries newest first (or q.Ascending); q's Actor, Action, Resource, Outcome, Start, End, PageSize and
// PageToken apply.
func (s *Store) ListAudit(ctx context.Context, q Query) (entries []AuditEntry, next string, err error) {
	p, err := s.plan("audit", q, maxPage)
	if err != nil {
		return nil, "", err
	}
	var c conditions
	for column, want := range map[string]string{"actor": q.Actor, "action": q.Action, "resource": q.Resource, "outcome": q.Outcome} {
		if want != "" {
			c.add(column+" = ?", want)
		}
	}
	c.between(p, "time_us", "id")
	rows, err := s.reader.QueryContext(ctx, "SELECT id, time_us, actor, action, resource, outcome, detail FROM audit"+
		c.where()+p.orderBy("time_us", "id")+fmt.Sprint(" LIMIT ", p.size+1), c.args...)
	if err != nil {
		return nil, "", explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e AuditEntry
		var us int64
		if err := rows.Scan(&e.ID, &us, &e.Actor, &e.Action, &e.Resource, &e.Outcome, &e.Detail); err != nil {
			return nil, "", explain(err)
		}
		e.Time = fromMicro(us)
		entries = append(entries, e)
	}
	if len(entries) > p.size {
		entries = entries[:p.size]
		last := entries[p.size-1]
		next = printToken(p.bound, key{last.Time.UnixMicro(), last.ID})
	}
	return entries, next, explain(rows.Err())
}

// SinkCursor reads how far a sink has delivered: the sequence number of its last event, 0 before the first.
func (s *Store) SinkCursor(ctx context.Context, sink string) (seq int64, err error) {
	if err := s.running(); err != nil {
		return 0, err
	}
	err = s.reader.QueryRowContext(ctx, "SELECT seq FROM sink_cursors WHERE sink = ?", sink).Scan(&seq)
	if err = explain(err); errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return seq, err
}

// SetSinkCursor notes how far a sink has delivered; 0 makes retention wait for a new sink. A cursor never goes back.
func (s *Store) SetSinkCursor(ctx context.Context, sink string, seq int64) error {
	if err := checkName("sink", sink); err != nil {
		return err
	}
	err := s.change(ctx, func(tx *sql.Tx) error {
		return setSinkCursor(ctx, tx, sink, seq, s.cfg.Now().UnixMicro())
	})
	if err != nil {
		return fmt.Errorf("cursor of sink %q: %w", sink, err)
	}
	return nil
}

func setSinkCursor(ctx context.Context, tx *sql.Tx, sink string, seq, now int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO sink_cursors (sink, seq, update_us) VALUES (?, ?, ?)
		ON CONFLICT (sink) DO UPDATE SET seq = max(seq, excluded.seq), update_us = excluded.update_us`, sink, seq, now)
	return err
}

// DeleteSinkCursor forgets a sink with its dead letters, so that retention no longer waits for it. Forgetting an unknown
// one is no error.
func (s *Store) DeleteSinkCursor(ctx context.Context, sink string) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		for _, table := range []string{"sink_cursors", "dead_letters"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE sink = ?", sink); err != nil {
				return err
			}
		}
		return nil
	})
}
