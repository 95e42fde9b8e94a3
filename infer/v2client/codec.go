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
)

// codec is protobuf, except that the tensors of a response stay in the memory of the message instead of being copied out
// of it one by one.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(encodingproto.Name)} }

// Unmarshal decodes an answer.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*inference.ModelInferResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	return unmarshalResponse(data.Materialize(), m)
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
