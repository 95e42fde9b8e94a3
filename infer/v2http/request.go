package v2http

import (
	"strings"
	"time"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

const (
	paramRegion    = "shared_memory_region"
	paramOffset    = "shared_memory_offset"
	paramSize      = "shared_memory_byte_size"
	paramBinary    = "binary_data"
	paramBinaryLen = "binary_data_size"
	paramClasses   = "classification"
	reservedParam  = "triton_"
	maxCorrelation = 128
)

// call is one request of inference and everything it holds until its response is written.
type call struct {
	server *Server
	req    infer.Request

	inputs  []input
	outputs []output
	shapes  []int64
	tensors []tensor.Tensor
	specs   []infer.OutputSpec
	leases  []*shm.Lease
	into    []*shm.Lease // of outputs; nil where the output goes into the message
	buffers []*tensor.Buffer
	tail    []byte // the bytes behind the JSON
	hasTail bool
	binary  bool     // binary_data_output: what outputs come as that do not say
	answer  []byte   // memory of the JSON of the response
	pieces  [][]byte // and of the list of what follows it
}

type input struct {
	name, datatype string
	shape          []int64
	hasShape       bool
	data           []byte // the JSON value
	memory         place
	binarySize     int64
	hasBinary      bool
}

type output struct {
	name    string
	memory  place
	classes int
	binary  *bool
	params  map[string]any
}

// place is where in shared memory a tensor is.
type place struct {
	name         string
	offset, size uint64
	hasName      bool
	hasSize      bool
}

func (s *Server) newCall() *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = &call{server: s}
	}
	c.req.Received = time.Now()
	return c
}

func (c *call) free() {
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
	clear(c.inputs)
	clear(c.outputs)
	clear(c.tensors)
	clear(c.specs)
	clear(c.pieces)
	answer := c.answer[:0]
	if cap(answer) > 1<<20 {
		answer = nil // one huge answer must not stay for ever
	}
	*c = call{
		server: c.server, inputs: c.inputs[:0], outputs: c.outputs[:0], shapes: c.shapes[:0], tensors: c.tensors[:0],
		specs: c.specs[:0], leases: c.leases[:0], into: c.into[:0], buffers: c.buffers[:0], answer: answer, pieces: c.pieces[:0],
	}
	c.server.calls.Put(c)
}

// value is a parameter's: string, int64, uint64, float64 or bool.
func (s *scanner) value() (any, error) {
	switch s.peek() {
	case '"':
		return s.str()
	case 't', 'f':
		v, _, err := s.boolean()
		return v, err
	case '{', '[', 'n':
		return nil, nil //nolint:nilnil // not a parameter's value; the caller skips it and says so
	}
	n, err := s.number()
	switch {
	case err != nil:
		return nil, err
	case !n.isInt:
		return n.float, nil
	case n.negative || n.integer < 1<<63:
		return int64(n.integer), nil
	default:
		return n.integer, nil
	}
}

// parse reads the JSON of a request.
func (c *call) parse(text []byte) error {
	s := &scanner{b: text}
	if s.peek() == 0 {
		return parseError(s.fail("The document is empty."))
	}
	if err := s.expect('{', "request", "object"); err != nil {
		return parseError(err)
	}
	listed := false
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "id":
			if s.peek() != '"' {
				return invalid("Unable to parse 'id': attempt to access JSON non-string as string")
			}
			var err error
			c.req.ID, err = s.str()
			return err
		case "parameters":
			if err := s.expect('{', "parameters", "object"); err != nil {
				return err
			}
			return s.object(func(key []byte) error { return c.parameter(s, c.server.names.Get(key)) })
		case "inputs":
			listed = true
			if err := s.expect('[', "inputs", "array"); err != nil {
				return err
			}
			return s.array(func() error { return c.parseInput(s) })
		case "outputs":
			if err := s.expect('[', "outputs", "array"); err != nil {
				return err
			}
			return s.array(func() error { return c.parseOutput(s) })
		}
		_, err := s.skip()
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return parseError(err)
	}
	if !listed {
		return missing("inputs")
	}
	return nil
}

func missing(member string) error {
	return invalid("Unable to parse '%s': attempt to access non-existing object member '%s'", member, member)
}

func parseError(err error) error {
	if _, ok := err.(*syntaxError); ok { //nolint:errorlint // made by the scanner and never wrapped
		return invalid("failed to parse the request JSON buffer: %s", err.Error())
	}
	return err
}

func (c *call) parameter(s *scanner, key string) error {
	v, err := s.value()
	if err != nil {
		return err
	}
	if v == nil {
		if _, err := s.skip(); err != nil {
			return err
		}
		return invalid("parameter '%s' has invalid type. It should be either 'int', 'bool', 'string', or 'double'.", key)
	}
	wrong := func(want string) error {
		return invalid("Unable to parse '%s': attempt to access JSON non-%s as %s", key, want, want)
	}
	switch key {
	case "sequence_id":
		switch id := v.(type) {
		case string:
			if len(id) > maxCorrelation {
				return infer.Errorf(infer.Unsupported, "string correlation ID cannot be longer than %d characters", maxCorrelation)
			}
			c.req.Correlation = infer.CorrelationID{Str: id}
		default:
			n, ok := unsigned(v)
			if !ok {
				return wrong("string") // what a number that does not fit is then taken for
			}
			c.req.Correlation = infer.CorrelationID{Num: n}
		}
		return nil
	case "sequence_start", "sequence_end", "binary_data_output":
		b, ok := v.(bool)
		if !ok {
			return wrong("boolean")
		}
		switch key {
		case "sequence_start":
			c.req.SequenceStart = b
		case "sequence_end":
			c.req.SequenceEnd = b
		default:
			c.binary = b
		}
		return nil
	case "priority", "timeout":
		n, ok := unsigned(v)
		if !ok {
			return wrong("unsigned-integer")
		}
		if key == "priority" {
			c.req.Priority = n
		} else {
			c.req.Timeout = time.Duration(min(n, uint64(1<<63-1)/uint64(time.Microsecond))) * time.Microsecond
		}
		return nil
	}
	if strings.HasPrefix(key, reservedParam) {
		return invalid("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
	}
	c.setParameter(key, v)
	return nil
}

func (c *call) setParameter(key string, v any) {
	if c.req.Parameters == nil {
		c.req.Parameters = make(map[string]any)
	}
	c.req.Parameters[key] = v
}

func unsigned(v any) (uint64, bool) {
	switch n := v.(type) {
	case int64:
		return uint64(n), n >= 0
	case uint64:
		return n, true
	}
	return 0, false
}

// name reads a string that comes again with every request.
func (c *call) name(s *scanner, key string) (string, error) {
	if err := s.expect('"', key, "string"); err != nil {
		return "", err
	}
	b, err := s.text()
	if err != nil {
		return "", err
	}
	return c.server.names.Get(b), nil
}

func (c *call) parseInput(s *scanner) error {
	in := input{}
	first := len(c.shapes)
	if err := s.expect('{', "inputs", "object"); err != nil {
		return err
	}
	err := s.object(func(key []byte) error {
		var err error
		switch string(key) {
		case "name":
			in.name, err = c.name(s, "name")
		case "datatype":
			in.datatype, err = c.name(s, "datatype")
		case "shape":
			in.hasShape = true
			if err := s.expect('[', "shape", "array"); err != nil {
				return err
			}
			err = s.array(func() error {
				at := s.i
				n, err := s.number()
				if err != nil { // a value of another kind, or none
					s.i = at
					_, err = s.skip()
				}
				if err == nil && (!n.isInt || n.negative) {
					err = invalid("Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer")
				}
				c.shapes = append(c.shapes, int64(n.integer))
				return err
			})
		case "data":
			in.data, err = s.skip()
		case "parameters":
			if err := s.expect('{', "parameters", "object"); err != nil {
				return err
			}
			err = s.object(func(key []byte) error { return in.parameter(s, c.server.names.Get(key)) })
		default:
			_, err = s.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case in.name == "" || !validText(in.name):
		return missing("name")
	case in.datatype == "":
		return missing("datatype")
	case !in.hasShape:
		return missing("shape")
	}
	in.shape = c.shapes[first:len(c.shapes):len(c.shapes)]
	c.inputs = append(c.inputs, in)
	return nil
}

func (in *input) parameter(s *scanner, key string) error {
	v, err := s.value()
	if err != nil {
		return err
	}
	if v == nil {
		_, err := s.skip()
		return err
	}
	if key == paramBinaryLen {
		n, ok := unsigned(v)
		if !ok || n > 1<<62 {
			return invalid("Unable to parse '%s': attempt to access JSON non-unsigned-integer as unsigned-integer", key)
		}
		in.binarySize, in.hasBinary = int64(n), true
		return nil
	}
	_, err = in.memory.parameter(key, v)
	return err
}

// parameter takes one of the three that say where in shared memory a tensor is.
func (p *place) parameter(key string, v any) (taken bool, err error) {
	var ok bool
	want := "unsigned-integer"
	switch key {
	case paramRegion:
		want = "string"
		p.name, ok = v.(string)
		p.hasName = true
	case paramOffset:
		p.offset, ok = unsigned(v)
	case paramSize:
		p.size, ok = unsigned(v)
		p.hasSize = true
	default:
		return false, nil
	}
	if !ok {
		return true, invalid("Unable to parse '%s': attempt to access JSON non-%s as %s", key, want, want)
	}
	return true, nil
}

func (c *call) parseOutput(s *scanner) error {
	var out output
	if err := s.expect('{', "outputs", "object"); err != nil {
		return err
	}
	err := s.object(func(key []byte) error {
		var err error
		switch string(key) {
		case "name":
			out.name, err = c.name(s, "name")
		case "parameters":
			if err := s.expect('{', "parameters", "object"); err != nil {
				return err
			}
			err = s.object(func(key []byte) error { return out.parameter(s, c.server.names.Get(key)) })
		default:
			_, err = s.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case out.name == "" || !validText(out.name):
		return missing("name")
	case out.memory.hasName && out.classes > 0:
		return invalid("Output can't set both 'shared_memory_region' and 'classification'")
	case out.memory.hasName && out.binary != nil && *out.binary:
		return invalid("Output can't set both 'shared_memory_region' and 'binary_data'")
	}
	c.outputs = append(c.outputs, out)
	return nil
}

func (out *output) parameter(s *scanner, key string) error {
	v, err := s.value()
	if err != nil {
		return err
	}
	if v == nil {
		_, err := s.skip()
		return err
	}
	switch key {
	case paramBinary:
		b, ok := v.(bool)
		if !ok {
			return invalid("Unable to parse '%s': attempt to access JSON non-boolean as boolean", key)
		}
		out.binary = &b
		return nil
	case paramClasses:
		n, ok := unsigned(v)
		if !ok || n > 1<<31-1 {
			return invalid("Unable to parse '%s': attempt to access JSON non-unsigned-integer as unsigned-integer", key)
		}
		out.classes = int(n)
		return nil
	}
	taken, err := out.memory.parameter(key, v)
	if !taken && err == nil {
		if out.params == nil {
			out.params = make(map[string]any)
		}
		out.params[key] = v
	}
	return err
}
