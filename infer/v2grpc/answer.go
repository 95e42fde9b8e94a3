package v2grpc

import (
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

// encoded is an answer in wire format, ready for the transport.
type encoded mem.BufferSlice

// inPlace is the size from which a tensor travels from where it is; smaller ones are copied next to each
// other, which is cheaper than counting who still reads them.
const inPlace = 4096

// answer is what a response, an error or an end becomes on the wire.
type answer struct {
	call *call
	resp *infer.Response
	// stream wraps the response in a ModelStreamInferResponse and adds the parameter that tells whether
	// it is the last one.
	stream, final bool
	// last frees the call with the response.
	last bool
}

// encode writes a response. It takes over the response and, when it is the last one, the call: both are
// released when the transport has sent their bytes, or at once on an error.
func (a answer) encode() (encoded, error) {
	if err := a.settle(); err != nil {
		a.release()
		return nil, err
	}
	size := a.size()
	total := size
	if a.stream {
		total += protowire.SizeTag(2) + protowire.SizeVarint(uint64(size))
	}
	if total > math.MaxInt32 {
		a.release()
		return nil, infer.Errorf(infer.InvalidArgument, "Response has byte size %d which exceeds gRPC's byte size limit %d.", total, math.MaxInt32)
	}
	large, held := 0, 0
	for i := range a.outputs() {
		if n := len(a.data(i)); n >= inPlace {
			large += n
			held++
		}
	}
	head := make([]byte, 0, total-large)
	if a.stream {
		head = protowire.AppendTag(head, 2, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(size))
	}
	head = a.appendHead(head)
	if held == 0 {
		for i := range a.outputs() {
			head = protowire.AppendTag(head, 6, protowire.BytesType)
			head = protowire.AppendBytes(head, a.data(i))
		}
		a.release()
		return encoded{mem.SliceBuffer(head)}, nil
	}
	return a.pieces(head, held), nil
}

// pieces lays small tensors beside the head and large ones between, as they are.
func (a answer) pieces(head []byte, held int) encoded {
	out := make(encoded, 0, 2*held+1)
	hold := &holder{answer: a}
	hold.pieces.Store(int32(held))
	start := 0
	for i := range a.outputs() {
		head = protowire.AppendTag(head, 6, protowire.BytesType)
		if len(a.data(i)) < inPlace {
			head = protowire.AppendBytes(head, a.data(i))
			continue
		}
		head = protowire.AppendVarint(head, uint64(len(a.data(i))))
		out = append(out, mem.SliceBuffer(head[start:len(head):len(head)]), mem.NewBuffer(&a.resp.Outputs[i].Data, hold))
		start = len(head)
	}
	if start < len(head) {
		out = append(out, mem.SliceBuffer(head[start:]))
	}
	return out
}

// holder keeps a response until the transport has let go of its last large tensor.
type holder struct {
	answer answer
	pieces atomic.Int32
}

// Get is never called: the transport only gives back.
func (h *holder) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put is the transport's last look at one tensor.
func (h *holder) Put(*[]byte) {
	if h.pieces.Add(-1) == 0 {
		h.answer.release()
	}
}

func (a answer) release() {
	a.resp.Release()
	if a.stream && a.resp != nil {
		a.call.free()
	}
	if a.last {
		a.call.free()
	}
}

func (a answer) outputs() []tensor.Tensor {
	if a.resp == nil {
		return nil
	}
	return a.resp.Outputs
}

// into finds the wanted output whose region output i goes to; -1 when it goes into the message.
func (a answer) into(i int) int {
	name := a.resp.Outputs[i].Name
	for j := range a.call.specs {
		if a.call.into[j] != nil && a.call.specs[j].Name == name {
			return j
		}
	}
	return -1
}

// data is what of output i goes into the message.
func (a answer) data(i int) []byte {
	if len(a.call.into) > 0 && a.into(i) >= 0 {
		return nil
	}
	return a.resp.Outputs[i].Data
}

// settle puts outputs where they belong: into regions, and out of the regions of inputs what goes into the
// message, since their owner could still change it. It fails if any of the regions turned out to be gone.
func (a answer) settle() error {
	if a.resp == nil || !a.call.shared {
		return nil
	}
	for i := range a.resp.Outputs {
		out := &a.resp.Outputs[i]
		j := a.into(i)
		if j < 0 {
			if slices.ContainsFunc(a.call.leases, func(l *shm.Lease) bool { return l.Lends(out.Data) }) {
				own := a.resp.Alloc(len(out.Data))
				copy(own, out.Data)
				out.Data = own
			}
			continue
		}
		lease := a.call.into[j]
		if len(out.Data) > len(lease.Bytes) {
			return infer.Errorf(infer.Internal,
				"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
				out.Name, len(lease.Bytes), len(out.Data))
		}
		if !tensor.SameMemory(out.Data, lease.Bytes) {
			copy(lease.Bytes, out.Data)
		}
	}
	for _, leases := range [...][]*shm.Lease{a.call.leases, a.call.into} {
		for _, l := range leases {
			if err := l.Intact(); err != nil {
				return err
			}
		}
	}
	return nil
}

// size is the encoded size of the ModelInferResponse.
func (a answer) size() int {
	n := a.headSize()
	for i := range a.outputs() {
		n += protowire.SizeTag(6) + protowire.SizeBytes(len(a.data(i)))
	}
	return n
}

func (a answer) names() (model, version string) {
	if a.resp == nil {
		return a.call.model, a.call.version
	}
	if a.resp.Version > 0 {
		version = strconv.FormatInt(a.resp.Version, 10)
	}
	return a.resp.Model, version
}

func stringSize(num protowire.Number, s string) int {
	if s == "" {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeBytes(len(s))
}

func (a answer) headSize() int {
	model, version := a.names()
	n := stringSize(1, model) + stringSize(2, version) + stringSize(3, a.call.id)
	if a.resp != nil {
		for k, v := range a.resp.Parameters {
			n += protowire.SizeTag(4) + protowire.SizeBytes(entrySize(k, v))
		}
	}
	if a.stream {
		n += protowire.SizeTag(4) + protowire.SizeBytes(entrySize(paramFinal, a.final))
	}
	for i := range a.outputs() {
		n += protowire.SizeTag(5) + protowire.SizeBytes(tensorSize(&a.resp.Outputs[i]))
	}
	return n
}

func (a answer) appendHead(b []byte) []byte {
	model, version := a.names()
	b = appendString(b, 1, model)
	b = appendString(b, 2, version)
	b = appendString(b, 3, a.call.id)
	if a.resp != nil {
		for k, v := range a.resp.Parameters {
			b = appendEntry(b, k, v)
		}
	}
	if a.stream {
		b = appendEntry(b, paramFinal, a.final)
	}
	for i := range a.outputs() {
		t := &a.resp.Outputs[i]
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(tensorSize(t)))
		b = appendString(b, 1, t.Name)
		b = appendString(b, 2, t.DataType.String())
		if len(t.Shape) > 0 {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(shapeSize(t.Shape)))
			for _, d := range t.Shape {
				b = protowire.AppendVarint(b, uint64(d))
			}
		}
	}
	return b
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func tensorSize(t *tensor.Tensor) int {
	n := stringSize(1, t.Name) + stringSize(2, t.DataType.String())
	if len(t.Shape) > 0 {
		n += protowire.SizeTag(3) + protowire.SizeBytes(shapeSize(t.Shape))
	}
	return n
}

func shapeSize(shape []int64) int {
	n := 0
	for _, d := range shape {
		n += protowire.SizeVarint(uint64(d))
	}
	return n
}

// entrySize is the size of one entry of a map of InferParameter.
func entrySize(key string, v any) int {
	return stringSize(1, key) + protowire.SizeTag(2) + protowire.SizeBytes(valueSize(v))
}

func valueSize(v any) int {
	switch v := v.(type) {
	case bool:
		return 2
	case int64:
		return 1 + protowire.SizeVarint(uint64(v))
	case uint64:
		return 1 + protowire.SizeVarint(v)
	case float64:
		return 1 + protowire.SizeFixed64()
	case string:
		return 1 + protowire.SizeBytes(len(v))
	default:
		return 0
	}
}

func appendEntry(b []byte, key string, v any) []byte {
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(entrySize(key, v)))
	b = appendString(b, 1, key)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(valueSize(v)))
	switch v := v.(type) {
	case bool:
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(v))
	case int64:
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(v))
	case uint64:
		b = protowire.AppendTag(b, 5, protowire.VarintType)
		b = protowire.AppendVarint(b, v)
	case float64:
		b = protowire.AppendTag(b, 4, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(v))
	case string:
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendString(b, v)
	}
	return b
}

// encodeError writes a failed request of a stream: the message, and the request's id.
func encodeError(err error, id string) encoded {
	text := err.Error()
	if text == "" {
		text = "unknown error"
	}
	b := appendString(nil, 1, text)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(stringSize(3, id)))
	return encoded{mem.SliceBuffer(appendString(b, 3, id))}
}
