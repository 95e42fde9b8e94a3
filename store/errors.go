package store

import (
	"errors"
	"fmt"
)

// Errors a caller branches on; match them with errors.Is.
var (
	// ErrNotFound says that no such row exists (or no longer: retention may have taken it).
	ErrNotFound = errors.New("not found")
	// ErrExists says that the name is taken.
	ErrExists = errors.New("already exists")
	// ErrInvalid says that an argument cannot be stored or queried as it is; the text says which and why.
	ErrInvalid = errors.New("invalid")
	// ErrPageToken says that a page token is damaged, of another version, or belongs to another query.
	ErrPageToken = errors.New("page token does not belong to this query")
	// ErrDiskFull says that the disk has no room for the write; reads go on.
	ErrDiskFull = errors.New("disk full")
	// ErrLocked says that another process has the data directory open.
	ErrLocked = errors.New("data directory is in use")
	// ErrCorrupt says that a database file is damaged.
	ErrCorrupt = errors.New("database file is damaged")
	// ErrNewer says that a file was written by a newer version; nothing was changed.
	ErrNewer = errors.New("written by a newer version")
	// ErrClosed says that the store is not running (not yet, or no more).
	ErrClosed = errors.New("store is not running")
)

// ConflictError reports an update or delete whose etag is not the stored one.
type ConflictError struct {
	Resource string // what was to be changed, "cameras/door"
	Etag     string // the etag stored now
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s was changed by someone else (etag is now %s): read it again", e.Resource, e.Etag)
}

// HintError is an error an operator can mend; Hint says how.
type HintError struct {
	Err  error
	Hint string
}

// Error implements error.
func (e *HintError) Error() string { return e.Err.Error() + " (" + e.Hint + ")" }

// Unwrap gives the error without its hint.
func (e *HintError) Unwrap() error { return e.Err }
