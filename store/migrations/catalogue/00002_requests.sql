-- +goose Up
-- What requests with an id of their own made, for a day. The request is hashed with who sent it.
CREATE TABLE requests (
  request BLOB PRIMARY KEY,
  content BLOB NOT NULL,
  name    TEXT NOT NULL,
  time_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests (time_us);

PRAGMA user_version = 2;
