package decode

import (
	"errors"
	"sync"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
)

// latest keeps the newest picture for whoever asks.
type latest struct {
	mu      sync.Mutex // guards everything below
	frame   ingest.Frame
	picture *av.Picture
	closed  bool
}

// put takes the picture, which is empty afterwards.
func (l *latest) put(f ingest.Frame, p *av.Picture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.picture == nil { // the first, or the one before is being looked at
		l.picture = &av.Picture{}
	}
	if l.picture.Take(p) != nil {
		return
	}
	l.frame = f
}

// close frees the picture for good.
func (l *latest) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.picture != nil {
		l.picture.Close()
		l.picture = nil
	}
}

// ErrNoPicture says that nothing has been decoded yet.
var ErrNoPicture = errors.New("no picture has been decoded yet")

// LatestFrame tells which picture Latest would copy.
func (d *Decoder) LatestFrame() (ingest.Frame, error) {
	d.asked.Store(int64(ingest.Now().Mono))
	d.latest.mu.Lock()
	defer d.latest.mu.Unlock()
	if d.latest.frame.Epoch == nil || d.latest.closed {
		return ingest.Frame{}, ErrNoPicture
	}
	return d.latest.frame, nil
}

// Latest copies the newest decoded picture as tight I420.
func (d *Decoder) Latest() (ingest.Frame, []byte, error) {
	d.latest.mu.Lock()
	p, f := d.latest.picture, d.latest.frame
	d.latest.picture = nil // ours alone while it is copied
	d.latest.mu.Unlock()
	if p == nil {
		return ingest.Frame{}, nil, ErrNoPicture
	}
	defer d.giveBack(f, p)
	// Room at the end for wide loads of whoever scales it.
	pixels := make([]byte, f.Size.X*f.Size.Y+2*((f.Size.X+1)/2)*((f.Size.Y+1)/2), f.Size.X*f.Size.Y*3/2+f.Size.X+f.Size.Y+128)
	if err := p.I420(pixels); err != nil {
		return ingest.Frame{}, nil, err
	}
	return f, pixels, nil
}

// giveBack returns a picture that was looked at, unless a newer one has come.
func (d *Decoder) giveBack(f ingest.Frame, p *av.Picture) {
	d.latest.mu.Lock()
	defer d.latest.mu.Unlock()
	if d.latest.picture != nil || d.latest.closed {
		p.Close()
		return
	}
	d.latest.picture, d.latest.frame = p, f
}
