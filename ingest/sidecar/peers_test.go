package sidecar_test

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/ingest/camera"
	"github.com/vedette/vedette/ingest/sidecar"
)

// gstreamer serves a pipeline by GStreamer's RTSP server, encrypted where a file of a certificate is given, and returns the
// server's address and port.
func gstreamer(t *testing.T, pipeline string, certificate ...string) string {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{"../../cmd/vedette/testdata/rtsp_server.py", pipeline}, certificate...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("GStreamer's RTSP server cannot be started: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Skip("GStreamer's RTSP server is not installed (make deps-test installs it)")
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func TestGStreamersServerIsReadWithEveryCodecOverTCPAndUDP(t *testing.T) {
	const source = "videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! "
	for codec, pipeline := range map[ingestv1.Codec]string{
		ingestv1.Codec_CODEC_H264:  "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=12 ! rtph264pay name=pay0 pt=96",
		ingestv1.Codec_CODEC_H265:  "x265enc tune=zerolatency speed-preset=ultrafast key-int-max=12 ! rtph265pay name=pay0 pt=96",
		ingestv1.Codec_CODEC_MJPEG: "jpegenc ! rtpjpegpay name=pay0 pt=26",
	} {
		address := "rtsp://" + gstreamer(t, "( "+source+pipeline+" )") + "/stream"
		r := start(t, sidecar.Config{Deadlines: camera.Deadlines{Answer: 10 * time.Second}})
		r.client.WatchFrames(&ingestv1.WatchFrames{})
		for _, transport := range []ingestv1.Transport{ingestv1.Transport_TRANSPORT_TCP, ingestv1.Transport_TRANSPORT_UDP} {
			t.Run(codec.String()+" "+transport.String(), func(t *testing.T) {
				r.t = t
				name := transport.String()
				r.set(&ingestv1.Camera{Name: name, Address: address, Transport: transport})
				s := r.state(name, ingestv1.CameraState_CAMERA_STATE_STREAMING)
				if d := s.GetStream(); d.GetCodec() != codec || d.GetTransport() != transport || d.GetWidth() != 320 || d.GetHeight() != 240 {
					t.Errorf("stream: %v", d)
				}
				for whole := 0; whole < 20; {
					f := r.frame()
					f.Release()
					if f.GetCamera() == name && !f.GetTainted() {
						whole++
					}
				}
			})
		}
	}
}

// Its packets say 0×0, its description how large the pictures are.
func TestGStreamersJPEGsWiderThanPacketsCanSayAreRead(t *testing.T) {
	address := "rtsp://" + gstreamer(t, "( videotestsrc is-live=true ! video/x-raw,format=I420,width=2560,height=256,framerate=10/1 ! jpegenc ! rtpjpegpay name=pay0 pt=26 )") + "/stream"
	r := start(t, sidecar.Config{Deadlines: camera.Deadlines{Answer: 10 * time.Second}})
	r.set(&ingestv1.Camera{Name: "wide", Address: address})
	if d := r.state("wide", ingestv1.CameraState_CAMERA_STATE_STREAMING).GetStream(); d.GetWidth() != 2560 || d.GetHeight() != 256 {
		t.Errorf("stream: %v", d)
	}
}

func TestGStreamersServerIsReadBySRTPOverTCPAndUDP(t *testing.T) {
	cert, der := certificate(t)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	file := filepath.Join(t.TempDir(), "camera.pem")
	if err := os.WriteFile(file, append(bytes.Clone(authority), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), 0o600); err != nil {
		t.Fatal(err)
	}
	host := gstreamer(t, "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! "+
		"x264enc tune=zerolatency speed-preset=ultrafast key-int-max=12 ! rtph264pay name=pay0 pt=96 )", file)
	r := start(t, sidecar.Config{Deadlines: camera.Deadlines{Answer: 10 * time.Second}})
	r.client.WatchFrames(&ingestv1.WatchFrames{})
	for _, transport := range []ingestv1.Transport{ingestv1.Transport_TRANSPORT_TCP, ingestv1.Transport_TRANSPORT_UDP} {
		name := transport.String()
		r.set(&ingestv1.Camera{Name: name, Address: "rtsps://" + host + "/stream", Transport: transport, Tls: &ingestv1.Tls{CaPem: string(authority)}})
		if s := r.state(name, ingestv1.CameraState_CAMERA_STATE_STREAMING); s.GetStream().GetTransport() != transport {
			t.Errorf("stream: %v", s.GetStream())
		}
		for whole := 0; whole < 20; {
			f := r.frame()
			f.Release()
			if f.GetCamera() == name && !f.GetTainted() {
				whole++
			}
		}
	}
}
