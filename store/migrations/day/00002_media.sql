-- +goose Up
-- Pictures and clips of events, in the day of the event: a file within the day's media folder each. A row is there
-- when its file is.
CREATE TABLE media (
  event    INTEGER NOT NULL,
  kind     INTEGER NOT NULL,
  file     TEXT NOT NULL,
  start_us INTEGER NOT NULL,
  end_us   INTEGER NOT NULL,
  PRIMARY KEY (event, kind)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
