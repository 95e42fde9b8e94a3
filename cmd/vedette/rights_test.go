package main_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/webrtc/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/internal/rtsptest"
)

// watcher is a client that keeps every kind of stream open.
type watcher struct {
	t      *testing.T
	p      *process
	grpc   *grpc.ClientConn // by TCP: what it may do is what its token says
	secret string
}

// open opens every kind of stream and waits until each has brought something. What is returned is closed with its stream.
func (w *watcher) open() map[string]<-chan struct{} {
	w.t.Helper()
	streams := map[string]<-chan struct{}{}
	for name, path := range map[string]string{
		"events of the page": "/live", "pictures": "/live/pictures?camera=door", "MJPEG": "/live/door/mjpeg", "MP4": "/live/door/video.mp4",
		"a watch over JSON": "/v1/cameras:watch",
	} {
		streams[name] = w.http(name, path)
	}
	streams["fMP4"], streams["WebRTC"] = w.socket(), w.webrtc()
	ctx := metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+w.secret)
	cameras := vedettev1.NewCameraServiceClient(w.grpc)
	camera, err := cameras.WatchCameras(ctx, &vedettev1.WatchCamerasRequest{})
	streams["WatchCameras"] = received(w.t, camera, err)
	video, err := cameras.WatchVideo(ctx, &vedettev1.WatchVideoRequest{Name: "cameras/door"})
	streams["WatchVideo"] = received(w.t, video, err)
	analytics, err := vedettev1.NewAnalyticsServiceClient(w.grpc).WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{})
	streams["WatchAnalytics"] = received(w.t, analytics, err)
	return streams
}

// received follows a stream of gRPC whose first message has come.
func received[M any](t *testing.T, s grpc.ServerStreamingClient[M], err error) <-chan struct{} {
	t.Helper()
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for err == nil {
			_, err = s.Recv()
		}
	}()
	return ended
}

// http follows an answer whose first byte has come.
func (w *watcher) http(name, path string) <-chan struct{} {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.p.http()+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %s: %v", name, resp.Status, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	return ended
}

func (w *watcher) socket() <-chan struct{} {
	w.t.Helper()
	c, _, err := websocket.Dial(w.t.Context(), "http://"+w.p.http()+"/live/door/fmp4", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + w.secret}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	if _, _, err := c.Read(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = c.CloseNow() }()
		for err := error(nil); err == nil; {
			_, _, err = c.Read(w.t.Context())
		}
	}()
	return ended
}

func (w *watcher) webrtc() <-chan struct{} {
	w.t.Helper()
	var settings webrtc.SettingEngine
	settings.SetIncludeLoopbackCandidate(true)
	var media webrtc.MediaEngine
	codec := webrtc.RTPCodecParameters{RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264, ClockRate: 90000}, PayloadType: 102}
	if err := media.RegisterCodec(codec, webrtc.RTPCodecTypeVideo); err != nil {
		w.t.Fatal(err)
	}
	peer, err := webrtc.NewAPI(webrtc.WithMediaEngine(&media), webrtc.WithSettingEngine(settings)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = peer.GracefulClose() })
	playing, ended := make(chan struct{}), make(chan struct{})
	peer.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		defer close(ended)
		_, _, err := track.ReadRTP()
		close(playing)
		for err == nil {
			_, _, err = track.ReadRTP()
		}
	})
	if _, err := peer.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
		w.t.Fatal(err)
	}
	offer, err := peer.CreateOffer(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(offer); err != nil {
		w.t.Fatal(err)
	}
	<-gathered
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.p.http()+"/live/door/whep", strings.NewReader(peer.LocalDescription().SDP))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.secret)
	req.Header.Set("Content-Type", "application/sdp")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		w.t.Fatalf("WHEP: %s: %s: %v", resp.Status, answer, err)
	}
	if err := peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)}); err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-playing:
	case <-time.After(time.Minute):
		w.t.Fatal("no video came by WebRTC")
	}
	return ended
}

// TestTheEndOfARightEndsEveryKindOfStream revokes a token, and takes a camera from a user, while everything there is to
// watch is being watched.
func TestTheEndOfARightEndsEveryKindOfStream(t *testing.T) {
	clip := rtsptest.Render(t, rtsptest.ClipConfig{Width: 128, Height: 96, Frames: 50, GOP: 10})
	p := launch(t, t.TempDir(), "--onnxruntime", "/nowhere/libonnxruntime.so") // watching needs no model
	for _, name := range []string{"door", "yard"} {
		p.cli("camera", "add", name, rtsptest.Start(t, rtsptest.Config{Clip: clip}).Address())
	}
	dial := func(address string) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	m := regexp.MustCompile(`gRPC +(\S+)`).FindStringSubmatch(p.output())
	if m == nil {
		t.Fatalf("no address of gRPC in:\n%s", p.output())
	}
	admin, outside := dial("unix:"+appliance.LocalSocket(p.data)), dial(m[1])
	tokens, users := vedettev1.NewTokenServiceClient(admin), vedettev1.NewUserServiceClient(admin)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	made, err := tokens.CreateToken(ctx, &vedettev1.CreateTokenRequest{Token: &vedettev1.Token{User: "wall", Role: "viewer"}})
	if err != nil {
		t.Fatal(err)
	}
	const password = "correct horse battery"
	anna := &vedettev1.User{Name: "users/anna", Role: "viewer", Cameras: []string{"cameras/door", "cameras/yard"}, Password: password}
	if _, err := users.CreateUser(ctx, &vedettev1.CreateUserRequest{UserId: "anna", User: anna}); err != nil {
		t.Fatal(err)
	}
	in, err := vedettev1.NewUserServiceClient(outside).LogIn(ctx, &vedettev1.LogInRequest{User: "anna", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, secret string
		end          func() error
	}{
		{"a token is revoked", made.GetSecret(), func() error {
			_, err := tokens.RevokeToken(ctx, &vedettev1.RevokeTokenRequest{Name: made.GetToken().GetName()})
			return err
		}},
		{"a camera is taken from a user", in.GetSecret(), func() error {
			_, err := users.UpdateUser(ctx, &vedettev1.UpdateUserRequest{User: &vedettev1.User{Name: "users/anna", Cameras: []string{"cameras/yard"}}})
			return err
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			p.until("a picture of the camera", time.Minute, func() bool {
				_, err := p.text("/v1/cameras/door/snapshot.jpg")
				return err == nil
			})
			streams := (&watcher{t: t, p: p, grpc: outside, secret: c.secret}).open()
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
			late := time.NewTimer(30 * time.Second)
			defer late.Stop()
			for name, ended := range streams {
				select {
				case <-ended:
				case <-late.C:
					late.Reset(0)
					t.Errorf("%s: %s goes on", c.what, name)
				}
			}
		})
	}
}
