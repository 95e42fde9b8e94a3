package v2client

import (
	"errors"
	"slices"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/internal/grpcpool"
)

// codec is protobuf, except that requests go into memory that is used again, and that the tensors of a response stay in the
// memory of the message instead of being copied out of it one by one.
type codec struct {
	encoding.CodecV2

	pool *grpcpool.Pool
}

func newCodec(pool *grpcpool.Pool) codec {
	return codec{CodecV2: encoding.GetCodecV2(encodingproto.Name), pool: pool}
}

// Marshal encodes a question.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *question:
		return m.pieces()
	case *inference.ModelInferRequest:
		return c.whole(m)
	default:
		return c.CodecV2.Marshal(v)
	}
}

// whole is a request in one piece of lent memory.
func (c codec) whole(m *inference.ModelInferRequest) (mem.BufferSlice, error) {
	b := c.pool.Get(proto.Size(m))
	var err error
	if *b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*b)[:0], m); err != nil {
		c.pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, c.pool)}, nil
}

// Unmarshal decodes an answer.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *answer:
		m.memory = data.MaterializeToBuffer(c.pool)
		return unmarshalResponse(m.memory.ReadOnlyData(), m.ModelInferResponse)
	case *streamAnswer:
		m.memory = data.MaterializeToBuffer(c.pool)
		return unmarshalStreamed(m.memory.ReadOnlyData(), m.ModelStreamInferResponse)
	case *inference.ModelInferResponse:
		return unmarshalResponse(data.Materialize(), m)
	case *inference.ModelStreamInferResponse:
		return unmarshalStreamed(data.Materialize(), m)
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
}

// question is a request, of one call, whose large tensors are sent from where they are.
type question struct{ *inference.ModelInferRequest }

// inPlace is the size from which a tensor is a piece of its own; smaller ones are copied beside what comes before.
const inPlace = 4096

// pieces is the request with its large tensors between the rest.
func (q *question) pieces() (mem.BufferSlice, error) {
	raw := q.RawInputContents
	q.RawInputContents = nil
	b, err := proto.Marshal(q.ModelInferRequest)
	q.RawInputContents = raw
	if err != nil {
		return nil, err
	}
	var out mem.BufferSlice
	for _, r := range raw {
		b = protowire.AppendTag(b, 7, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(r)))
		if len(r) < inPlace {
			b = append(b, r...)
			continue
		}
		out = append(out, mem.SliceBuffer(b), mem.SliceBuffer(r))
		b = nil
	}
	if len(b) > 0 {
		out = append(out, mem.SliceBuffer(b))
	}
	return out, nil
}

// answer is a response whose memory can be given back.
type answer struct {
	*inference.ModelInferResponse

	memory mem.Buffer
}

// streamAnswer is a response of a stream whose memory can be given back.
type streamAnswer struct {
	*inference.ModelStreamInferResponse

	memory mem.Buffer
}

// unmarshalStreamed decodes b into m, whose raw contents are then views of b.
func unmarshalStreamed(b []byte, m *inference.ModelStreamInferResponse) error {
	const response = 2 // infer_response
	var rest, inner []byte
	found := 0
	for left := b; len(left) > 0; {
		num, typ, tag := protowire.ConsumeTag(left)
		if tag < 0 {
			return errWire
		}
		n := protowire.ConsumeFieldValue(num, typ, left[tag:])
		if n < 0 {
			return errWire
		}
		if num == response && typ == protowire.BytesType {
			inner, _ = protowire.ConsumeBytes(left[tag:])
			found++
		} else {
			rest = append(rest, left[:tag+n]...)
		}
		left = left[tag+n:]
	}
	if found != 1 { // none, or several to be merged
		return proto.Unmarshal(b, m)
	}
	if err := proto.Unmarshal(rest, m); err != nil {
		return err
	}
	m.InferResponse = new(inference.ModelInferResponse)
	return unmarshalResponse(inner, m.InferResponse)
}

// unmarshalResponse decodes b into m, whose raw contents are then views of b.
func unmarshalResponse(b []byte, m *inference.ModelInferResponse) error {
	const raw = 6 // raw_output_contents
	var rest []byte
	var views [][]byte
	for len(b) > 0 {
		num, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return errWire
		}
		if num != raw || typ != protowire.BytesType {
			n := protowire.ConsumeFieldValue(num, typ, b[tag:])
			if n < 0 {
				return errWire
			}
			rest, b = append(rest, b[:tag+n]...), b[tag+n:]
			continue
		}
		view, n := protowire.ConsumeBytes(b[tag:])
		if n < 0 {
			return errWire
		}
		views, b = append(views, slices.Clip(view)), b[tag+n:]
	}
	if err := proto.Unmarshal(rest, m); err != nil {
		return err
	}
	m.RawOutputContents = views
	return nil
}

var errWire = errors.New("the answer is no protobuf message")
