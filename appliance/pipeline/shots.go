package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/store"
)

// shots keeps pictures of one camera: the best one of every track, and the one each event was found in. Its goroutine
// does what would hold up the lane: it asks ingest for JPEGs of leased frames and writes files. A picture is taken only
// while the disk has room for it; analysis never waits for one.
//
// A file is on disk before a row names it: a track's row is appended with its picture when that is written, and the end
// of a track that has an unwritten better one is appended by shots instead of the lane.
type shots struct {
	p      *Pipeline
	camera string
	logger *slog.Logger
	wake   chan struct{} // one token: there is something to do
	done   chan struct{} // closed when run has ended
	events sync.WaitGroup

	mu     sync.Mutex // guards what follows
	queue  []func(context.Context)
	frames int // frames among the queue, each with a lease
	tracks map[store.TrackID]*shot
	last   snapshot
	shown  map[store.TrackID]snapshot // the newest of a track that was in an event
	closed bool
}

// shot is the best picture of one track so far.
type shot struct {
	asked   int       // how many were asked for
	askedAt time.Time // capture time of the last of them
	rough   float64   // the best that was asked for, without its sharpness

	quality float64
	jpeg    []byte // not written yet; nil: nothing better than what is written
	file    string // written; empty: none is
	written time.Time
}

// snapshot is a picture of a whole frame in which something happened.
type snapshot struct {
	at     time.Time // capture time
	file   string
	ok     chan bool       // receives, and keeps, whether the file is there
	tracks []store.TrackID // that are in it
}

// pictured are events that a snapshot shows.
type pictured struct {
	snapshot
	events []*store.Event
}

const (
	// A frame more on lease is a slot less for ingest, which has five.
	maxShotFrames = 2
	maxPicks      = 4 // of one frame
	maxAsked      = 12
	shotInterval  = 500 * time.Millisecond
	shotGain      = 1.25 // a picture that is so much better is worth its cost
	retryAfter    = 2 * time.Second
	rewriteAfter  = 10 * time.Second
	shotWidth     = 640 // pixels at most
	shotMargin    = 0.15
	snapshotWidth = 1280
	// Events that are so close share a snapshot that shows them all.
	snapshotInterval = 500 * time.Millisecond
	shotTimeout      = 2 * time.Second // as long as a lease
	commitTimeout    = 30 * time.Second
	// sharpEnough is a variance of the Laplacian at which more sharpness adds little.
	sharpEnough = 150.0
)

func newShots(p *Pipeline, camera string, logger *slog.Logger) *shots {
	return &shots{
		p: p, camera: camera, logger: logger, wake: make(chan struct{}, 1), done: make(chan struct{}), tracks: map[store.TrackID]*shot{},
		shown: map[store.TrackID]snapshot{},
	}
}

// run works until close, then does what is left.
func (s *shots) run(ctx context.Context) {
	defer close(s.done)
	for {
		s.mu.Lock()
		var next func(context.Context)
		if len(s.queue) > 0 {
			next, s.queue = s.queue[0], s.queue[1:]
		}
		closed := s.closed
		s.mu.Unlock()
		switch {
		case next != nil:
			next(ctx)
		case closed:
			s.events.Wait()
			return
		default:
			<-s.wake
		}
	}
}

// close has run end when everything asked for is done, and waits for it.
func (s *shots) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
	<-s.done
}

func (s *shots) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *shots) enqueue(f func(context.Context)) {
	s.mu.Lock()
	s.queue = append(s.queue, f)
	s.mu.Unlock()
	s.signal()
}

// pick is a track to take a picture of.
type pick struct {
	id    store.TrackID
	start time.Time
	crop  *ingestv1.Rectangle
	rough float64
	gain  float64
}

// candidates chooses whose picture is to be taken from a frame.
func (s *shots) candidates(f *store.Frame, width, height uint32, starts map[int64]*following) []pick {
	var picks []pick
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frames >= maxShotFrames {
		return nil
	}
	for i := range f.Objects {
		o := &f.Objects[i]
		id := store.TrackID{Sequence: f.Sequence, Local: o.Local}
		rough := roughQuality(o)
		was := s.tracks[id]
		if was != nil && !was.worth(rough, f.CaptureTime) {
			continue
		}
		p := pick{id: id, start: starts[o.Local].track.Start, crop: cropOf(o.Box, width, height), rough: rough, gain: math.Inf(1)}
		if was != nil {
			p.gain = rough / was.rough
		}
		picks = append(picks, p)
	}
	slices.SortFunc(picks, func(a, b pick) int { return int(math.Copysign(1, b.gain-a.gain)) })
	picks = picks[:min(len(picks), maxPicks)]
	for _, p := range picks {
		t := s.tracks[p.id]
		if t == nil {
			t = &shot{}
			s.tracks[p.id] = t
		}
		t.asked++
		t.askedAt, t.rough = f.CaptureTime, max(t.rough, p.rough)
	}
	return picks
}

// worth tells whether another picture of a track is to be asked for.
func (t *shot) worth(rough float64, at time.Time) bool {
	since := at.Sub(t.askedAt)
	return t.asked < maxAsked && since >= shotInterval && (rough > shotGain*t.rough || (since >= retryAfter && rough > 0.9*t.rough))
}

// roughQuality is how good a picture of an object will be, apart from its sharpness: sure, large and whole.
func roughQuality(o *store.Object) float64 {
	b := o.Box
	whole := 1.0
	const edge = 0.004
	for _, cut := range []bool{b.X1 < edge, b.Y1 < edge, b.X2 > 1-edge, b.Y2 > 1-edge} {
		if cut { // it goes on outside the picture
			whole *= 0.6
		}
	}
	return float64(o.Score) * math.Sqrt(float64(b.X2-b.X1)*float64(b.Y2-b.Y1)) * whole
}

// cropOf is an object with a margin, in pixels.
func cropOf(b store.Box, width, height uint32) *ingestv1.Rectangle {
	w, h := float64(width), float64(height)
	mx, my := shotMargin*float64(b.X2-b.X1)*w, shotMargin*float64(b.Y2-b.Y1)*h
	x1, y1 := max(0, math.Floor(float64(b.X1)*w-mx)), max(0, math.Floor(float64(b.Y1)*h-my))
	x2, y2 := min(w, math.Ceil(float64(b.X2)*w+mx)), min(h, math.Ceil(float64(b.Y2)*h+my))
	return &ingestv1.Rectangle{X: int32(x1), Y: int32(y1), Width: int32(max(x2-x1, 1)), Height: int32(max(y2-y1, 1))}
}

// look takes pictures from a frame whose lease it takes over, or gives back at once. events are those of the frame, on
// their way to the disk: committed tells when they are there, with their numbers.
func (s *shots) look(ctx context.Context, n ingestclient.Frame, f *store.Frame, starts map[int64]*following, events []store.Event, committed <-chan struct{}) {
	wanted := s.p.cfg.Store.Pressure() < store.ShedSnapshots
	var picks []pick
	if wanted {
		picks = s.candidates(f, n.GetWidth(), n.GetHeight(), starts)
	}
	var shown []pictured
	var snap *snapshot // to be taken
	if wanted && len(events) > 0 {
		shown, snap = s.snapshots(f, starts, events, len(picks) > 0)
	}
	if len(picks) == 0 && snap == nil {
		n.Release()
	} else {
		s.mu.Lock()
		s.frames++
		s.mu.Unlock()
		s.enqueue(func(ctx context.Context) {
			if snap != nil {
				s.takeSnapshot(ctx, n, *snap)
			}
			for _, p := range picks {
				s.take(ctx, n, p)
			}
			n.Release()
			s.mu.Lock()
			s.frames--
			s.mu.Unlock()
		})
	}
	for _, p := range shown {
		s.events.Go(func() { s.attach(context.WithoutCancel(ctx), p, committed) })
	}
}

// snapshots pairs the events of a frame with pictures that show what they tell of, and returns the one that has to be taken
// for it; nil: none.
func (s *shots) snapshots(f *store.Frame, tracks map[int64]*following, events []store.Event, leased bool) (shown []pictured, take *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last.file
	for i := range events {
		e := &events[i]
		snap := s.snapshotLocked(f, e.Track, leased)
		if snap.file == "" {
			continue
		}
		if e.Track.Local != 0 {
			s.shown[e.Track] = snap
		}
		at := slices.IndexFunc(shown, func(p pictured) bool { return p.file == snap.file })
		if at < 0 {
			at, shown = len(shown), append(shown, pictured{snapshot: snap})
		}
		shown[at].events = append(shown[at].events, e)
	}
	for id := range s.shown { // an event of a track that has ended was the last
		if id.Sequence != f.Sequence || tracks[id.Local] == nil {
			delete(s.shown, id)
		}
	}
	if fresh := s.last; fresh.file != last {
		take = &fresh
	}
	return shown, take
}

// snapshotLocked is the picture for an event of a frame about a track, or about none. The frame's own, or one just before, if
// the track is in it, otherwise the last that showed the track: who is gone is not in the frame by which that is known.
func (s *shots) snapshotLocked(f *store.Frame, track store.TrackID, leased bool) snapshot {
	sameDay := func(old *snapshot) bool {
		return s.p.cfg.Store.MediaDir(old.at) == s.p.cfg.Store.MediaDir(f.CaptureTime)
	}
	is := func(o store.Object) bool { return o.Local == track.Local }
	here := track.Local == 0 || (track.Sequence == f.Sequence && slices.ContainsFunc(f.Objects, is))
	old := &s.last
	if here && old.file != "" && sameDay(old) && f.CaptureTime.Sub(old.at).Abs() < snapshotInterval && (track.Local == 0 || slices.Contains(old.tracks, track)) {
		return *old
	}
	if !here || (s.frames > maxShotFrames && !leased) { // an event may have one frame more
		if before, ok := s.shown[track]; ok && sameDay(&before) {
			return before
		}
		return snapshot{}
	}
	s.last = snapshot{
		at: f.CaptureTime, file: fmt.Sprintf("%s/event-%d-%d.jpg", s.camera, f.Sequence, f.CaptureTime.UnixMilli()), ok: make(chan bool, 1),
	}
	for i := range f.Objects {
		s.last.tracks = append(s.last.tracks, store.TrackID{Sequence: f.Sequence, Local: f.Objects[i].Local})
	}
	return s.last
}

func (s *shots) takeSnapshot(ctx context.Context, n ingestclient.Frame, snap snapshot) {
	jpeg, err := s.picture(ctx, &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: n.GetLeaseId()}, MaxWidth: snapshotWidth})
	if err == nil {
		err = s.p.cfg.Store.WriteMedia(snap.at, snap.file, jpeg.GetJpeg())
	}
	if err != nil {
		s.missed(ctx, "snapshot", err)
	}
	snap.ok <- err == nil
}

// attach names a snapshot in the rows of its events, when both are on disk.
func (s *shots) attach(ctx context.Context, p pictured, committed <-chan struct{}) {
	there := <-p.ok
	p.ok <- there // for the next who shares it
	if !there {
		return
	}
	<-committed
	var b store.Batch
	for _, e := range p.events {
		if e.Seq == 0 { // it could not be kept
			continue
		}
		b.Media = append(b.Media, store.Media{
			Event: e.Seq, Camera: e.Camera, Time: e.Time, Kind: store.Snapshot, File: p.file, Start: p.at, End: p.at,
		})
	}
	s.append(ctx, b)
}

// take takes the picture of a track and keeps it when it is the best.
func (s *shots) take(ctx context.Context, n ingestclient.Frame, p pick) {
	pic, err := s.picture(ctx, &ingestv1.GetPicture{Source: &ingestv1.GetPicture_LeaseId{LeaseId: n.GetLeaseId()}, Crop: p.crop, MaxWidth: shotWidth})
	if err != nil {
		s.missed(ctx, "picture of a track", err)
		return
	}
	quality := p.rough * (pic.GetSharpness() + 1) / (pic.GetSharpness() + sharpEnough)
	s.mu.Lock()
	t := s.tracks[p.id]
	better := t != nil && quality > t.quality
	if better {
		t.quality, t.jpeg = quality, pic.GetJpeg()
	}
	now := time.Unix(0, n.GetCaptureTimeNs())
	write := better && (t.file == "" || now.Sub(t.written) >= rewriteAfter)
	s.mu.Unlock()
	if write {
		s.write(ctx, p.id, p.start, now)
	}
}

// write puts the best picture of a track on disk.
func (s *shots) write(ctx context.Context, id store.TrackID, start, now time.Time) {
	s.mu.Lock()
	t := s.tracks[id]
	if t == nil || t.jpeg == nil {
		s.mu.Unlock()
		return
	}
	jpeg := t.jpeg
	s.mu.Unlock()
	file := fmt.Sprintf("%s/track-%s.jpg", s.camera, id)
	if err := s.p.cfg.Store.WriteMedia(start, file, jpeg); err != nil {
		s.missed(ctx, "picture of a track", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.file, t.written, t.jpeg = file, now, nil
}

// file is the written picture of a track; empty: there is none (yet).
func (s *shots) file(id store.TrackID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tracks[id]; t != nil {
		return t.file
	}
	return ""
}

// finish appends the last row of tracks that have pictures, when the best one is on disk, and returns the others. The
// rows of one call are appended in their order; reach, when it is not nil, is closed afterwards.
func (s *shots) finish(tracks []store.Track, reached chan<- struct{}) (others []store.Track) {
	var mine []store.Track
	s.mu.Lock()
	for i := range tracks {
		if s.tracks[tracks[i].ID] != nil {
			mine = append(mine, tracks[i])
		} else {
			others = append(others, tracks[i])
		}
	}
	s.mu.Unlock()
	if len(mine) == 0 && reached == nil {
		return others
	}
	s.enqueue(func(ctx context.Context) {
		for i := range mine {
			t := &mine[i]
			s.write(ctx, t.ID, t.Start, t.End)
			t.Picture = s.file(t.ID)
			s.mu.Lock()
			delete(s.tracks, t.ID)
			s.mu.Unlock()
		}
		s.append(ctx, store.Batch{Tracks: mine})
		if reached != nil {
			close(reached)
		}
	})
	return others
}

func (s *shots) append(ctx context.Context, b store.Batch) {
	if len(b.Tracks)+len(b.Media) == 0 {
		return
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if _, err := s.p.cfg.Store.Append(wait, b); err != nil && !errors.Is(err, store.ErrClosed) {
		s.logger.Error("pictures could not be noted", slog.Int("tracks", len(b.Tracks)), slog.Int("events", len(b.Media)), slog.Any("err", err))
	}
}

func (s *shots) picture(ctx context.Context, req *ingestv1.GetPicture) (*ingestv1.Picture, error) {
	ctx, cancel := context.WithTimeout(ctx, shotTimeout)
	defer cancel()
	return s.p.ingest.client.Picture(ctx, req)
}

// missed counts a picture that could not be had. The lane goes on without it.
func (s *shots) missed(ctx context.Context, what string, err error) {
	s.p.metrics.pictures.WithLabelValues(s.camera).Inc()
	if ctx.Err() == nil {
		s.logger.Debug("a picture is missing", slog.String("what", what), slog.Any("err", err))
	}
}
