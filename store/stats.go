package store

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FileStats is what one database file takes.
type FileStats struct {
	Name       string
	Day        time.Time // zero for the catalogue
	Bytes      int64     // the file itself
	WALBytes   int64
	MediaBytes int64 // the day's pictures and clips
}

// Stats is the state of the store at one moment.
type Stats struct {
	Files          []FileStats // the catalogue, then days, oldest first
	Bytes          int64       // of all of them
	FreeBytes      int64       // on the file system
	Pressure       Pressure
	Windows        uint64 // committed since Run
	Frames         uint64
	Detections     uint64
	Tracks         uint64 // rows written, so a track counts as often as it was sent
	Events         uint64
	ShedDetections uint64        // dropped for want of space
	Expired        uint64        // rows for days that retention had deleted already
	CommitErrors   uint64        // commits that failed
	LastCommit     time.Time     // zero before the first
	CommitLatency  time.Duration // of the last commit, fsync included
	Queued         int           // objects, tracks and events waiting
	Damaged        []string      // files set aside because they were damaged, in Dir/damaged
	LastDeleted    []string      // what the last pass of retention that deleted something deleted
	Outlook        Outlook       // of the last pass of retention
}

// counters are what Stats tells, but for what is on the disk.
type counters struct {
	windows, frames, detections, tracks, events, shedDetections, expired, commitErrors atomic.Uint64

	pressure atomic.Int32
	full     atomic.Bool // a write has met a full disk, and there has been no room since
	free     atomic.Int64

	mu      sync.Mutex
	last    time.Time
	latency time.Duration
	outlook Outlook
}

func (c *counters) committed(b *Batch, begin time.Time) {
	c.windows.Add(1)
	c.frames.Add(uint64(len(b.Frames)))
	c.detections.Add(objects(b.Frames))
	c.tracks.Add(uint64(len(b.Tracks)))
	c.events.Add(uint64(len(b.Events)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	c.latency = c.last.Sub(begin)
}

func (c *counters) shed(frames []Frame) { c.shedDetections.Add(objects(frames)) }

func objects(frames []Frame) (n uint64) {
	for i := range frames {
		n += uint64(len(frames[i].Objects))
	}
	return n
}

// Stats tells the state of the store. It looks at every file, so it takes some system calls a day kept.
func (s *Store) Stats() Stats {
	c := &s.counters
	st := Stats{
		FreeBytes: c.free.Load(), Pressure: s.Pressure(), Windows: c.windows.Load(), Frames: c.frames.Load(),
		Detections: c.detections.Load(), Tracks: c.tracks.Load(), Events: c.events.Load(),
		ShedDetections: c.shedDetections.Load(), Expired: c.expired.Load(), CommitErrors: c.commitErrors.Load(),
	}
	c.mu.Lock()
	st.LastCommit, st.CommitLatency, st.Outlook = c.last, c.latency, c.outlook
	c.mu.Unlock()
	s.mu.Lock()
	st.Queued = int(s.waitingWeight)
	s.mu.Unlock()
	if s.running() != nil {
		return st
	}
	st.Files = append(st.Files, fileStats(s.cfg.Dir, catalogueFile))
	for _, day := range s.days.list(0, 1<<40) {
		f := fileStats(s.cfg.Dir, dayName(day))
		f.Day = dayTime(day)
		f.MediaBytes = s.days.mediaBytes(s.cfg.Dir, day)
		st.Files = append(st.Files, f)
	}
	for _, f := range st.Files {
		st.Bytes += f.Bytes + f.WALBytes + f.MediaBytes
	}
	s.days.mu.Lock()
	defer s.days.mu.Unlock()
	st.Damaged, st.LastDeleted = slices.Clone(s.days.damaged), slices.Clone(s.days.deleted)
	return st
}

func fileStats(dir, name string) FileStats {
	return FileStats{Name: name, Bytes: fileBytes(filepath.Join(dir, name)), WALBytes: fileBytes(filepath.Join(dir, name+"-wal"))}
}

func fileBytes(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// folderBytes adds up the files in a folder and the folders below it.
func folderBytes(path string) (n int64) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if e.IsDir() {
			n += folderBytes(filepath.Join(path, e.Name()))
		} else {
			n += fileBytes(filepath.Join(path, e.Name()))
		}
	}
	return n
}
