-- +goose Up
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE resources (
  kind         TEXT NOT NULL,
  name         TEXT NOT NULL,
  uid          TEXT NOT NULL UNIQUE,
  revision     INTEGER NOT NULL,
  parent       TEXT NOT NULL,
  display_name TEXT NOT NULL,
  labels       TEXT NOT NULL,
  spec         BLOB,
  secret       BLOB,
  enabled      INTEGER NOT NULL,
  create_us    INTEGER NOT NULL,
  update_us    INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT;
CREATE INDEX resources_by_parent ON resources (kind, parent, name);

CREATE TABLE sequences (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  camera        TEXT NOT NULL,
  stream_epoch  TEXT NOT NULL,
  model         TEXT NOT NULL,
  model_version TEXT NOT NULL,
  open_reason   TEXT NOT NULL,
  opened_us     INTEGER NOT NULL,
  close_reason  TEXT,
  closed_us     INTEGER
) STRICT;
CREATE INDEX sequences_open ON sequences (id) WHERE closed_us IS NULL;

CREATE TABLE tokens (
  id        TEXT PRIMARY KEY,
  hash      BLOB NOT NULL UNIQUE,
  user      TEXT NOT NULL,
  spec      BLOB,
  create_us INTEGER NOT NULL,
  expire_us INTEGER,
  used_us   INTEGER
) STRICT;
CREATE INDEX tokens_by_user ON tokens (user, id);

CREATE TABLE audit (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us  INTEGER NOT NULL,
  actor    TEXT NOT NULL,
  action   TEXT NOT NULL,
  resource TEXT NOT NULL,
  outcome  TEXT NOT NULL,
  detail   BLOB
) STRICT;
CREATE INDEX audit_by_time ON audit (time_us, id);

CREATE TABLE sink_cursors (
  sink      TEXT PRIMARY KEY,
  seq       INTEGER NOT NULL,
  update_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 1;
