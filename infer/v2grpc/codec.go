package v2grpc

import (
	"fmt"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec is protobuf, except that requests of inference are parsed by hand into a call and its responses
// come encoded already.
type codec struct{}

// Name is the content subtype of protobuf.
func (codec) Name() string { return "proto" }

// Marshal encodes an answer.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case encoded:
		return mem.BufferSlice(m), nil
	case proto.Message:
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	default:
		return nil, fmt.Errorf("%T is not an answer", v)
	}
}

// Unmarshal decodes a request. A call keeps the message's memory until it is freed.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *call:
		m.req.Received = time.Now() // the reader may have waited long for it
		return m.parse(m.take(data))
	case proto.Message:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		return proto.Unmarshal(b.ReadOnlyData(), m)
	default:
		return fmt.Errorf("%T is not a request", v)
	}
}

// take keeps the message. One that came in several pieces is put together in the server's memory, with its
// first tensor aligned so that models can read it where it is.
func (c *call) take(data mem.BufferSlice) []byte {
	c.pending.bytes = data.Len()
	if len(data) == 1 {
		data[0].Ref()
		c.message = data[0]
		return c.message.ReadOnlyData()
	}
	n := data.Len()
	if n == 0 {
		return nil
	}
	pad := -firstTensor(data[0].ReadOnlyData()) & (alignment - 1)
	b := c.server.cfg.Pool.Get(n + pad)
	c.buffers = append(c.buffers, b)
	data.CopyTo(b.Bytes[pad:])
	return b.Bytes[pad:]
}

// alignment is what models like best for their inputs.
const alignment = 64

// firstTensor is where the first raw tensor begins that does not end in this first piece of a message; 0 if
// none is in sight.
func firstTensor(piece []byte) int {
	for at := 0; at < len(piece); {
		num, typ, tag := protowire.ConsumeTag(piece[at:])
		if tag < 0 || typ != protowire.BytesType {
			return 0
		}
		size, n := protowire.ConsumeVarint(piece[at+tag:])
		if n < 0 {
			return 0
		}
		at += tag + n
		if size > uint64(len(piece)-at) {
			if num == 7 {
				return at
			}
			return 0
		}
		at += int(size)
	}
	return 0
}
