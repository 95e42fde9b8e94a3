package v2grpc

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

// call is one request of inference: the parsed message, then what it means. Its memory is used again. The
// strings of names are interned, all other bytes are views of the message.
type call struct {
	server  *Server
	message mem.Buffer

	model, version, id string
	params             []param
	inputs             []wireInput
	outputs            []wireOutput
	raw                [][]byte
	shapes             []int64
	allParams          []param // the parameters of inputs and outputs, which hold ranges of it

	req     infer.Request
	tensors []tensor.Tensor
	specs   []infer.OutputSpec
	leases  []*shm.Lease // of inputs
	into    []*shm.Lease // of outputs; nil where the output goes into the message
	buffers []*tensor.Buffer
	frames  []*frameCheck
	shared  bool // some of its tensors are in shared memory
	wantEnd bool // the client asked for an empty final response

	// users counts the request itself, until its final reply was dealt with, and each of its responses:
	// outputs may be views of the request's memory.
	users atomic.Int32

	pending pending // on a stream
}

type wireInput struct {
	name, datatype string
	shape          []int64
	params         [2]int // range in allParams
	contents       []byte // an InferTensorContents message
	hasContents    bool
}

type wireOutput struct {
	name   string
	params [2]int
}

// param is one entry of a map of InferParameter.
type param struct {
	key  string
	kind paramKind
	str  string
	num  uint64 // bool, int64, uint64 or the bits of a double
}

// paramKind is the field number of the chosen value; 0 is none.
type paramKind uint8

const (
	noParam     paramKind = 0
	boolParam   paramKind = 1
	int64Param  paramKind = 2
	stringParam paramKind = 3
	doubleParam paramKind = 4
	uint64Param paramKind = 5
)

func (p param) value() any {
	switch p.kind {
	case boolParam:
		return p.num != 0
	case int64Param:
		return int64(p.num)
	case stringParam:
		return p.str
	case doubleParam:
		return math.Float64frombits(p.num)
	case uint64Param:
		return p.num
	case noParam:
	}
	return nil
}

// newCall lends a call; free gives it back.
func (s *Server) newCall() *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = &call{server: s}
		c.pending.call, c.pending.reply = c, c.pending.take
	}
	c.users.Store(1)
	return c
}

// free ends one use. The last one releases everything the call holds, the request included.
func (c *call) free() {
	if c.users.Add(-1) > 0 {
		return
	}
	for i, l := range c.leases {
		l.Release()
		c.leases[i] = nil
	}
	for i, l := range c.into {
		l.Release()
		c.into[i] = nil
	}
	for i, b := range c.buffers {
		b.Release()
		c.buffers[i] = nil
	}
	if c.message != nil {
		c.message.Free()
	}
	s := c.server
	clear(c.params)
	clear(c.inputs)
	clear(c.outputs)
	clear(c.raw)
	clear(c.allParams)
	clear(c.tensors)
	clear(c.specs)
	c.message = nil
	c.model, c.version, c.id, c.wantEnd, c.shared = "", "", "", false, false
	c.params, c.inputs, c.outputs, c.raw = c.params[:0], c.inputs[:0], c.outputs[:0], c.raw[:0]
	c.shapes, c.allParams, c.tensors, c.specs = c.shapes[:0], c.allParams[:0], c.tensors[:0], c.specs[:0]
	c.leases, c.into, c.buffers, c.frames = c.leases[:0], c.into[:0], c.buffers[:0], c.frames[:0]
	c.req = infer.Request{}
	c.pending.stream = nil
	s.calls.Put(c)
}

var (
	errUTF8 = errors.New("string field contains invalid UTF-8")
	errWire = errors.New("cannot parse invalid wire-format data")
)

// fields walks the fields of a message. Fields of other types than f expects are skipped by it returning
// false, as unknown ones are.
func fields(b []byte, f func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (bool, error)) error {
	for len(b) > 0 {
		num, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 || num > protowire.MaxValidNumber {
			return errWire
		}
		var (
			v    []byte
			n    uint64
			size int
		)
		rest := b[tag:]
		switch typ {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(rest)
		case protowire.Fixed64Type:
			n, size = protowire.ConsumeFixed64(rest)
		case protowire.Fixed32Type:
			var n32 uint32
			n32, size = protowire.ConsumeFixed32(rest)
			n = uint64(n32)
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(rest)
		default:
			size = protowire.ConsumeFieldValue(num, typ, rest)
		}
		if size < 0 {
			return errWire
		}
		if _, err := f(num, typ, v, n); err != nil {
			return err
		}
		b = rest[size:]
	}
	return nil
}

func (c *call) name(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errUTF8
	}
	return c.server.names.Get(b), nil
}

// parse reads a ModelInferRequest; what it accepts and how it merges repeated fields is what protobuf does.
func (c *call) parse(msg []byte) error {
	return fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) (bool, error) {
		if typ != protowire.BytesType {
			return false, nil
		}
		var err error
		switch num {
		case 1:
			c.model, err = c.name(v)
		case 2:
			c.version, err = c.name(v)
		case 3:
			if !utf8.Valid(v) {
				return true, errUTF8
			}
			c.id = string(v)
		case 4:
			c.params, err = c.parseParam(c.params, 0, v)
		case 5:
			err = c.parseInput(v)
		case 6:
			err = c.parseOutput(v)
		case 7:
			c.raw = append(c.raw, v)
		default:
		}
		return true, err
	})
}

func (c *call) parseInput(msg []byte) error {
	in := wireInput{params: [2]int{len(c.allParams), 0}}
	first := len(c.shapes)
	err := fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (bool, error) {
		var err error
		switch {
		case num == 1 && typ == protowire.BytesType:
			in.name, err = c.name(v)
		case num == 2 && typ == protowire.BytesType:
			in.datatype, err = c.name(v)
		case num == 3 && typ == protowire.VarintType:
			c.shapes = append(c.shapes, int64(n))
		case num == 3 && typ == protowire.BytesType:
			for len(v) > 0 {
				d, size := protowire.ConsumeVarint(v)
				if size < 0 {
					return true, errWire
				}
				c.shapes, v = append(c.shapes, int64(d)), v[size:]
			}
		case num == 4 && typ == protowire.BytesType:
			c.allParams, err = c.parseParam(c.allParams, in.params[0], v)
		case num == 5 && typ == protowire.BytesType:
			// Twice the same message is the two merged, which is what their bytes in a row mean.
			if !in.hasContents {
				in.contents, in.hasContents = v, true
			} else {
				in.contents = append(slices.Clip(in.contents), v...)
			}
			err = checkContents(v)
		}
		return true, err
	})
	in.params[1] = len(c.allParams)
	in.shape = c.shapes[first:len(c.shapes):len(c.shapes)]
	c.inputs = append(c.inputs, in)
	return err
}

func (c *call) parseOutput(msg []byte) error {
	out := wireOutput{params: [2]int{len(c.allParams), 0}}
	err := fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) (bool, error) {
		var err error
		switch {
		case num == 1 && typ == protowire.BytesType:
			out.name, err = c.name(v)
		case num == 2 && typ == protowire.BytesType:
			c.allParams, err = c.parseParam(c.allParams, out.params[0], v)
		}
		return true, err
	})
	out.params[1] = len(c.allParams)
	c.outputs = append(c.outputs, out)
	return err
}

// parseParam reads one map entry into list, where it replaces an entry of the same key at or after first.
func (c *call) parseParam(list []param, first int, msg []byte) ([]param, error) {
	var p param
	err := fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) (bool, error) {
		var err error
		switch {
		case num == 1 && typ == protowire.BytesType:
			p.key, err = c.name(v)
		case num == 2 && typ == protowire.BytesType:
			err = p.parseValue(v)
		}
		return true, err
	})
	if err != nil {
		return list, err
	}
	for i := first; i < len(list); i++ {
		if list[i].key == p.key {
			list[i] = p
			return list, nil
		}
	}
	return append(list, p), nil
}

func (p *param) parseValue(msg []byte) error {
	return fields(msg, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (bool, error) {
		switch {
		case num == 1 && typ == protowire.VarintType:
			if n != 0 {
				n = 1
			}
			p.kind, p.num = boolParam, n
		case (num == 2 || num == 5) && typ == protowire.VarintType, num == 4 && typ == protowire.Fixed64Type:
			p.kind, p.num = paramKind(num), n
		case num == 3 && typ == protowire.BytesType:
			if !utf8.Valid(v) {
				return true, errUTF8
			}
			p.kind, p.str = stringParam, string(v)
		}
		return true, nil
	})
}
