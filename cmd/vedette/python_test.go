package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pythonClient manages a camera and watches its tracks, with stubs made from our protos by another implementation.
const pythonClient = `
import sys
import grpc
from google.protobuf import field_mask_pb2
from vedette.v1 import analytics_pb2 as an, camera_pb2 as cam
address, token, source = sys.argv[1:4]
channel = grpc.insecure_channel(address)
auth = (('authorization', 'Bearer ' + token),)
def call(name, request, response, metadata=auth):
    return channel.unary_unary('/vedette.v1.CameraService/' + name, request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=response.FromString)(request, metadata=metadata, timeout=20)
def refused(code, reason, *args, **more):
    try:
        call(*args, **more)
    except grpc.RpcError as e:
        details = dict(e.trailing_metadata()).get('grpc-status-details-bin', b'')
        assert e.code() == code and reason in details and b'google.rpc.ErrorInfo' in details, (e, details)
        return
    raise SystemExit('not refused: %s' % (args,))
made = call('CreateCamera', cam.CreateCameraRequest(camera_id='py', camera=cam.Camera(
    display_name='Python', source=cam.Source(uri=source, username='u', password='c4nary'))), cam.Camera)
assert made.name == 'cameras/py' and made.source.password_set and made.source.password == '', made
changed = call('UpdateCamera', cam.UpdateCameraRequest(camera=cam.Camera(name='cameras/py', display_name='Snake', etag=made.etag),
    update_mask=field_mask_pb2.FieldMask(paths=['display_name'])), cam.Camera)
assert changed.display_name == 'Snake' and changed.source.uri == source and changed.etag != made.etag, changed
refused(grpc.StatusCode.ABORTED, b'ETAG_MISMATCH', 'UpdateCamera', cam.UpdateCameraRequest(camera=cam.Camera(name='cameras/py', etag=made.etag)), cam.Camera)
refused(grpc.StatusCode.ALREADY_EXISTS, b'ALREADY_EXISTS', 'CreateCamera', cam.CreateCameraRequest(camera_id='py', camera=cam.Camera(source=cam.Source(uri=source))), cam.Camera)
refused(grpc.StatusCode.INVALID_ARGUMENT, b'google.rpc.BadRequest', 'CreateCamera', cam.CreateCameraRequest(camera_id='P y', camera=cam.Camera()), cam.Camera)
refused(grpc.StatusCode.NOT_FOUND, b'NOT_FOUND', 'GetCamera', cam.GetCameraRequest(name='cameras/none'), cam.Camera)
refused(grpc.StatusCode.UNAUTHENTICATED, b'TOKEN_MISSING', 'ListCameras', cam.ListCamerasRequest(), cam.ListCamerasResponse, metadata=())
assert [c.name for c in call('ListCameras', cam.ListCamerasRequest(), cam.ListCamerasResponse).cameras] == ['cameras/py']
watch = channel.unary_stream('/vedette.v1.AnalyticsService/WatchAnalytics', request_serializer=lambda m: m.SerializeToString(),
    response_deserializer=an.WatchAnalyticsResponse.FromString)(an.WatchAnalyticsRequest(cameras=['cameras/py']), metadata=auth, timeout=60)
synced, frames, tracks, seq = False, 0, set(), 0
for m in watch:
    assert m.seq == seq + 1, (m.seq, seq)
    seq, kind = m.seq, m.WhichOneof('item')
    if kind == 'synced':
        synced = True
    elif kind == 'frame':
        assert synced and m.frame.camera == 'cameras/py', m
        frames += 1
    elif kind == 'track':
        assert m.track.track.camera == 'cameras/py' and getattr(m.track.track, 'class'), m
        tracks.add(m.track.track.name)
    if frames >= 20 and len(tracks) >= 3:
        break
watch.cancel()
call('DeleteCamera', cam.DeleteCameraRequest(name='cameras/py'), cam.DeleteCameraResponse)
refused(grpc.StatusCode.NOT_FOUND, b'NOT_FOUND', 'GetCamera', cam.GetCameraRequest(name='cameras/py'), cam.Camera)
print('ok')
`

func TestClientInAnotherLanguage(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skipf("python3-grpcio is not installed (make deps-test installs it): %v", err)
	}
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skipf("protobuf-compiler is not installed (make deps-test installs it): %v", err)
	}
	stubs, api := t.TempDir(), filepath.Join(root, "api")
	args := []string{"-I", api, "--python_out", stubs}
	for _, pattern := range []string{"vedette/v1/*.proto", "google/api/*.proto"} {
		files, err := filepath.Glob(filepath.Join(api, pattern))
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, files...)
	}
	if out, err := exec.CommandContext(t.Context(), protoc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := truthCamera(t)
	p := launch(t, t.TempDir(), "--onnxruntime", onnxruntime(t))
	p.until("the models", 60*time.Second, func() bool { return strings.Contains(p.output(), "models are loaded") })
	token, err := os.ReadFile(filepath.Join(p.data, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`(?m)^\s+gRPC\s+(\S+)`).FindStringSubmatch(p.output())
	if address == nil {
		t.Fatalf("no gRPC address in:\n%s", p.output())
	}
	client := exec.CommandContext(t.Context(), python, "-c", pythonClient, address[1], strings.TrimSpace(string(token)), c.URL())
	client.Env = append(os.Environ(), "PYTHONPATH="+stubs)
	// The name google is a package of the installed protobuf; ours must extend it, not hide it.
	if err := os.WriteFile(filepath.Join(stubs, "google", "__init__.py"), []byte("__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := client.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v\n%s", err, out)
	}
}
