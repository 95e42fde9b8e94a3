package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Kind is a collection of resources.
type Kind string

// The collections.
const (
	Cameras Kind = "cameras"
	Rules   Kind = "rules"
	Sinks   Kind = "sinks"
	Users   Kind = "users"
)

// Resource is a row of the catalogue: something an operator made. What it means is in Spec, which the store never
// looks into.
type Resource struct {
	Name        string // unique in its collection: what the operator calls it, 1 to 128 bytes
	UID         string // given by the store at creation, never reused
	Etag        string // changes with every update
	Parent      string // name of the owner (a rule's camera); "" for none
	DisplayName string
	Labels      map[string]string
	Spec        []byte // opaque: a marshalled proto
	Secret      []byte // opaque and encrypted by the caller; nil in Update keeps the stored one
	Enabled     bool
	CreateTime  time.Time
	UpdateTime  time.Time
}

const resourceColumns = `name, uid, revision, parent, display_name, labels, spec, secret, enabled, create_us, update_us`

// Create adds a resource and returns it with UID, Etag and times set. ErrExists when the name is taken.
func (s *Store) Create(ctx context.Context, kind Kind, r Resource) (Resource, error) {
	if err := checkName("name", r.Name); err != nil {
		return Resource{}, err
	}
	labels, err := json.Marshal(r.Labels)
	if err != nil {
		return Resource{}, err
	}
	var uid [16]byte
	_, _ = rand.Read(uid[:]) // never fails
	now := s.cfg.Now().UnixMicro()
	r.UID, r.Etag, r.CreateTime, r.UpdateTime = hex.EncodeToString(uid[:]), "1", fromMicro(now), fromMicro(now)
	err = s.configure(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "INSERT INTO resources (kind, "+resourceColumns+`)
			VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, name) DO NOTHING`,
			kind, r.Name, r.UID, r.Parent, r.DisplayName, string(labels), r.Spec, r.Secret, r.Enabled, now, now)
		return orNone(result, err, ErrExists)
	})
	return result(r, kind, r.Name, err)
}

// Get reads a resource by name; ErrNotFound.
func (s *Store) Get(ctx context.Context, kind Kind, name string) (Resource, error) {
	if err := s.running(); err != nil {
		return Resource{}, err
	}
	row := s.reader.QueryRowContext(ctx, "SELECT "+resourceColumns+" FROM resources WHERE kind = ? AND name = ?", kind, name)
	r, err := scanResource(row)
	return result(r, kind, name, explain(err))
}

// List reads a page of resources ordered by name; parent "" lists all. pageSize 0: 50, at most 1000.
func (s *Store) List(ctx context.Context, kind Kind, parent string, pageSize int, pageToken string) (list []Resource, next string, err error) {
	if err := s.running(); err != nil {
		return nil, "", err
	}
	size, err := pageSizeOf(pageSize, maxPage)
	if err != nil {
		return nil, "", err
	}
	after, err := parseNameToken(pageToken, string(kind)+"\x00"+parent)
	if err != nil {
		return nil, "", err
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT "+resourceColumns+` FROM resources
		WHERE kind = ?1 AND (?2 = '' OR parent = ?2) AND name > ?3 ORDER BY name LIMIT ?4`, kind, parent, after, size+1)
	if err != nil {
		return nil, "", explain(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanResource(rows)
		if err != nil {
			return nil, "", explain(err)
		}
		list = append(list, r)
	}
	if len(list) > size {
		list = list[:size]
		next = printNameToken(list[size-1].Name, string(kind)+"\x00"+parent)
	}
	return list, next, explain(rows.Err())
}

// Update replaces Parent, DisplayName, Labels, Spec, Enabled and, unless nil, Secret. A non-empty r.Etag must be the
// stored one (*ConflictError otherwise).
func (s *Store) Update(ctx context.Context, kind Kind, r Resource) (Resource, error) {
	labels, err := json.Marshal(r.Labels)
	if err != nil {
		return Resource{}, err
	}
	name := r.Name
	err = s.configure(ctx, func(tx *sql.Tx) error {
		if err := checkEtag(ctx, tx, kind, name, r.Etag); err != nil {
			return err
		}
		row := tx.QueryRowContext(ctx, `UPDATE resources SET revision = revision + 1, parent = ?, display_name = ?, labels = ?,
			spec = ?, secret = coalesce(?, secret), enabled = ?, update_us = ? WHERE kind = ? AND name = ?
			RETURNING `+resourceColumns, r.Parent, r.DisplayName, string(labels), r.Spec, r.Secret, r.Enabled,
			s.cfg.Now().UnixMicro(), kind, name)
		r, err = scanResource(row)
		return err
	})
	return result(r, kind, name, err)
}

// Delete removes a resource (not its history). A non-empty etag must be the stored one.
func (s *Store) Delete(ctx context.Context, kind Kind, name, etag string) error {
	err := s.configure(ctx, func(tx *sql.Tx) error {
		if err := checkEtag(ctx, tx, kind, name, etag); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM resources WHERE kind = ? AND name = ?", kind, name)
		return err
	})
	_, err = result(Resource{}, kind, name, err)
	return err
}

func checkEtag(ctx context.Context, tx *sql.Tx, kind Kind, name, etag string) error {
	var revision int64
	row := tx.QueryRowContext(ctx, "SELECT revision FROM resources WHERE kind = ? AND name = ?", kind, name)
	if err := row.Scan(&revision); err != nil {
		return err
	}
	if now := strconv.FormatInt(revision, 10); etag != "" && etag != now {
		return &ConflictError{Resource: string(kind) + "/" + name, Etag: now}
	}
	return nil
}

func scanResource(row interface{ Scan(dest ...any) error }) (Resource, error) {
	var r Resource
	var revision, create, update int64
	var labels string
	err := row.Scan(&r.Name, &r.UID, &revision, &r.Parent, &r.DisplayName, &labels, &r.Spec, &r.Secret, &r.Enabled, &create, &update)
	if err != nil {
		return Resource{}, err
	}
	r.Etag, r.CreateTime, r.UpdateTime = strconv.FormatInt(revision, 10), fromMicro(create), fromMicro(update)
	return r, json.Unmarshal([]byte(labels), &r.Labels)
}

// change runs fn in a transaction of the catalogue on the writer goroutine.
func (s *Store) change(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return s.do(ctx, func(work context.Context, w *writer) error {
		if err := ctx.Err(); err != nil {
			return err // nobody waits any more
		}
		return w.change(work, fn)
	})
}

// result names the resource that an error is about.
func result(r Resource, kind Kind, name string, err error) (Resource, error) {
	var conflict *ConflictError
	switch {
	case err == nil:
		return r, nil
	case errors.As(err, &conflict):
		return Resource{}, err
	}
	return Resource{}, fmt.Errorf("%s/%s: %w", kind, name, err)
}

// orNone turns a statement that changed no row into err.
func orNone(r sql.Result, err, none error) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return none
}
