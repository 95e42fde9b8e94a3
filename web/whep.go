package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	payloads "github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// whep gives live video by WebRTC: draft-ietf-wish-whep, without trickling. Media goes from the address the browser
// used for the page, and only from there. A data channel that the browser opens, of whatever name, is told of each
// picture as {"rtp": its RTP time, "capture": its capture time in milliseconds since 1970}, and of the end as
// {"type":"error", …}.

// whepSession is one viewer.
type whepSession struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// whepSessions are the viewers by their secret names.
type whepSessions struct {
	wg sync.WaitGroup

	mu     sync.Mutex // guards everything below
	closed bool
	byID   map[string]*whepSession
}

func (s *Server) whepOpen(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/sdp" {
		(&fault{Type: "error", Reason: "NOT_SDP", Message: "send an SDP offer as application/sdp", code: http.StatusUnsupportedMediaType}).write(w)
		return
	}
	offer, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 128<<10))
	if err != nil {
		(&fault{Type: "error", Reason: "OFFER_TOO_LARGE", Message: "the offer is larger than 128 KiB", code: http.StatusRequestEntityTooLarge}).write(w)
		return
	}
	ctx, cancel := context.WithCancel(s.pictures.ctx)
	answer, run, err := s.whepAnswer(ctx, r, string(offer)) //nolint:contextcheck // a session outlives the request that opened it
	if err != nil {
		cancel()
		faultOf(err).write(w)
		return
	}
	id, session := rand.Text(), &whepSession{cancel: cancel, done: make(chan struct{})}
	s.whep.mu.Lock()
	closed := s.whep.closed
	if !closed {
		s.whep.byID[id] = session
		s.whep.wg.Add(1)
	}
	s.whep.mu.Unlock()
	if closed {
		cancel()
		run()
		(&fault{Type: "error", Reason: "STOPPING", Message: "the appliance stops", code: http.StatusServiceUnavailable}).write(w)
		return
	}
	go func() {
		defer s.whep.wg.Done()
		defer close(session.done)
		defer func() {
			cancel()
			s.whep.mu.Lock()
			delete(s.whep.byID, id)
			s.whep.mu.Unlock()
		}()
		run()
	}()
	w.Header().Set("Content-Type", "application/sdp")
	w.Header().Set("Location", r.URL.Path+"/"+id)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

func (s *Server) whepClose(w http.ResponseWriter, r *http.Request) {
	s.whep.mu.Lock()
	session := s.whep.byID[r.PathValue("session")]
	s.whep.mu.Unlock()
	if session == nil {
		http.NotFound(w, r)
		return
	}
	session.cancel()
	<-session.done
	w.WriteHeader(http.StatusOK)
}

// rtpCodec is how a codec goes over RTP.
type rtpCodec struct {
	capability webrtc.RTPCodecCapability
	payloader  rtp.Payloader
}

func rtpCodecOf(d *vedettev1.VideoDescription) (rtpCodec, bool) {
	capability := webrtc.RTPCodecCapability{ClockRate: 90000, RTCPFeedback: []webrtc.RTCPFeedback{{Type: "nack"}}}
	switch d.GetCodec() {
	case "H264":
		profile := "42e01f"
		if sets := d.GetParameterSets(); len(sets) > 0 && len(sets[0]) >= 4 {
			profile = fmt.Sprintf("%02x%02x%02x", sets[0][1], sets[0][2], sets[0][3])
		}
		capability.MimeType = webrtc.MimeTypeH264
		capability.SDPFmtpLine = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=" + profile
		return rtpCodec{capability, &payloads.H264Payloader{}}, true
	case "H265":
		capability.MimeType = webrtc.MimeTypeH265
		return rtpCodec{capability, &payloads.H265Payloader{}}, true
	case "AV1":
		capability.MimeType = webrtc.MimeTypeAV1
		return rtpCodec{capability, &payloads.AV1Payloader{}}, true
	}
	return rtpCodec{}, false
}

// reorders reports whether pictures are shown in another order than they are decoded, which WebRTC does not know.
func reorders(codec string, keyframe [][]byte) bool {
	for _, u := range keyframe {
		switch {
		case codec == "H264" && len(u) > 0 && u[0]&0x1F == 7:
			var sps h264.SPS
			if sps.Unmarshal(u) != nil || sps.ProfileIdc == 66 || sps.PicOrderCntType == 2 {
				return false
			}
			return sps.VUI != nil && sps.VUI.BitstreamRestriction != nil && sps.VUI.BitstreamRestriction.MaxNumReorderFrames > 0
		case codec == "H265" && len(u) > 0 && u[0]>>1&0x3F == 33:
			var sps h265.SPS
			if sps.Unmarshal(u) != nil || len(sps.MaxNumReorderPics) == 0 {
				return false
			}
			return sps.MaxNumReorderPics[len(sps.MaxNumReorderPics)-1] > 0
		}
	}
	return false
}

func errReorders() *fault {
	return &fault{
		Type: "error", Reason: "B_FRAMES", Message: "the camera's stream has B-frames, which WebRTC does not carry: turn them off in the camera, or use fMP4",
		Fallback: "fmp4", code: http.StatusNotAcceptable,
	}
}

// whepAnswer prepares a session and answers an offer; run plays it to its end.
func (s *Server) whepAnswer(ctx context.Context, r *http.Request, offer string) (answer string, run func(), err error) {
	f, err := s.footage(ctx, r)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			f.end()
		}
	}()
	first, err := f.first()
	if err != nil {
		return "", nil, err
	}
	codec, ok := rtpCodecOf(f.stream)
	if !ok {
		return "", nil, unplayable(f.stream.GetCodec())
	}
	if reorders(f.stream.GetCodec(), first.GetUnits()) {
		return "", nil, errReorders()
	}
	if name := strings.TrimPrefix(codec.capability.MimeType, "video/"); !strings.Contains(strings.ToUpper(offer), strings.ToUpper(name)+"/90000") {
		return "", nil, &fault{
			Type: "error", Reason: "CODEC_NOT_OFFERED", Message: "the camera sends " + name + ", which this browser does not receive by WebRTC",
			Fallback: "fmp4", code: http.StatusNotAcceptable,
		}
	}
	peer, track, err := s.whepPeer(r, codec)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			_ = peer.GracefulClose()
		}
	}()
	play := &whepPlayer{footage: f, codec: codec, track: track, epoch: f.stream.GetStreamEpoch(), kind: f.stream.GetCodec()}
	peer.OnDataChannel(func(c *webrtc.DataChannel) {
		c.OnOpen(func() { play.channel.Store(c) })
	})
	connected, over := make(chan struct{}), make(chan struct{})
	var once [2]sync.Once
	peer.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			once[0].Do(func() { close(connected) })
		case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
			once[1].Do(func() { close(over) })
		default:
		}
	})
	bad := func(err error) error {
		return &fault{Type: "error", Reason: "OFFER_INVALID", Message: "the offer cannot be answered: " + err.Error(), code: http.StatusBadRequest}
	}
	if err := peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return "", nil, bad(err)
	}
	local, err := peer.CreateAnswer(nil)
	if err != nil {
		return "", nil, bad(err)
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(local); err != nil {
		return "", nil, bad(err)
	}
	select {
	case <-gathered:
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	return peer.LocalDescription().SDP, func() {
		defer peer.GracefulClose() //nolint:errcheck // nothing is lost with it
		defer f.end()
		late := time.NewTimer(30 * time.Second)
		defer late.Stop()
		select {
		case <-connected:
		case <-late.C:
			return
		case <-over:
			return
		case <-ctx.Done():
			return
		}
		ended := make(chan struct{})
		go func() { // a peer that goes ends the footage, and with it the playing
			select {
			case <-over:
				f.end()
			case <-ctx.Done():
			case <-ended:
			}
		}()
		play.run(first)
		close(ended)
	}, nil
}

// whepPeer makes a peer that sends one track.
func (s *Server) whepPeer(r *http.Request, codec rtpCodec) (*webrtc.PeerConnection, *webrtc.TrackLocalStaticRTP, error) {
	var media webrtc.MediaEngine
	if err := media.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: codec.capability, PayloadType: 96}, webrtc.RTPCodecTypeVideo); err != nil {
		return nil, nil, fmt.Errorf("prepare WebRTC: %w", err)
	}
	var interceptors interceptor.Registry
	if err := errors.Join(webrtc.ConfigureNack(&media, &interceptors), webrtc.ConfigureRTCPReports(&interceptors)); err != nil {
		return nil, nil, fmt.Errorf("prepare WebRTC: %w", err)
	}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	if here, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		settings.SetIPFilter(func(ip net.IP) bool { return ip.Equal(here.IP) })
	}
	peer, err := webrtc.NewAPI(webrtc.WithMediaEngine(&media), webrtc.WithInterceptorRegistry(&interceptors), webrtc.WithSettingEngine(settings)).
		NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, nil, fmt.Errorf("prepare WebRTC: %w", err)
	}
	track, err := webrtc.NewTrackLocalStaticRTP(codec.capability, "video", "vedette")
	if err == nil {
		_, err = peer.AddTrack(track)
	}
	if err != nil {
		_ = peer.GracefulClose()
		return nil, nil, fmt.Errorf("prepare WebRTC: %w", err)
	}
	return peer, track, nil
}

// whepPlayer sends pictures as RTP.
type whepPlayer struct {
	footage *footage
	codec   rtpCodec
	track   *webrtc.TrackLocalStaticRTP
	channel atomic.Pointer[webrtc.DataChannel]

	kind, epoch string
	begun       bool
	sequence    uint16
	rtp         uint32 // time of the last picture
	ticks       int64  // its time in the stream
	step        int64  // between the last two
}

const (
	maxPayload = 1188 // fits 1200 with the RTP header, as WebRTC wants
	clockRate  = 90000
)

func (p *whepPlayer) run(first *vedettev1.VideoUnit) {
	u, err := first, error(nil)
	for err == nil {
		if err = p.send(p.footage.stream, u); err == nil {
			u, err = p.footage.next()
		}
	}
	if c := p.channel.Load(); c != nil && status.Code(err) != codes.Canceled { // else the viewer has gone
		text, _ := json.Marshal(faultOf(err))
		sendLast(c, string(text))
	}
}

// parting is how long the last message may take to arrive: closing a connection throws away what is under way.
const parting = time.Second

// sendLast sends a message and waits until the other side has it.
func sendLast(c *webrtc.DataChannel, text string) {
	arrived := make(chan struct{}, 1)
	c.OnBufferedAmountLow(func() {
		select {
		case arrived <- struct{}{}:
		default:
		}
	})
	if c.SendText(text) != nil {
		return
	}
	t := time.NewTimer(parting)
	defer t.Stop()
	for c.BufferedAmount() > 0 {
		select {
		case <-arrived:
		case <-t.C:
			return
		}
	}
}

// send sends one picture.
func (p *whepPlayer) send(d *vedettev1.VideoDescription, u *vedettev1.VideoUnit) error {
	if d.GetCodec() != p.kind {
		return &fault{Type: "error", Reason: "CODEC_CHANGED", Message: "the camera sends another codec now: connect again", code: http.StatusConflict}
	}
	capture := u.GetCaptureTime().AsTime()
	step := u.GetRtpTicks() - p.ticks
	switch {
	case !p.begun || d.GetStreamEpoch() != p.epoch || u.GetDiscontinuity():
		step = max(p.step, clockRate/25)
	case step <= 0:
		return errReorders()
	case step > 10*clockRate:
		step = p.step
	default:
		p.step = step
	}
	// Pictures from before the viewer came are shown at once.
	if time.Since(capture) > time.Second {
		step = min(step, clockRate/200)
	}
	p.begun, p.epoch, p.ticks = true, d.GetStreamEpoch(), u.GetRtpTicks()
	p.rtp += uint32(step)
	if c := p.channel.Load(); c != nil {
		text, _ := json.Marshal(map[string]any{"rtp": p.rtp, "capture": float64(capture.UnixNano()) / 1e6})
		_ = c.SendText(string(text))
	}
	pieces := p.codec.payloader.Payload(maxPayload, annexB(d.GetCodec(), u.GetUnits()))
	for i, b := range pieces {
		p.sequence++
		packet := &rtp.Packet{
			Header:  rtp.Header{Version: 2, Marker: i == len(pieces)-1, SequenceNumber: p.sequence, Timestamp: p.rtp},
			Payload: b,
		}
		if err := p.track.WriteRTP(packet); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
	}
	return nil
}

// annexB joins units as payloaders want them.
func annexB(codec string, units [][]byte) []byte {
	var b []byte
	for _, u := range units {
		if codec != "AV1" {
			b = append(b, 0, 0, 0, 1)
		}
		b = append(b, u...)
	}
	return b
}
