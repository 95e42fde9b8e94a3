-- +goose Up
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;

-- Cameras, classes, event types and end reasons, once a file.
CREATE TABLE names (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- One row: frames of one sequence within one UTC minute (codec.go). classes is a bit set of class id modulo 63 and
-- score the best one in thousandths, so that blocks without a match are not decoded.
CREATE TABLE detections (
  id       INTEGER PRIMARY KEY,
  camera   INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us   INTEGER NOT NULL,
  objects  INTEGER NOT NULL,
  classes  INTEGER NOT NULL,
  score    INTEGER NOT NULL,
  packed   INTEGER NOT NULL,
  data     BLOB NOT NULL
) STRICT;
CREATE INDEX detections_by_camera ON detections (camera, start_us);
CREATE INDEX detections_loose ON detections (start_us) WHERE packed = 0;

CREATE TABLE tracks (
  id         INTEGER PRIMARY KEY,
  sequence   INTEGER NOT NULL,
  local      INTEGER NOT NULL,
  camera     INTEGER NOT NULL,
  class      INTEGER NOT NULL,
  start_us   INTEGER NOT NULL,
  end_us     INTEGER NOT NULL,
  state      INTEGER NOT NULL,
  end_reason INTEGER NOT NULL,
  score      INTEGER NOT NULL,
  box        INTEGER NOT NULL,
  detections INTEGER NOT NULL,
  picture    TEXT NOT NULL,
  UNIQUE (sequence, local)
) STRICT;
CREATE INDEX tracks_by_time   ON tracks (start_us, sequence, local);
CREATE INDEX tracks_by_camera ON tracks (camera, start_us, sequence, local);
CREATE INDEX tracks_by_class  ON tracks (class, start_us, sequence, local);
CREATE INDEX tracks_active    ON tracks (sequence) WHERE state = 1;

CREATE TABLE paths (
  track INTEGER PRIMARY KEY,
  data  BLOB NOT NULL
) STRICT;

CREATE TABLE events (
  seq      INTEGER PRIMARY KEY,
  time_us  INTEGER NOT NULL,
  camera   INTEGER NOT NULL,
  type     INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  local    INTEGER NOT NULL,
  payload  BLOB
) STRICT;
CREATE INDEX events_by_time   ON events (time_us, seq);
CREATE INDEX events_by_camera ON events (camera, time_us, seq);
CREATE INDEX events_by_type   ON events (type, time_us, seq);
CREATE INDEX events_by_track  ON events (sequence, local, time_us, seq) WHERE sequence > 0;

PRAGMA user_version = 1;
