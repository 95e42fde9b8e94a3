package web

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// picture is one JPEG as all viewers of a camera share it. Never changed after it is made.
type picture struct {
	header []byte // JSON: camera, capture time in ms, size, frame number, stream epoch; or camera, error and its code
	jpeg   []byte
	err    error

	captured time.Time // zero with err
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

// look is how a camera is looked at: pictures at most so wide (in pixels, 0: as the camera sends them), so often.
type look struct {
	width  int
	period time.Duration
}

// feed is the newest picture of one camera, looked at in one way, for one authorisation: what one person may see is
// not shown to another.
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
func (p *pictures) join(r *http.Request, camera string, as look) (f *feed, leave func()) { //nolint:contextcheck // a feed belongs to all its viewers, not to the first
	md, _ := metadata.FromOutgoingContext(authorised(r.Context(), r))
	auth := strings.Join(md.Get("authorization"), "")
	key := fmt.Sprintf("%s\x00%d\x00%d\x00%s", camera, as.width, as.period, auth)
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
		p.wg.Go(func() { p.fetch(ctx, camera, as, f) })
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

func (p *pictures) fetch(ctx context.Context, camera string, as look, f *feed) {
	tick := time.NewTicker(as.period)
	defer tick.Stop()
	var last int64 = -1
	epoch := ""
	for {
		s, err := p.cfg.Cameras.GetSnapshot(ctx, &vedettev1.GetSnapshotRequest{Name: "cameras/" + camera, MaxWidth: int32(as.width)})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			st := status.Convert(err)
			head, _ := json.Marshal(map[string]string{"camera": camera, "error": st.Message(), "code": st.Code().String()})
			f.set(&picture{header: head, err: err})
			// Slower while there is nothing to see.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * as.period):
			}
		case s.GetFrame() != last || s.GetStreamEpoch() != epoch:
			last, epoch = s.GetFrame(), s.GetStreamEpoch()
			head, _ := json.Marshal(map[string]any{
				"camera": camera, "capture": float64(s.GetCaptureTime().AsTime().UnixNano()) / 1e6,
				"width": s.GetWidth(), "height": s.GetHeight(), "frame": last, "epoch": epoch,
			})
			f.set(&picture{header: head, jpeg: s.GetJpeg(), captured: s.GetCaptureTime().AsTime()})
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
func (p *pictures) each(ctx context.Context, r *http.Request, camera string, as look, show func(*picture) error) error {
	f, leave := p.join(r, camera, as)
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
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// maxPictures is how many cameras one stream of pictures carries.
const maxPictures = 128

// looked reads from a request how it wants to look: ?width= in pixels and ?rate= in pictures a second, at most the
// dashboard's own.
func (s *Server) looked(r *http.Request) (look, error) {
	as := look{period: time.Duration(float64(time.Second) / s.cfg.PictureRate)}
	if text := r.URL.Query().Get("width"); text != "" {
		n, err := strconv.ParseUint(text, 10, 14)
		if err != nil {
			return look{}, fmt.Errorf("width %q is no number of pixels up to 16383", text)
		}
		as.width = int(n)
	}
	if text := r.URL.Query().Get("rate"); text != "" {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate >= 0.1 && rate <= 1000) {
			return look{}, fmt.Errorf("rate %q is no number of pictures a second from 0.1 on", text)
		}
		as.period = max(as.period, time.Duration(float64(time.Second)/rate))
	}
	return as, nil
}

// livePictures streams the pictures of every ?camera= with their capture times over one connection, of which a
// browser has few: for each picture, the length of its header and of its JPEG as big-endian uint32, then both. A
// camera without a picture sends a header with an error, and no JPEG.
func (s *Server) livePictures(w http.ResponseWriter, r *http.Request) {
	as, err := s.looked(r)
	list := r.URL.Query()["camera"]
	if err == nil && (len(list) == 0 || len(list) > maxPictures) {
		err = fmt.Errorf("name 1 to %d cameras: ?camera=door&camera=gate", maxPictures)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	out := make(chan *picture) // each camera waits with its newest one until the viewer has taken the one before
	g, ctx := errgroup.WithContext(r.Context())
	slices.Sort(list)
	for _, camera := range slices.Compact(list) {
		g.Go(func() error {
			return s.pictures.each(ctx, r, camera, as, func(p *picture) error {
				select {
				case out <- p:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case p := <-out:
				var sizes [8]byte
				binary.BigEndian.PutUint32(sizes[:4], uint32(len(p.header)))
				binary.BigEndian.PutUint32(sizes[4:], uint32(len(p.jpeg)))
				for _, b := range [][]byte{sizes[:], p.header, p.jpeg} {
					if _, err := w.Write(b); err != nil {
						return fmt.Errorf("write a picture: %w", err)
					}
				}
				if err := rc.Flush(); err != nil {
					return fmt.Errorf("flush a picture: %w", err)
				}
			}
		}
	})
	_ = g.Wait() // the viewer left, or the dashboard ends
}

const boundary = "vedette-picture"

// liveMJPEG streams pictures as multipart/x-mixed-replace, which an <img> or any player shows; each part tells when its
// picture was captured, as a snapshot does.
func (s *Server) liveMJPEG(w http.ResponseWriter, r *http.Request) {
	as, err := s.looked(r)
	if err != nil {
		writeError(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
		return
	}
	rc := http.NewResponseController(w)
	begun := false
	_ = s.pictures.each(r.Context(), r, r.PathValue("camera"), as, func(p *picture) error {
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
		head := "--" + boundary + "\r\nContent-Type: image/jpeg\r\nContent-Length: " + strconv.Itoa(len(p.jpeg)) +
			"\r\nX-Vedette-Capture-Time: " + p.captured.UTC().Format(time.RFC3339Nano) + "\r\n\r\n"
		for _, b := range [][]byte{[]byte(head), p.jpeg, []byte("\r\n")} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("write a picture: %w", err)
			}
		}
		return rc.Flush()
	})
}
