package store_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vedette/vedette/store"
)

func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	s := store.New(store.Config{Dir: dir})
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	<-s.Ready()

	sequence, _ := s.OpenSequence(ctx, store.Sequence{Camera: "door", OpenReason: "START"})
	at := time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)
	committed, _ := s.Append(ctx, store.Batch{
		Frames: []store.Frame{{Sequence: sequence, Camera: "door", CaptureTime: at, Number: 1, Objects: []store.Object{
			{Local: 1, Class: "person", Score: 0.9, Box: store.Box{X1: 0.25, Y1: 0.25, X2: 0.5, Y2: 0.75}},
		}}},
		Events: []store.Event{{Camera: "door", Type: "zone.entered", Time: at, Track: store.TrackID{Sequence: sequence, Local: 1}}},
	})
	fmt.Println("committed:", <-committed)

	detections, _, _ := s.ListDetections(ctx, store.Query{Cameras: []string{"door"}, Start: at, End: at.Add(time.Second)})
	for _, d := range detections {
		fmt.Println(d.CaptureTime, d.Class, d.Score)
	}
	stop()
	fmt.Println("stopped:", <-ran)
	// Output:
	// committed: <nil>
	// 2031-05-06 12:00:00 +0000 UTC person 0.9
	// stopped: <nil>
}
