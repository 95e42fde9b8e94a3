-- +goose Up
-- Events that the receiver of a sink refused for good: the whole of each, because its day may be deleted meanwhile.
CREATE TABLE dead_letters (
  sink     TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  event    BLOB NOT NULL,
  reason   TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  time_us  INTEGER NOT NULL,
  again    INTEGER NOT NULL DEFAULT 0, -- 1: to be sent again
  PRIMARY KEY (sink, seq)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;
