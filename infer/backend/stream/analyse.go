package stream

import (
	"context"
	"slices"
	"time"

	"github.com/vedette/vedette/api/frame"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// scope keeps the trackers' sequences apart from those of every listener.
const scope = "stream"

// sequence is an open sequence of the tracker: one stream epoch.
type sequence struct {
	id      infer.CorrelationID
	opened  int64 // capture time of its first frame, nanoseconds since the Unix epoch
	latest  int64
	batched bool // the tracker's tensors have a batch dimension
}

// ask runs a model.
func (w *watch) ask(ctx context.Context, req *infer.Request) (*infer.Response, error) {
	req.Scope = scope
	return infer.Await(ctx, w.instance.model.Inferer, req)
}

// batched tells whether a model's tensors have a batch dimension, and whether it has an input. Without a
// catalogue it is taken for one like those that ship.
func (w *watch) batched(model, input string) (batched, has bool) {
	catalog, ok := w.instance.model.Inferer.(infer.Catalog)
	if !ok {
		return true, false
	}
	info, err := catalog.Model(model, -1)
	if err != nil {
		return true, false // asking it will tell why
	}
	return info.Config.GetMaxBatchSize() > 0, slices.ContainsFunc(info.Inputs, func(t infer.TensorInfo) bool { return t.Name == input })
}

func shape(batched bool, dims ...int64) []int64 {
	if batched {
		return append([]int64{1}, dims...)
	}
	return dims
}

// tick speaks to the tracker itself: it opens or closes a sequence without a frame.
func (w *watch) tick(ctx context.Context, s *sequence, start bool) error {
	resp, err := w.ask(ctx, &infer.Request{
		Model: w.instance.tracker, Correlation: s.id, SequenceStart: start, SequenceEnd: !start,
		Inputs: []tensor.Tensor{
			{Name: "BOXES", DataType: tensor.FP32, Shape: shape(s.batched, 0, 6), Data: []byte{}},
			{Name: "TIME", DataType: tensor.Int64, Shape: shape(s.batched, 1), Data: tensor.AsBytes([]int64{s.latest - s.opened})},
			{Name: "OBSERVED", DataType: tensor.Bool, Shape: shape(s.batched, 1), Data: []byte{0}},
		},
	})
	resp.Release()
	return err
}

func (w *watch) openSequence(ctx context.Context, captured int64) error {
	batched, _ := w.batched(w.instance.tracker, "")
	s := &sequence{id: infer.CorrelationID{Num: w.instance.backend.sequence.Add(1)}, opened: captured, latest: captured, batched: batched}
	if err := w.tick(ctx, s, true); err != nil {
		return err
	}
	w.follow = s
	return nil
}

// endSequence closes the tracker's sequence, also after the request's own end.
func (w *watch) endSequence(ctx context.Context) {
	if w.follow == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = w.tick(ctx, w.follow, false) // if it fails the tracker forgets the sequence in its own time
	w.follow = nil
}

// analyse asks the pipeline about a frame and answers with what it says.
func (w *watch) analyse(ctx context.Context, n *ingestv1.FrameNotice) error {
	view, err := w.frames.View(int(n.GetSlot()), n.GetGeneration())
	if err != nil {
		return err
	}
	if w.follow == nil {
		if err := w.openSequence(ctx, n.GetCaptureTimeNs()); err != nil {
			return err
		}
	}
	if w.pictures {
		w.requestPicture(n)
	}
	resp, batched, err := w.pipeline(ctx, n, view)
	if err != nil && ctx.Err() == nil {
		// The tracker forgets a sequence that sat idle too long.
		if err := w.openSequence(ctx, n.GetCaptureTimeNs()); err != nil {
			return err
		}
		resp, batched, err = w.pipeline(ctx, n, view)
	}
	if err != nil {
		return err
	}
	var picture []byte
	if w.pictures {
		if picture, err = w.picture(); err != nil {
			resp.Release()
			return err
		}
	}
	if err := view.Check(); err != nil {
		resp.Release()
		return err
	}
	w.answer(n, resp, batched, view.Pixels, picture)
	return nil
}

// pipeline asks the models about a frame. Batched tells that what they answer has a batch dimension.
func (w *watch) pipeline(ctx context.Context, n *ingestv1.FrameNotice, view frame.View) (resp *infer.Response, batched bool, err error) {
	w.follow.latest = max(w.follow.latest, n.GetCaptureTimeNs())
	info := frame.Info{
		Format: view.Format, Width: view.Width, Height: view.Height, Generation: n.GetGeneration(), Slot: int(n.GetSlot()), Flags: view.Flags, Number: n.GetNumber(),
	}.Values()
	batched, observed := w.batched(w.instance.pipeline, "OBSERVED")
	req := &infer.Request{
		Model: w.instance.pipeline, Correlation: w.follow.id,
		Inputs: []tensor.Tensor{
			{Name: "FRAME", DataType: tensor.Uint8, Shape: shape(batched, int64(len(view.Pixels))), Data: view.Pixels},
			{Name: "FRAME_INFO", DataType: tensor.Int64, Shape: shape(batched, frame.InfoLen), Data: tensor.AsBytes(info[:])},
			{Name: "TIME", DataType: tensor.Int64, Shape: shape(batched, 1), Data: tensor.AsBytes([]int64{w.follow.latest - w.follow.opened})},
		},
	}
	if observed {
		req.Inputs = append(req.Inputs, tensor.Tensor{Name: "OBSERVED", DataType: tensor.Bool, Shape: shape(batched, 1), Data: []byte{1}})
	}
	for _, name := range w.instance.outputs {
		req.Outputs = append(req.Outputs, infer.OutputSpec{Name: name})
	}
	resp, err = w.ask(ctx, req)
	return resp, batched, err
}

// answer gives the client one frame's answer, which keeps the pipeline's.
func (w *watch) answer(n *ingestv1.FrameNotice, from *infer.Response, batched bool, pixels, picture []byte) {
	r := w.job.NewResponse()
	r.OnRelease(from.Release)
	w.waiting.mu.Lock()
	w.waiting.count++
	w.waiting.mu.Unlock()
	r.OnRelease(w.taken)
	r.Parameters = map[string]any{"stream_epoch": w.epoch, "sequence": int64(w.follow.id.Num)}
	for i := range from.Outputs {
		out := &from.Outputs[i]
		dims := out.Shape
		if batched && len(dims) > 0 {
			dims = dims[1:]
		}
		switch {
		case !w.job.Wants(out.Name):
		case tensor.Within(out.Data, pixels): // which are not ours much longer
			copy(r.Add(out.Name, out.DataType, dims, len(out.Data)), out.Data)
		default:
			r.AddView(out.Name, out.DataType, dims, out.Data)
		}
	}
	for name, v := range map[string]int64{outTime: n.GetCaptureTimeNs(), outNumber: int64(n.GetNumber())} {
		if w.job.Wants(name) {
			copy(r.Add(name, tensor.Int64, []int64{1}, 8), tensor.AsBytes([]int64{v}))
		}
	}
	if w.pictures {
		r.AddView(outPicture, tensor.Bytes, []int64{1}, picture)
	}
	w.given++
	w.job.Respond(r)
}

// requestPicture asks for the JPEG of a leased frame; it is made while the models run.
func (w *watch) requestPicture(n *ingestv1.FrameNotice) {
	w.asked++
	w.link.send(&ingestv1.ToIngest{Message: &ingestv1.ToIngest_GetPicture{GetPicture: &ingestv1.GetPicture{
		RequestId: w.asked, Source: &ingestv1.GetPicture_LeaseId{LeaseId: n.GetLeaseId()}, MaxWidth: uint32(w.width),
	}}})
}

// picture waits for the answer, as an element of BYTES. Whatever else is said meanwhile waits its turn: it may end
// the memory the frame is in.
func (w *watch) picture() ([]byte, error) {
	for m := range w.link.messages {
		p := m.GetPicture()
		if p == nil || p.GetRequestId() != w.asked {
			w.later = append(w.later, m)
			continue
		}
		m.close()
		if p.GetError() != nil {
			return nil, frame.ErrOverwritten // the lease is over
		}
		return tensor.AppendElement(nil, string(p.GetJpeg())), nil
	}
	return nil, w.ended()
}
