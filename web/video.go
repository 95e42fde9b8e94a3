package web

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/internal/fmp4"
)

// Live video is what the API's WatchVideo gives, packed for browsers and never transcoded: the API decides who may see
// which camera, masked ones give none, and the appliance fetches each stream once. What a browser cannot have falls to
// MJPEG, with the reason. docs/live-video.md says how each is used.

// maxViewers bounds the streams of live video given at the same time.
const maxViewers = 128

// patience is how long the first picture of live video is waited for.
const patience = 5 * time.Second

// fault is why there is no live video, for programs and for people.
type fault struct {
	Type     string `json:"type"` // "error"
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Fallback string `json:"fallback,omitempty"` // "mjpeg" or "fmp4": what to show instead

	code int
}

func (f *fault) Error() string { return f.Message }

func (f *fault) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.code)
	_ = json.NewEncoder(w).Encode(f)
}

// faultOf makes a fault of what the API answered.
func faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	st := status.Convert(err)
	f = &fault{Type: "error", Reason: st.Code().String(), Message: st.Message(), code: httpCode(st.Code())}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			f.Reason = info.GetReason()
		}
	}
	if f.Reason == "MASKED" {
		f.Fallback = "mjpeg"
	}
	if errors.Is(err, context.DeadlineExceeded) || st.Code() == codes.DeadlineExceeded {
		f.Reason, f.Message, f.code = "NO_PICTURE", "the camera sends no picture now", http.StatusServiceUnavailable
	}
	return f
}

// unplayable says that no browser plays a codec.
func unplayable(codec string) *fault {
	return &fault{
		Type: "error", Reason: "CODEC_NOT_PLAYABLE", Message: "browsers do not play " + codec + " as video: MJPEG shows the camera's pictures",
		Fallback: "mjpeg", code: http.StatusUnsupportedMediaType,
	}
}

// footage is a camera's coded stream on its way to one viewer.
type footage struct {
	receive func() (*vedettev1.VideoDescription, *vedettev1.VideoUnit, error)
	end     func()
	stream  *vedettev1.VideoDescription // of the next unit
}

// footage asks the API for live video, within the life of ctx, as whoever sent r.
func (s *Server) footage(ctx context.Context, r *http.Request) (*footage, error) {
	stream := vedettev1.VideoStream_VIDEO_STREAM_UNSPECIFIED
	switch text := r.URL.Query().Get("stream"); text {
	case "":
	case "main":
		stream = vedettev1.VideoStream_VIDEO_STREAM_MAIN
	case "analysis":
		stream = vedettev1.VideoStream_VIDEO_STREAM_ANALYSIS
	default:
		return nil, &fault{Type: "error", Reason: "INVALID_ARGUMENT", Message: fmt.Sprintf("stream %q is neither main nor analysis", text), code: http.StatusBadRequest}
	}
	name := "cameras/" + r.PathValue("camera")
	ctx, cancel := context.WithCancel(authorised(ctx, r))
	if s.viewers.Add(1) > maxViewers {
		s.viewers.Add(-1)
		cancel()
		return nil, &fault{Type: "error", Reason: "TOO_MANY_VIEWERS", Message: fmt.Sprintf("%d streams are being watched, which is the most", maxViewers), code: http.StatusServiceUnavailable}
	}
	var ended atomic.Bool
	f := &footage{end: func() {
		if !ended.Swap(true) {
			cancel()
			s.viewers.Add(-1)
		}
	}}
	var err error
	if r.URL.Query().Get("unmasked") != "" {
		var c vedettev1.CameraService_WatchUnmaskedVideoClient
		c, err = s.cfg.Cameras.WatchUnmaskedVideo(ctx, &vedettev1.WatchUnmaskedVideoRequest{Name: name, Stream: stream})
		f.receive = func() (*vedettev1.VideoDescription, *vedettev1.VideoUnit, error) {
			m, err := c.Recv()
			return m.GetDescription(), m.GetUnit(), err
		}
	} else {
		var c vedettev1.CameraService_WatchVideoClient
		c, err = s.cfg.Cameras.WatchVideo(ctx, &vedettev1.WatchVideoRequest{Name: name, Stream: stream})
		f.receive = func() (*vedettev1.VideoDescription, *vedettev1.VideoUnit, error) {
			m, err := c.Recv()
			return m.GetDescription(), m.GetUnit(), err
		}
	}
	if err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

// first waits for the first picture, a keyframe, for as long as patience has.
func (f *footage) first() (*vedettev1.VideoUnit, error) {
	late := make(chan struct{})
	t := time.AfterFunc(patience, func() {
		defer close(late)
		f.end()
	})
	u, err := f.next()
	if !t.Stop() {
		<-late
		return nil, context.DeadlineExceeded
	}
	return u, err
}

// next returns the next picture; f.stream describes it.
func (f *footage) next() (*vedettev1.VideoUnit, error) {
	for {
		d, u, err := f.receive()
		switch {
		case err != nil:
			return nil, err
		case d != nil:
			f.stream = d
		case u != nil && f.stream != nil:
			return u, nil
		}
	}
}

// codecOf names a codec for MP4; 0: none.
func codecOf(name string) fmp4.Codec {
	return map[string]fmp4.Codec{"H264": fmp4.H264, "H265": fmp4.H265, "AV1": fmp4.AV1}[name]
}

func unitOf(u *vedettev1.VideoUnit) fmp4.Unit {
	return fmp4.Unit{Units: u.GetUnits(), Key: u.GetKeyframe(), Ticks: u.GetRtpTicks(), Capture: u.GetCaptureTime().AsTime(), Gap: u.GetDiscontinuity()}
}

// movie packs live video for one viewer, header by header and picture by picture.
type movie struct {
	mux   *fmp4.Muxer
	epoch string
	// header is called when the pictures that follow need a new one.
	header func(d *vedettev1.VideoDescription, mux *fmp4.Muxer) error
	// picture is called with each fragment and its presentation time.
	picture func(data []byte, at time.Duration, u *vedettev1.VideoUnit) error
}

func (m *movie) add(d *vedettev1.VideoDescription, u *vedettev1.VideoUnit) error {
	codec := codecOf(d.GetCodec())
	if codec == 0 {
		return unplayable(d.GetCodec())
	}
	unit := unitOf(u)
	if unit.Key && (m.mux == nil || !m.mux.Continues(codec, unit)) {
		mux, err := fmp4.NewMuxer(codec, unit)
		if err != nil {
			return &fault{Type: "error", Reason: "STREAM_DAMAGED", Message: err.Error(), Fallback: "mjpeg", code: http.StatusBadGateway}
		}
		if m.mux != nil {
			mux.Follow(m.mux)
		}
		m.mux = mux
		if err := m.header(d, mux); err != nil {
			return err
		}
	}
	if m.mux == nil {
		return nil // a keyframe comes
	}
	if d.GetStreamEpoch() != m.epoch {
		m.epoch, unit.Gap = d.GetStreamEpoch(), true
	}
	data, at, err := m.mux.Fragment(unit)
	if err != nil {
		return nil //nolint:nilerr // a damaged picture is left out; the next keyframe mends it
	}
	return m.picture(data, at, u)
}

// play packs what comes until it ends, and returns why it did.
func (m *movie) play(f *footage, first *vedettev1.VideoUnit) error {
	u, err := first, error(nil)
	for err == nil {
		if err = m.add(f.stream, u); err == nil {
			u, err = f.next()
		}
	}
	return err
}

// liveOffers says which kinds of live video there are of a camera, best first.
func (s *Server) liveOffers(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Offers  []string `json:"offers"`
		Reason  string   `json:"reason,omitempty"` // why whep and fmp4 are not among them
		Message string   `json:"message,omitempty"`
		Codec   string   `json:"codec,omitempty"`
		MIME    string   `json:"mime,omitempty"` // ask MediaSource.isTypeSupported before using fmp4
		Width   int32    `json:"width,omitempty"`
		Height  int32    `json:"height,omitempty"`
		Masked  bool     `json:"masked,omitempty"`
	}{Offers: []string{"mjpeg"}}
	err := func(ctx context.Context) error {
		f, err := s.footage(ctx, r)
		if err != nil {
			return err
		}
		defer f.end()
		u, err := f.first()
		if err != nil {
			return err
		}
		d := f.stream
		answer.Codec, answer.Width, answer.Height, answer.Masked = d.GetCodec(), d.GetWidth(), d.GetHeight(), d.GetMasked()
		codec := codecOf(d.GetCodec())
		if codec == 0 {
			return unplayable(d.GetCodec())
		}
		mux, err := fmp4.NewMuxer(codec, unitOf(u))
		if err != nil {
			return &fault{Type: "error", Reason: "STREAM_DAMAGED", Message: err.Error(), Fallback: "mjpeg"}
		}
		answer.MIME, answer.Offers = mux.MIME(), []string{"whep", "fmp4", "mjpeg"}
		if reorders(d.GetCodec(), u.GetUnits()) {
			answer.Offers = answer.Offers[1:]
		}
		return nil
	}(r.Context())
	if err != nil {
		f := faultOf(err)
		if f.Fallback != "mjpeg" {
			f.write(w)
			return
		}
		answer.Reason, answer.Message = f.Reason, f.Message
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// liveMP4 sends live video as one endless file, for players that are no browsers.
func (s *Server) liveMP4(w http.ResponseWriter, r *http.Request) {
	f, err := s.footage(r.Context(), r)
	if err != nil {
		faultOf(err).write(w)
		return
	}
	defer f.end()
	u, err := f.first()
	if err != nil {
		faultOf(err).write(w)
		return
	}
	rc := http.NewResponseController(w)
	begun := false
	m := &movie{
		header: func(_ *vedettev1.VideoDescription, mux *fmp4.Muxer) error {
			if begun {
				return fmp4.ErrFormatChanged // a file has one header
			}
			begun = true
			w.Header().Set("Content-Type", "video/mp4")
			w.Header().Set("Cache-Control", "no-store")
			_, err := w.Write(mux.Init())
			return err
		},
		picture: func(data []byte, _ time.Duration, _ *vedettev1.VideoUnit) error {
			if _, err := w.Write(data); err != nil {
				return err
			}
			return rc.Flush()
		},
	}
	if err := m.play(f, u); !begun {
		faultOf(err).write(w)
	}
}

// Limits of a WebSocket.
const (
	writeTimeout = 10 * time.Second // a browser that takes nothing for so long is gone
	pingInterval = 15 * time.Second
)

// liveFMP4 sends live video for a MediaSource over a WebSocket: a text message {"type":"stream", …} before each header;
// binary messages of 16 bytes, presentation time in seconds and capture time in milliseconds since 1970 (float64, big
// endian; both 0 for a header), then MP4; a text message {"type":"error", …} before the end.
func (s *Server) liveFMP4(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(s.pictures.ctx, cancel) //nolint:contextcheck // the streams of a server end with it
	defer stop()
	// What the caller may not have is refused as an ordinary answer, before there is a WebSocket.
	if _, err := s.cfg.Cameras.GetCamera(authorised(ctx, r), &vedettev1.GetCameraRequest{Name: "cameras/" + r.PathValue("camera")}); err != nil {
		writeStatus(w, err)
		return
	}
	// Another site's page is refused by its Origin.
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has answered
	}
	defer c.CloseNow() //nolint:errcheck // nothing is lost with it
	ctx = c.CloseRead(ctx)
	write := func(kind websocket.MessageType, b []byte) error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		return c.Write(ctx, kind, b)
	}
	err = s.stream(ctx, r, c, write)
	if ctx.Err() != nil {
		_ = c.Close(websocket.StatusGoingAway, "")
		return
	}
	f := faultOf(err)
	text, _ := json.Marshal(f)
	if write(websocket.MessageText, text) == nil {
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
}

// stream plays a camera into a WebSocket until it ends.
func (s *Server) stream(ctx context.Context, r *http.Request, c *websocket.Conn, write func(websocket.MessageType, []byte) error) error {
	f, err := s.footage(ctx, r)
	if err != nil {
		return err
	}
	defer f.end()
	pings := make(chan struct{})
	pinging, enough := context.WithCancel(ctx)
	go func() {
		defer close(pings)
		t := time.NewTicker(pingInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				late, cancel := context.WithTimeout(pinging, writeTimeout)
				err := c.Ping(late)
				cancel()
				if err != nil {
					f.end()
					return
				}
			case <-pinging.Done():
				return
			}
		}
	}()
	defer func() {
		enough()
		<-pings
	}()
	var message []byte
	binaryMessage := func(at, capture float64, data []byte) error {
		message = binary.BigEndian.AppendUint64(message[:0], math.Float64bits(at))
		message = binary.BigEndian.AppendUint64(message, math.Float64bits(capture))
		message = append(message, data...)
		return write(websocket.MessageBinary, message)
	}
	m := &movie{
		header: func(d *vedettev1.VideoDescription, mux *fmp4.Muxer) error {
			text, err := json.Marshal(map[string]any{
				"type": "stream", "mime": mux.MIME(), "codec": d.GetCodec(), "width": d.GetWidth(), "height": d.GetHeight(),
				"epoch": d.GetStreamEpoch(), "masked": d.GetMasked(),
			})
			if err != nil {
				return err
			}
			if err := write(websocket.MessageText, text); err != nil {
				return err
			}
			return binaryMessage(0, 0, mux.Init())
		},
		picture: func(data []byte, at time.Duration, u *vedettev1.VideoUnit) error {
			return binaryMessage(at.Seconds(), float64(u.GetCaptureTime().AsTime().UnixNano())/1e6, data)
		},
	}
	u, err := f.next() // a camera that is away may come
	if err != nil {
		return err
	}
	return m.play(f, u)
}
