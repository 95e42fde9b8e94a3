package web

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// picture is one JPEG as all viewers of a camera share it. Never changed after it is made.
type picture struct {
	header []byte // JSON: capture time in ms, size, frame number, stream epoch
	jpeg   []byte
	err    error
}

// pictures fetches the newest picture of each watched camera once, however many watch. A camera nobody watches is
// not asked.
type pictures struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // ends the fetching of all cameras, whose life is that of the server
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	feeds map[string]*feed
}

// feed is the newest picture of one camera for one authorisation: what one person may see is not
// shown to another.
type feed struct {
	viewers int
	idle    *time.Timer
	stop    context.CancelFunc

	mu   sync.Mutex
	last *picture
	next chan struct{} // closed when last changes
}

func newPictures(cfg Config) *pictures {
	ctx, cancel := context.WithCancel(context.Background())
	return &pictures{cfg: cfg, ctx: ctx, cancel: cancel, feeds: map[string]*feed{}}
}

func (p *pictures) close() {
	p.cancel()
	p.wg.Wait()
}

// join returns the feed of a camera, started if need be; it outlives the request that started it, for the
// viewers that come after. leave must be called once.
func (p *pictures) join(r *http.Request, camera string) (f *feed, leave func()) { //nolint:contextcheck // a feed belongs to all its viewers, not to the first
	md, _ := metadata.FromOutgoingContext(authorised(r.Context(), r))
	auth := strings.Join(md.Get("authorization"), "")
	key := camera + "\x00" + auth
	p.mu.Lock()
	defer p.mu.Unlock()
	f = p.feeds[key]
	if f == nil {
		ctx, stop := context.WithCancel(p.ctx)
		if auth != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", auth)
		}
		f = &feed{stop: stop, next: make(chan struct{})}
		p.feeds[key] = f
		p.wg.Go(func() { p.fetch(ctx, camera, f) })
	}
	f.viewers++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	return f, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		f.viewers--
		if f.viewers > 0 {
			return
		}
		// A page that is being reloaded comes back at once.
		f.idle = time.AfterFunc(p.cfg.PictureIdle, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if f.viewers == 0 && p.feeds[key] == f {
				delete(p.feeds, key)
				f.stop()
			}
		})
	}
}

func (p *pictures) fetch(ctx context.Context, camera string, f *feed) {
	period := time.Duration(float64(time.Second) / p.cfg.PictureRate)
	tick := time.NewTicker(period)
	defer tick.Stop()
	var last int64 = -1
	epoch := ""
	for {
		s, err := p.cfg.Cameras.GetSnapshot(ctx, &vedettev1.GetSnapshotRequest{Name: "cameras/" + camera})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.set(&picture{err: err})
			// Slower while there is nothing to see.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * period):
			}
		case s.GetFrame() != last || s.GetStreamEpoch() != epoch:
			last, epoch = s.GetFrame(), s.GetStreamEpoch()
			head, _ := json.Marshal(map[string]any{
				"capture": float64(s.GetCaptureTime().AsTime().UnixNano()) / 1e6,
				"width":   s.GetWidth(), "height": s.GetHeight(), "frame": last, "epoch": epoch,
			})
			f.set(&picture{header: head, jpeg: s.GetJpeg()})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *feed) set(p *picture) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = p
	close(f.next)
	f.next = make(chan struct{})
}

func (f *feed) newest() (*picture, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.next
}

// each calls show for every new picture, leaving out those that come while show is still busy with one:
// a slow viewer sees fewer pictures, never older ones, and slows nobody.
func (p *pictures) each(r *http.Request, camera string, show func(*picture) error) error {
	f, leave := p.join(r, camera)
	defer leave()
	var shown *picture
	for {
		last, next := f.newest()
		if last != nil && last != shown {
			shown = last
			if err := show(last); err != nil {
				return err
			}
			continue
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return r.Context().Err()
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// livePictures streams pictures with their capture times: for each, the length of the header and of the JPEG as
// big-endian uint32, then both. A camera without a picture sends a header {"error": ...} and no JPEG.
func (s *Server) livePictures(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	_ = s.pictures.each(r, r.PathValue("camera"), func(p *picture) error {
		head := p.header
		if p.err != nil {
			st := status.Convert(p.err)
			head, _ = json.Marshal(map[string]string{"error": st.Message(), "code": st.Code().String()})
		}
		var sizes [8]byte
		binary.BigEndian.PutUint32(sizes[:4], uint32(len(head)))
		binary.BigEndian.PutUint32(sizes[4:], uint32(len(p.jpeg)))
		for _, b := range [][]byte{sizes[:], head, p.jpeg} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("write a picture: %w", err)
			}
		}
		return rc.Flush()
	})
}

const boundary = "vedette-picture"

// liveMJPEG streams pictures as multipart/x-mixed-replace, which an <img> or any player shows.
func (s *Server) liveMJPEG(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	begun := false
	_ = s.pictures.each(r, r.PathValue("camera"), func(p *picture) error {
		if p.err != nil {
			if begun {
				return nil // the picture stands still until there is a new one
			}
			writeStatus(w, p.err)
			return p.err
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary="+boundary)
			w.Header().Set("Cache-Control", "no-store")
		}
		head := "--" + boundary + "\r\nContent-Type: image/jpeg\r\nContent-Length: " + strconv.Itoa(len(p.jpeg)) + "\r\n\r\n"
		for _, b := range [][]byte{[]byte(head), p.jpeg, []byte("\r\n")} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("write a picture: %w", err)
			}
		}
		return rc.Flush()
	})
}
