package sidecar

import (
	"image"
	"sync"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/internal/av"
)

// stills keeps the JPEGs made of one camera's newest pictures, so that each is encoded once however many
// ask for it. Nothing is encoded that nobody asked for. The zero value is ready.
type stills struct {
	mu      sync.Mutex // guards everything below
	made    []*still   // oldest first
	encoded uint64
}

// maxStills bounds what is kept: a few sizes of the newest picture, a few crops of those analysed.
const maxStills = 8

// stillKey names a JPEG.
type stillKey struct {
	epoch          *ingest.Epoch
	number         uint64
	crop           image.Rectangle
	width, quality int
	// settings by which the masks were painted; 0: the pixels of a leased frame, as they are.
	settings uint64
}

// still is a JPEG made or being made.
type still struct {
	key  stillKey
	done chan struct{} // closed when the fields below are set
	of   ingest.Frame
	jpeg []byte
	size image.Point
	// sharpness of a crop; 0 of a whole frame.
	sharpness float64
	err       error
}

// get returns the JPEG of a key, which fill makes unless somebody else has, or is about to. Failures are not kept.
func (s *stills) get(key stillKey, fill func(*still)) *still {
	s.mu.Lock()
	for _, p := range s.made {
		if p.key == key {
			s.mu.Unlock()
			<-p.done
			return p
		}
	}
	p := &still{key: key, done: make(chan struct{})}
	s.made = append(s.made, p)
	if len(s.made) > maxStills {
		s.made[0] = nil
		s.made = s.made[1:]
	}
	s.mu.Unlock()
	defer close(p.done)
	fill(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.err != nil {
		s.dropLocked(p)
		return p
	}
	s.encoded++
	return p
}

func (s *stills) dropLocked(p *still) {
	for i, q := range s.made {
		if q == p {
			s.made = append(s.made[:i:i], s.made[i+1:]...)
			return
		}
	}
}

func (s *stills) encodedCount() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.encoded
}

// encode fills in the JPEG of a frame's pixels.
func (p *still) encode(f ingest.Frame, pixels []byte) error {
	p.of = f
	if !p.key.crop.Empty() {
		p.sharpness = sharpness(pixels, f.Size, p.key.crop)
	}
	p.jpeg, p.size, p.err = av.JPEG(av.Still{Pixels: pixels, Width: f.Size.X, Height: f.Size.Y, FullRange: f.FullRange, Matrix: av.Matrix(f.Matrix)}, p.key.crop, p.key.width, p.key.quality)
	if p.err != nil {
		p.err = &ingest.Error{Reason: ingest.ReasonInternal, Err: p.err}
	}
	return p.err
}
