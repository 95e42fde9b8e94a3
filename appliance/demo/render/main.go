// Command render draws the demo scene: the clip that ships with Vedette, and
// pictures of other seeds to train and test its detector on.
//
//	go run ./appliance/demo/render -clip appliance/demo/clip
//	go run ./appliance/demo/render -seed 1000 -step 6 -count 150 -out frames.i420 -truth truth.csv
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vedette/vedette/appliance/demo"
	"github.com/vedette/vedette/appliance/demo/scene"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("render", flag.ContinueOnError)
	clip := fs.String("clip", "", "folder to write the clip of a seed and its truth to (needs ffmpeg with libx264)")
	quality := fs.Int("crf", 26, "libx264's quality of the clip, lower is better")
	seed := fs.Uint64("seed", demo.Seed, "seed of the scene")
	from := fs.Int("from", 0, "first frame")
	count := fs.Int("count", scene.Frames, "frames to draw")
	step := fs.Int("step", 1, "frames to go on after each")
	out := fs.String("out", "-", "file for the raw I420 frames, - for standard output")
	truth := fs.String("truth", "", "file for the ground truth, as rows of the MOT benchmark's form")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *clip != "" {
		return encode(*clip, *seed, *quality)
	}
	frames := os.Stdout
	if *out != "-" {
		var err error
		if frames, err = os.Create(*out); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(frames, 1<<20)
	rows, err := draw(w, *seed, *from, *count, *step)
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := frames.Close(); err != nil {
		return err
	}
	if *truth == "" {
		return nil
	}
	return os.WriteFile(*truth, rows, 0o644)
}

// draw writes frames to w and returns the truth about them.
func draw(w io.Writer, seed uint64, from, count, step int) ([]byte, error) {
	s := scene.New(seed)
	buf := make([]byte, scene.Width*scene.Height*3/2)
	var rows []byte
	for i := range count {
		n := (from + i*step) % scene.Frames
		rows = scene.AppendTruth(rows, n, s.Draw(n, buf))
		if _, err := w.Write(buf); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// encode writes street.h264 and truth.csv.gz: no B-frames, one thread so that
// the result does not depend on the machine's cores, a closed group of pictures
// every second, so that whoever connects waits no longer than that, parameter
// sets before each.
func encode(folder string, seed uint64, quality int) error {
	cmd := exec.CommandContext(context.Background(), "ffmpeg", "-v", "error", "-y",
		"-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", fmt.Sprintf("%dx%d", scene.Width, scene.Height),
		"-r", fmt.Sprint(scene.Rate), "-i", "-",
		"-c:v", "libx264", "-preset", "slower", "-threads", "1", "-bf", "0", "-crf", fmt.Sprint(quality),
		"-g", fmt.Sprint(scene.Rate), "-keyint_min", fmt.Sprint(scene.Rate), "-sc_threshold", "0", "-x264-params", "repeat-headers=1:aud=1",
		"-color_range", "tv", "-colorspace", "smpte170m", "-color_trc", "smpte170m", "-color_primaries", "smpte170m",
		"-fflags", "+bitexact", "-flags:v", "+bitexact",
		"-f", "h264", filepath.Join(folder, "street.h264"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ffmpeg (install it to render the clip): %w", err)
	}
	rows, drawErr := draw(in, seed, 0, scene.Frames, 1)
	if err := in.Close(); drawErr == nil {
		drawErr = err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ffmpeg: %w", err)
	}
	if drawErr != nil {
		return drawErr
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(rows); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "truth.csv.gz"), packed.Bytes(), 0o644)
}
