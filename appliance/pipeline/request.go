package pipeline

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/ingest/ingestclient"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// The tensors between the appliance and the models, as docs/architecture.md names them.
const (
	tensorFrame     = "FRAME"
	tensorFrameInfo = "FRAME_INFO"
	tensorTime      = "TIME"
	tensorObserved  = "OBSERVED"
	tensorBoxes     = "BOXES"
	tensorTracks    = "TRACKS"
	tensorTrackID   = "TRACK_ID"
)

// stepTimes asks, as a parameter of a request, when the steps of its ensemble ended, and tells it in the response.
const stepTimes = "step_times"

func int64Parameter(v int64) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: v}}
}

func boolParameter(v bool) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: v}}
}

func stringParameter(v string) *inference.InferParameter {
	return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
}

func input(name, datatype string, shape ...int64) *inference.ModelInferRequest_InferInputTensor {
	return &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: shape}
}

func int64Bytes(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// frame asks the pipeline about a frame in a slot.
func (m *model) frame(region string, slots frame.Layout, n ingestclient.Frame, sequence int64, at time.Duration) *inference.ModelInferRequest {
	format := frame.Format(n.GetFormat())
	size := int64(format.Size(int(n.GetWidth()), int(n.GetHeight())))
	info := frame.Info{
		Format: format, Width: int(n.GetWidth()), Height: int(n.GetHeight()), Generation: n.GetGeneration(), Slot: int(n.GetSlot()),
		Flags: frame.Flags(n.GetFlags()), Number: n.GetNumber(),
	}
	values := info.Values()
	r := newRequest(m.name, sequence)
	r.Parameters[stepTimes] = boolParameter(true)
	r.RawInputContents = [][]byte{int64Bytes(values[:]...), int64Bytes(int64(at))}
	pixels := input(tensorFrame, "UINT8", m.shape(m.batched, size)...)
	pixels.Parameters = map[string]*inference.InferParameter{
		"shared_memory_region":    stringParameter(region),
		"shared_memory_offset":    int64Parameter(int64(slots.PixelOffset(int(n.GetSlot())))),
		"shared_memory_byte_size": int64Parameter(size),
	}
	r.Inputs = []*inference.ModelInferRequest_InferInputTensor{
		pixels, input(tensorFrameInfo, "INT64", m.shape(m.batched, frame.InfoLen)...), input(tensorTime, "INT64", m.shape(m.batched, 1)...),
	}
	if m.observed {
		r.Inputs = append(r.Inputs, input(tensorObserved, "BOOL", m.shape(m.batched, 1)...))
		r.RawInputContents = append(r.RawInputContents, []byte{1})
	}
	return r
}

// tick speaks to the tracker itself: it opens (start), holds or closes (end) a sequence without a frame.
func (m *model) tick(sequence int64, at time.Duration, start, end bool) *inference.ModelInferRequest {
	r := newRequest(m.tracker, sequence)
	r.Inputs = []*inference.ModelInferRequest_InferInputTensor{
		input(tensorBoxes, "FP32", m.shape(m.trackerBatched, 0, rows.BoxColumns)...),
		input(tensorTime, "INT64", m.shape(m.trackerBatched, 1)...),
		input(tensorObserved, "BOOL", m.shape(m.trackerBatched, 1)...),
	}
	r.RawInputContents = [][]byte{{}, int64Bytes(int64(at)), {0}}
	if start {
		r.Parameters["sequence_start"] = boolParameter(true)
	}
	if end {
		r.Parameters["sequence_end"] = boolParameter(true)
	}
	return r
}

func newRequest(model string, sequence int64) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName:  model,
		Parameters: map[string]*inference.InferParameter{"sequence_id": int64Parameter(sequence)},
		Outputs:    []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: tensorTracks}, {Name: tensorTrackID}},
	}
}

// shape has the batch dimension in front where the model batches.
func (m *model) shape(batched bool, dims ...int64) []int64 {
	if !batched {
		return dims
	}
	return append([]int64{1}, dims...)
}

// answer is what came back for one request: tracks, or why there are none.
type answer struct {
	id     string
	tracks []tracker.Track
	steps  []stepTime
	err    error
}

// readAnswer takes the tracks out of a response.
func readAnswer(m *inference.ModelStreamInferResponse) answer {
	r := m.GetInferResponse()
	a := answer{id: r.GetId(), steps: readSteps(r.GetParameters()[stepTimes].GetStringParam())}
	if text := m.GetErrorMessage(); text != "" {
		a.err = fmt.Errorf("inference: %s", text)
		return a
	}
	var tracks, ids []byte
	found := 0
	for i, o := range r.GetOutputs() {
		if i >= len(r.GetRawOutputContents()) {
			break
		}
		switch o.GetName() {
		case tensorTracks:
			tracks = r.GetRawOutputContents()[i]
			found++
		case tensorTrackID:
			ids = r.GetRawOutputContents()[i]
			found++
		}
	}
	if found != 2 {
		a.err = fmt.Errorf("inference: the response of model %q lacks %s or %s", r.GetModelName(), tensorTracks, tensorTrackID)
		return a
	}
	a.tracks, a.err = rows.Tracks(nil, tracks, ids)
	return a
}
