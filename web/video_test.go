package web_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/webrtc/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/internal/rtsptest"
)

func (b *box) GetCamera(ctx context.Context, r *vedettev1.GetCameraRequest) (*vedettev1.Camera, error) {
	if r.GetName() == "cameras/window" {
		return nil, status.Error(codes.NotFound, "no camera window")
	}
	return &vedettev1.Camera{Name: r.GetName()}, b.admit(ctx)
}

// captured is when picture n of the box's clip was.
func captured(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)*40) }

// WatchVideo plays the box's clip, by camera: one with privacy masks, one with MJPEG, one with the clip.
func (b *box) WatchVideo(r *vedettev1.WatchVideoRequest, s grpc.ServerStreamingServer[vedettev1.WatchVideoResponse]) error {
	if err := b.admit(s.Context()); err != nil {
		return err
	}
	d := &vedettev1.VideoDescription{StreamEpoch: "e1", Codec: "H264", Width: 128, Height: 96}
	switch r.GetName() {
	case "cameras/masked":
		return masked()
	case "cameras/jpeg":
		d.Codec = "MJPEG"
	case "cameras/window":
		return status.Error(codes.NotFound, "no camera window")
	default:
		d.Codec, d.ParameterSets = strings.ToUpper(b.clip.Codec), b.clip.Sets
	}
	if err := s.Send(&vedettev1.WatchVideoResponse{Item: &vedettev1.WatchVideoResponse_Description{Description: d}}); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		u := b.clip.Units[n%len(b.clip.Units)]
		err := s.Send(&vedettev1.WatchVideoResponse{Item: &vedettev1.WatchVideoResponse_Unit{Unit: &vedettev1.VideoUnit{
			Units: b.clip.Delivered(u), Keyframe: u.Key, RtpTicks: int64(n) * 3600, CaptureTime: timestamppb.New(captured(n)), Number: int64(n),
		}}})
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-b.masking:
			return masked()
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func masked() error {
	st, err := status.New(codes.FailedPrecondition, "masks").WithDetails(&errdetails.ErrorInfo{Reason: "MASKED"})
	if err != nil {
		return err
	}
	return st.Err()
}

func filmed(t *testing.T, cfg rtsptest.ClipConfig) *box {
	t.Helper()
	cfg.Width, cfg.Height, cfg.Frames, cfg.GOP = 128, 96, 20, 10
	return &box{clip: rtsptest.Render(t, cfg)}
}

func TestLiveVideoOverAWebSocketCarriesCaptureTimes(t *testing.T) {
	for codec, mime := range map[string]string{"h264": "avc1.", "av1": "av01."} {
		t.Run(codec, func(t *testing.T) { liveOverAWebSocket(t, codec, mime) })
	}
}

func liveOverAWebSocket(t *testing.T, codec, mime string) {
	t.Helper()
	s := dashboard(t, filmed(t, rtsptest.ClipConfig{Codec: codec}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, s.URL+"/live/door/fmp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(1 << 20)
	var stream struct{ Type, MIME, Codec, Epoch string }
	if _, b, err := c.Read(ctx); err != nil || json.Unmarshal(b, &stream) != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if stream.Type != "stream" || !strings.HasPrefix(stream.MIME, `video/mp4; codecs="`+mime) || stream.Epoch != "e1" {
		t.Errorf("%+v", stream)
	}
	for n := range 30 {
		kind, b, err := c.Read(ctx)
		if err != nil || kind != websocket.MessageBinary || len(b) < 24 {
			t.Fatalf("message %d: %v of %d bytes: %v", n, kind, len(b), err)
		}
		at, capture := math.Float64frombits(binary.BigEndian.Uint64(b)), math.Float64frombits(binary.BigEndian.Uint64(b[8:]))
		box := string(b[20:24])
		if n == 0 {
			if at != 0 || capture != 0 || box != "ftyp" {
				t.Fatalf("the header: %v %v %q", at, capture, box)
			}
			continue
		}
		if want := float64(captured(n - 1).UnixMilli()); box != "prft" || capture != want || math.Abs(at-float64(n-1)*0.04) > 1e-6 {
			t.Fatalf("picture %d: at %v, captured %.0f (want %.0f), box %q", n-1, at, capture, want, box)
		}
	}
}

func TestLiveVideoSaysWhatToShowInstead(t *testing.T) {
	b := filmed(t, rtsptest.ClipConfig{BFrames: 2})
	s := dashboard(t, b)
	get := func(path string) (int, map[string]any) {
		t.Helper()
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var m map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return resp.StatusCode, m
	}
	for _, c := range []struct {
		camera, reason string
		code           int
		offers         string
	}{
		{"door", "", 200, "[fmp4 mjpeg]"}, // B-frames do not go over WebRTC
		{"masked", "MASKED", 200, "[mjpeg]"},
		{"jpeg", "CODEC_NOT_PLAYABLE", 200, "[mjpeg]"},
		{"window", "NotFound", 404, ""},
		{"door?stream=third", "INVALID_ARGUMENT", 400, ""},
	} {
		camera, query, _ := strings.Cut(c.camera, "?")
		code, m := get("/live/" + camera + "/offers?" + query)
		var offers []string
		list, _ := m["offers"].([]any)
		for _, o := range list {
			offers = append(offers, o.(string))
		}
		reason, _ := m["reason"].(string)
		if got := "[" + strings.Join(offers, " ") + "]"; code != c.code || reason != c.reason || (c.offers != "" && got != c.offers) {
			t.Errorf("%s: %d %v", c.camera, code, m)
		}
	}
	if code, m := get("/live/jpeg/video.mp4"); code != http.StatusUnsupportedMediaType || m["fallback"] != "mjpeg" {
		t.Errorf("a file of MJPEG: %d %v", code, m)
	}
	if code, _ := get("/live/window/fmp4"); code != http.StatusNotFound {
		t.Errorf("a WebSocket of no camera: %d", code)
	}
	// Over the WebSocket, which hides answers from pages, the reason is a message.
	c, _, err := websocket.Dial(t.Context(), s.URL+"/live/masked/fmp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if _, text, err := c.Read(t.Context()); err != nil || !strings.Contains(string(text), `"reason":"MASKED"`) || !strings.Contains(string(text), `"fallback":"mjpeg"`) {
		t.Errorf("%s, %v", text, err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("then: %v", err)
	}
	// Another site's page gets nothing.
	_, resp, err := websocket.Dial(t.Context(), s.URL+"/live/door/fmp4", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}})
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("from elsewhere: %v", err)
	}
}

func TestLiveVideoAsAFile(t *testing.T) {
	s := dashboard(t, filmed(t, rtsptest.ClipConfig{Codec: "h264"}))
	resp, err := http.Get(s.URL + "/live/door/video.mp4")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	head := make([]byte, 4096)
	if _, err := io.ReadFull(resp.Body, head); err != nil || resp.Header.Get("Content-Type") != "video/mp4" || !bytes.Contains(head, []byte("moov")) || !bytes.Contains(head, []byte("moof")) {
		t.Errorf("%s: %v", resp.Header.Get("Content-Type"), err)
	}
}

// viewer offers to receive video, as a browser does.
func viewer(t *testing.T, codec string) *webrtc.PeerConnection {
	t.Helper()
	var media webrtc.MediaEngine
	if err := media.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: webrtc.RTPCodecCapability{
		MimeType: codec, ClockRate: 90000,
	}, PayloadType: 102}, webrtc.RTPCodecTypeVideo); err != nil {
		t.Fatal(err)
	}
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	peer, err := webrtc.NewAPI(webrtc.WithMediaEngine(&media), webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.GracefulClose() })
	if _, err := peer.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
		t.Fatal(err)
	}
	return peer
}

// post offers the peer's session to a camera.
func post(t *testing.T, peer *webrtc.PeerConnection, url string) (*http.Response, string) {
	t.Helper()
	offer, err := peer.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	resp, err := http.Post(url, "application/sdp", strings.NewReader(peer.LocalDescription().SDP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestLiveVideoByWebRTC(t *testing.T) {
	for codec, mime := range map[string]string{"h264": webrtc.MimeTypeH264, "av1": webrtc.MimeTypeAV1} {
		t.Run(codec, func(t *testing.T) { liveByWebRTC(t, codec, mime) })
	}
}

func liveByWebRTC(t *testing.T, codec, mime string) {
	t.Helper()
	s := dashboard(t, filmed(t, rtsptest.ClipConfig{Codec: codec}))
	peer := viewer(t, mime)
	channel, err := peer.CreateDataChannel("captures", nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	captures := map[uint32]float64{}
	matched := make(chan struct{})
	var once sync.Once
	times := map[uint32]bool{}
	check := func() {
		n := 0
		for at := range times {
			if captures[at] >= float64(captured(0).UnixMilli()) {
				n++
			}
		}
		if n >= 10 {
			once.Do(func() { close(matched) })
		}
	}
	channel.OnMessage(func(m webrtc.DataChannelMessage) {
		var one struct {
			RTP     uint32
			Capture float64
		}
		if json.Unmarshal(m.Data, &one) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		captures[one.RTP] = one.Capture
		check()
	})
	peer.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			p, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			mu.Lock()
			if p.Marker {
				times[p.Timestamp] = true
				check()
			}
			mu.Unlock()
		}
	})
	resp, body := post(t, peer, s.URL+"/live/door/whep")
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Content-Type") != "application/sdp" {
		t.Fatalf("%d: %s", resp.StatusCode, body)
	}
	if err := peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: body}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-matched:
	case <-time.After(20 * time.Second):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d pictures and %d capture times came", len(times), len(captures))
	}
	for _, want := range []int{http.StatusOK, http.StatusNotFound} { // the second time it is gone
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.URL+resp.Header.Get("Location"), nil)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := http.DefaultClient.Do(req)
		if err != nil || gone.StatusCode != want {
			t.Errorf("DELETE: %v %v", gone, err)
		}
		_ = gone.Body.Close()
	}
}

func TestWebRTCThatEndsSaysWhy(t *testing.T) {
	b := filmed(t, rtsptest.ClipConfig{})
	b.masking = make(chan struct{})
	s := dashboard(t, b)
	for range 3 { // it is a matter of who is first
		peer := viewer(t, webrtc.MimeTypeH264)
		channel, err := peer.CreateDataChannel("captures", nil)
		if err != nil {
			t.Fatal(err)
		}
		came := make(chan string, 1000)
		channel.OnMessage(func(m webrtc.DataChannelMessage) { came <- string(m.Data) })
		resp, body := post(t, peer, s.URL+"/live/door/whep")
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%d: %s", resp.StatusCode, body)
		}
		if err := peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: body}); err != nil {
			t.Fatal(err)
		}
		last := ""
		for !strings.Contains(last, "MASKED") {
			select {
			case last = <-came:
				select {
				case b.masking <- struct{}{}:
				default:
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("the last message is %s", last)
			}
		}
		if !strings.Contains(last, `"type":"error"`) || !strings.Contains(last, `"fallback":"mjpeg"`) {
			t.Errorf("got %s", last)
		}
	}
}

func TestWebRTCThatCannotBeSaysWhy(t *testing.T) {
	plain, reordered := dashboard(t, filmed(t, rtsptest.ClipConfig{})), dashboard(t, filmed(t, rtsptest.ClipConfig{BFrames: 2}))
	for _, c := range []struct {
		name, codec, url string
		code             int
		says             string
	}{
		{"a browser without the codec", webrtc.MimeTypeVP8, plain.URL + "/live/door/whep", http.StatusNotAcceptable, `"fallback":"fmp4"`},
		{"B-frames", webrtc.MimeTypeH264, reordered.URL + "/live/door/whep", http.StatusNotAcceptable, "B_FRAMES"},
		{"MJPEG", webrtc.MimeTypeH264, plain.URL + "/live/jpeg/whep", http.StatusUnsupportedMediaType, `"fallback":"mjpeg"`},
		{"privacy masks", webrtc.MimeTypeH264, plain.URL + "/live/masked/whep", http.StatusBadRequest, "MASKED"},
		{"no such camera", webrtc.MimeTypeH264, plain.URL + "/live/window/whep", http.StatusNotFound, "NotFound"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if resp, body := post(t, viewer(t, c.codec), c.url); resp.StatusCode != c.code || !strings.Contains(body, c.says) {
				t.Errorf("%d: %s", resp.StatusCode, body)
			}
		})
	}
	for name, body := range map[string]string{"no SDP": "hello", "nothing": "", "an SDP of nothing": "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=H264/90000\r\n"} {
		resp, err := http.Post(plain.URL+"/live/door/whep", "application/sdp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	resp, err := http.Post(plain.URL+"/live/door/whep", "text/plain", strings.NewReader("x"))
	if err != nil || resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("no SDP by its own word: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if _, _, err := websocket.Dial(t.Context(), plain.URL+"/live/door/offers", nil); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a WebSocket where there is none: %v", err)
	}
}
