package api

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

// observed is a WatchAnalyticsResponse with a frame: what is the same for every watcher is encoded already.
type observed struct {
	seq    int64
	camera string // cameras/{camera}: nothing of any other is in it
	frame  []byte // the encoded message, but for seq
}

// codec is protobuf that also knows observed.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	o, ok := v.(*observed)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	const seqField = 1 // of WatchAnalyticsResponse; fields may come in any order
	seq := protowire.AppendVarint(protowire.AppendTag(nil, seqField, protowire.VarintType), uint64(o.seq))
	return mem.BufferSlice{mem.SliceBuffer(seq), mem.SliceBuffer(o.frame)}, nil
}

// observedWindows keeps the frames of the newest windows encoded, so that any number of watchers costs one encoding.
type observedWindows struct {
	mu   sync.Mutex
	ring [4]observedWindow
}

type observedWindow struct {
	seq    uint64
	frames []observed // as in the window; without seq
}

// of gives the frames of a window, encoded; the answer is shared.
func (w *observedWindows) of(c *store.Commit) ([]observed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slot := &w.ring[c.Seq%uint64(len(w.ring))]
	if slot.seq == c.Seq {
		return slot.frames, nil
	}
	frames := make([]observed, len(c.Frames))
	for i := range c.Frames {
		f := observations(&c.Frames[i])
		b, err := proto.Marshal(&vedettev1.WatchAnalyticsResponse{Item: &vedettev1.WatchAnalyticsResponse_Frame{Frame: f}})
		if err != nil {
			return nil, err
		}
		frames[i] = observed{camera: f.GetCamera(), frame: b}
	}
	if c.Seq > slot.seq { // what a slow watcher still reads does not push out what the others read
		*slot = observedWindow{c.Seq, frames}
	}
	return frames, nil
}

func observations(f *store.Frame) *vedettev1.FrameObservations {
	m := &vedettev1.FrameObservations{
		Camera: cameras.Name(f.Camera), Sequence: f.Sequence, Frame: f.Number, CaptureTime: timestamppb.New(f.CaptureTime),
		Observations: make([]*vedettev1.Observation, len(f.Objects)),
	}
	if !f.ReceiveTime.IsZero() {
		m.ReceiveTime = timestamppb.New(f.ReceiveTime)
	}
	for i := range f.Objects {
		o := &f.Objects[i]
		m.Observations[i] = &vedettev1.Observation{
			Track: trackName(f.Camera, store.TrackID{Sequence: f.Sequence, Local: o.Local}), LocalId: o.Local,
			Box: box(o.Box), Class: o.Class, Score: o.Score,
		}
	}
	return m
}
