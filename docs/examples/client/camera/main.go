// Command camera watches a camera by way of the server: it sends an address, or the name of a camera the appliance
// has, and gets the tracks of every analysed frame.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

func main() {
	url := flag.String("u", "127.0.0.1:8001", "gRPC `address` of the server")
	camera := flag.String("camera", "", "`name` of a camera the appliance has")
	address := flag.String("address", "", "rtsp:// `address` of any other, with user:password@ if it needs them")
	rate := flag.Float64("rate", 5, "frames a second to analyse")
	frames := flag.Int64("frames", 0, "frames after which to end; 0: with the camera, or Ctrl-C")
	picture := flag.String("picture", "", "JPEG `file` of the latest frame")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *camera, *address, *rate, *frames, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "camera:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, camera, address string, rate float64, frames int64, picture string) (err error) {
	client, err := v2client.New(url, v2client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	stream, err := client.Stream(ctx)
	if err != nil {
		return err
	}
	name, value := "CAMERA", camera
	if address != "" {
		name, value = "URL", address
	}
	req := &v2client.Request{
		Model:      "camera",
		Inputs:     []v2client.Input{{Tensor: tensor.Tensor{Name: name, DataType: tensor.Bytes, Shape: []int64{1}, Data: tensor.EncodeStrings(value)}}},
		Parameters: map[string]any{"rate": rate, "max_frames": frames, "triton_enable_empty_final_response": true},
		Outputs:    []v2client.Output{{Name: "TRACKS"}, {Name: "TRACK_ID"}, {Name: "TIME"}},
	}
	if picture != "" {
		req.Outputs = append(req.Outputs, v2client.Output{Name: "PICTURE"}) // made only when it is asked for
	}
	if err := stream.SendRequest(req); err != nil {
		return err
	}
	for {
		resp, err := stream.Next()
		if ctx.Err() != nil {
			return nil // the end of ctx has cancelled the request, and the camera's session with it
		}
		if err != nil {
			return err
		}
		if resp.Final {
			return stream.CloseSend()
		}
		show(resp)
		if picture == "" {
			continue
		}
		if err := save(picture, resp); err != nil {
			return err
		}
	}
}

// show prints a frame's tracks. A track is a box, a score, a class, and more that this program does not need.
func show(resp *v2client.Response) {
	at := time.Unix(0, tensor.View[int64](resp.Output("TIME").Data)[0])
	tracks, ids := tensor.Float32s(resp.Output("TRACKS").Data), tensor.View[int64](resp.Output("TRACK_ID").Data)
	fmt.Printf("%s: %d tracks\n", at.Format("15:04:05.000"), len(ids))
	for i, id := range ids {
		t := tracks[8*i:]
		fmt.Printf("  %d at (%.0f, %.0f) to (%.0f, %.0f), score %.2f, class %.0f\n", id, t[0], t[1], t[2], t[3], t[4], t[5])
	}
}

func save(path string, resp *v2client.Response) error {
	words, err := tensor.DecodeStrings(resp.Output("PICTURE").Data)
	if err != nil || len(words) != 1 {
		return fmt.Errorf("the picture is no single string: %w", err)
	}
	return os.WriteFile(path, []byte(words[0]), 0o600)
}
