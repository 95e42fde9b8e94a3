package main_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/appliance/demo/scene"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/eval"
)

// gstreamer serves a pipeline by GStreamer's RTSP server and returns its address.
func gstreamer(t *testing.T, pipeline string) string {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "testdata/rtsp_server.py", pipeline)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skipf("GStreamer's RTSP server cannot be started: %v", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err != nil {
		_ = cmd.Wait()
		t.Skipf("GStreamer's RTSP server is not installed (make deps-test installs it): %s", said.String())
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("rtsp://127.0.0.1:%d/stream", port)
}

// frameDetection is a detection with the number of its frame within its stream epoch.
type frameDetection struct {
	detection
	Frame string
}

func (p *process) frameDetections(camera, sequence string) []frameDetection {
	var all []frameDetection
	for token := ""; ; {
		var r struct {
			Detections    []frameDetection
			NextPageToken string
		}
		q := url.Values{
			"filter": {fmt.Sprintf("camera = %q AND sequence = %s", camera, sequence)}, "page_size": {"10000"}, "order_by": {"capture_time"}, "page_token": {token},
		}
		if err := p.get("/v1/detections?"+q.Encode(), &r); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, r.Detections...)
		if token = r.NextPageToken; token == "" {
			return all
		}
	}
}

// rowsOf turns detections into the evaluator's rows; ids are given in the order tracks appear.
func rowsOf(dets []frameDetection, class string, width, height float64) []eval.Row {
	ids := map[string]int64{}
	var rows []eval.Row
	for _, d := range dets {
		if class != "" && d.Class != class {
			continue
		}
		n, err := strconv.Atoi(d.Frame)
		if err != nil {
			continue
		}
		if ids[d.Track] == 0 {
			ids[d.Track] = int64(len(ids) + 1)
		}
		rows = append(rows, eval.Row{
			Frame: n + 1, ID: ids[d.Track], Score: 1, Class: -1, Visibility: 1,
			Box: tracker.Box{X1: d.Box.XMin * width, Y1: d.Box.YMin * height, X2: d.Box.XMax * width, Y2: d.Box.YMax * height},
		})
	}
	return rows
}

func testData(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("VEDETTE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join(root, "../shared/data")
	}
	if _, err := os.Stat(filepath.Join(dir, "video/vtest.mp4")); err != nil {
		t.Skip("the test data are not there: set VEDETTE_TEST_DATA")
	}
	return absolute(t, dir)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	a, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nanoModels is the shipped repository with YOLOX-nano as its detector: another file, and the shapes of its tensors.
func nanoModels(t *testing.T, data string) string {
	t.Helper()
	models := t.TempDir()
	if err := os.CopyFS(models, os.DirFS(filepath.Join(root, "models"))); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(data, "models/yolox_nano.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(models, "detector/1/model.onnx"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, changes := range map[string][]string{
		"detector/config.pbtxt": {
			"max_batch_size: 8", "max_batch_size: 0", "dims: [ 3, 416, 416 ]", "dims: [ 3, 416, 416 ] reshape { shape: [ 1, 3, 416, 416 ] }",
			"dims: [ 3549, 11 ]", "dims: [ 3549, 85 ] reshape { shape: [ 1, 3549, 85 ] }", "dynamic_batching { }", "", `"labels.txt"`, `"person, bicycle, car"`,
		},
		"boxes/config.pbtxt": {"3549, 11", "3549, 85"},
	} {
		path := filepath.Join(models, file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(changes); i += 2 {
			if !strings.Contains(string(b), changes[i]) {
				t.Fatalf("%s has no %q any more", file, changes[i])
			}
		}
		if err := os.WriteFile(path, []byte(strings.NewReplacer(changes...).Replace(string(b))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return models
}

// TestPedestriansByConfigurationAlone gives YOLOX-nano, a model nobody here made, to the shipped pipeline by its
// configuration alone, and a clip that an outside server sends by RTSP.
func TestPedestriansByConfigurationAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the clip, 80 s")
	}
	lib, data := onnxruntime(t), testData(t)
	gt, err := eval.ReadRowsFile(filepath.Join(data, "mot/vtest-480x360/gt.txt"))
	if err != nil {
		t.Fatal(err)
	}
	models, clip := nanoModels(t, data), filepath.Join(data, "video/vtest.mp4")
	address := gstreamer(t, "filesrc location="+clip+" ! qtdemux name=d d.video_0 ! queue ! h264parse ! rtph264pay name=pay0 pt=96 config-interval=-1")
	p := launch(t, t.TempDir(), "--onnxruntime", lib, "--models", models)
	p.until("the models", 60*time.Second, func() bool { return strings.Contains(p.output(), "models are loaded") })
	p.cli("camera", "add", "vtest", address, "--every-frame")
	// The server ends the stream with the clip; the sequence ends with the stream.
	p.until("the whole clip", 150*time.Second, func() bool { return strings.Contains(p.output(), `msg="sequence closed" camera=vtest sequence=1`) })
	result := rowsOf(p.frameDetections("vtest", "1"), "person", 480, 360)
	r, err := eval.Score("vtest", gt, result)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Figures()
	var c struct {
		Status struct{ Drops map[string]string }
	}
	if err := p.get("/v1/cameras/vtest", &c); err != nil {
		t.Error(err)
	}
	t.Logf("%+v, drops %v", f, c.Status.Drops)
	if f.MOTA < 75 {
		t.Errorf("MOTA %.1f, want at least 75", f.MOTA)
	}
}

// TestOutsidePublisherGivesTheSameTracks has ffmpeg publish the demonstration's clip by RTP to GStreamer's RTSP server.
func TestOutsidePublisherGivesTheSameTracks(t *testing.T) {
	lib := onnxruntime(t)
	probe, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := probe.LocalAddr().(*net.UDPAddr).Port
	_ = probe.Close()
	address := gstreamer(t, fmt.Sprintf("udpsrc address=127.0.0.1 port=%d buffer-size=4000000 caps=\"application/x-rtp,media=video,encoding-name=H264,clock-rate=90000,payload=96\" ! "+
		"rtpjitterbuffer ! rtph264depay ! h264parse config-interval=-1 ! rtph264pay name=pay0 pt=96", port))
	clip := absolute(t, filepath.Join(root, "appliance/demo/clip/street.h264"))
	ffmpeg := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-re", "-stream_loop", "-1", "-r", strconv.Itoa(scene.Rate), "-i", clip,
		"-c", "copy", "-bsf:v", "dump_extra", "-payload_type", "96", "-f", "rtp", fmt.Sprintf("rtp://127.0.0.1:%d?pkt_size=1316", port))
	if err := ffmpeg.Start(); err != nil {
		t.Skipf("ffmpeg: %v", err)
	}
	t.Cleanup(func() {
		_ = ffmpeg.Process.Kill()
		_ = ffmpeg.Wait()
	})
	p := launch(t, t.TempDir(), "--onnxruntime", lib)
	p.cli("camera", "add", "published", address, "--every-frame", "--pipeline", "demo")
	p.until("tracks", 60*time.Second, func() bool { return len(p.tracks(`camera = "published"`)) > 0 })
	sequence := ""
	p.until("20 seconds of detections", 90*time.Second, func() bool {
		d := p.detections("published", time.Now().Add(-time.Minute))
		if len(d) == 0 {
			return false
		}
		sequence = d[len(d)-1].Sequence
		return d[len(d)-1].CaptureTime.Sub(d[0].CaptureTime) > 20*time.Second && d[0].Sequence == sequence
	})
	result := rowsOf(p.frameDetections("published", sequence), "", scene.Width, scene.Height)
	truth, err := demo.Truth()
	if err != nil {
		t.Fatal(err)
	}
	first := clipOffset(truth, result)
	var gt []eval.Row
	last := result[len(result)-1].Frame
	for n := result[0].Frame; n <= last; n++ {
		k := int64(n) + first
		for _, o := range truth.Frame(k) {
			row := eval.Row{Frame: n, ID: truth.Identity(k, o) + 1, Score: 1, Class: -1, Visibility: o.Visibility, Box: truthBox(o)}
			if !o.Scored {
				row.Score, row.Class = 0, 8
			}
			gt = append(gt, row)
		}
	}
	r, err := eval.Score("published", gt, result)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Figures()
	t.Logf("frames %d to %d, %d into the clip: %+v", result[0].Frame, last, first, f)
	if f.MOTA < 75 {
		t.Errorf("MOTA %.1f, want at least 75", f.MOTA)
	}
}

func truthBox(o scene.Object) tracker.Box {
	return tracker.Box{X1: o.Full.X0, Y1: o.Full.Y0, X2: o.Full.X1, Y2: o.Full.Y1}
}

// clipOffset finds which frame of the clip frame 0 of the stream was: the one with which most boxes agree.
func clipOffset(truth *demo.GroundTruth, rows []eval.Row) int64 {
	best, agreed := int64(0), -1
	for offset := range int64(scene.Frames) {
		n := 0
		for i := 0; i < len(rows); i += 7 {
			for _, o := range truth.Frame(int64(rows[i].Frame) + offset) {
				if o.Scored && eval.IoU(truthBox(o), rows[i].Box) > 0.7 {
					n++
				}
			}
		}
		if n > agreed {
			best, agreed = offset, n
		}
	}
	return best
}
