package v2http

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
)

// resolve gives inputs their bytes and outputs their places.
func (c *call) resolve(model string) error {
	for i := range c.inputs {
		in := &c.inputs[i]
		t, err := tensor.Parse(in.datatype)
		if err != nil {
			return invalid("invalid datatype '%s' for input '%s' for model '%s'", in.datatype, in.name, model)
		}
		data, err := c.inputData(in, t, model)
		if err != nil {
			return err
		}
		c.tensors = append(c.tensors, tensor.Tensor{Name: in.name, DataType: t, Shape: in.shape, Data: data})
	}
	if len(c.tail) > 0 {
		return invalid("unexpected additional input data for model '%s'", model)
	}
	for i := range c.outputs {
		out := &c.outputs[i]
		spec := infer.OutputSpec{Name: out.name, Classes: out.classes, Parameters: out.params}
		var lease *shm.Lease
		if out.memory.hasName {
			if !out.memory.hasSize {
				return invalid("'%s' is required with '%s' for output '%s'", paramSize, paramRegion, out.name)
			}
			var err error
			if lease, err = c.server.cfg.Regions.Output(out.memory.name, out.memory.offset, out.memory.size); err != nil {
				return err
			}
			spec.Into = lease.Bytes
		}
		c.into = append(c.into, lease)
		c.specs = append(c.specs, spec)
	}
	c.req.Inputs, c.req.Outputs = c.tensors, c.specs
	return nil
}

func (c *call) inputData(in *input, t tensor.DataType, model string) ([]byte, error) {
	var room [3]string
	set := room[:0]
	if in.data != nil {
		set = append(set, "'data'")
	}
	if in.hasBinary {
		set = append(set, "'binary_data_size'")
	}
	if in.memory.hasName {
		set = append(set, "'shared_memory_region'")
	}
	if len(set) != 1 {
		const text = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But "
		if len(set) == 0 {
			return nil, invalid(text + "no field is set")
		}
		return nil, invalid(text+"set %s", strings.Join(set, " "))
	}
	switch {
	case in.memory.hasName:
		if !in.memory.hasSize {
			return nil, invalid("'%s' is required with '%s' for input '%s'", paramSize, paramRegion, in.name)
		}
		lend := c.server.cfg.Regions.Input
		if t == tensor.Bytes {
			lend = c.server.cfg.Regions.Stable
		}
		lease, err := lend(in.memory.name, in.memory.offset, in.memory.size)
		if err != nil {
			return nil, err
		}
		c.leases, c.req.Shared = append(c.leases, lease), true
		return lease.Bytes, nil
	case in.hasBinary:
		if !c.hasTail {
			return nil, invalid("must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' when passing inputs in binary data format")
		}
		if in.binarySize > int64(len(c.tail)) {
			return nil, invalid("unexpected size for input '%s', expecting %d additional bytes for model '%s'", in.name, in.binarySize-int64(len(c.tail)), model)
		}
		data := c.tail[:in.binarySize:in.binarySize]
		c.tail = c.tail[in.binarySize:]
		return data, nil
	}
	return c.jsonData(in, t, model)
}

func (c *call) jsonData(in *input, t tensor.DataType, model string) ([]byte, error) {
	if t == tensor.FP16 || t == tensor.BF16 {
		return nil, invalid("receiving %s data via JSON is not supported. Please use the binary data format for input %s", t, in.name)
	}
	n, err := tensor.ElementCount(in.shape)
	switch {
	case err != nil && slices.ContainsFunc(in.shape, func(d int64) bool { return d < 0 }):
		return nil, invalid("invalid shape for input '%s': shape %s contains one or more invalid dimensions", in.name, tensor.FormatShape(in.shape))
	case err != nil:
		return nil, invalid("invalid shape for input '%s': shape %s causes total element count to exceed maximum size of %d",
			in.name, tensor.FormatShape(in.shape), int64(math.MaxInt64))
	}
	size := 2*int64(len(in.data)) + 8 // of BYTES: a string's length takes more room than its quotes did
	if unit := int64(t.Size()); t != tensor.Bytes {
		if n > math.MaxInt64/unit {
			return nil, invalid("byte size overflow for input '%s': element count (%d) * data type size (%d) exceeds maximum allowed size (%d)",
				in.name, n, unit, int64(math.MaxInt64))
		}
		if size = n * unit; size > c.server.cfg.MaxInputSize {
			return nil, invalid("JSON input '%s' has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.",
				in.name, size, c.server.cfg.MaxInputSize)
		}
	}
	if n > int64(len(in.data)) { // an element takes a byte at least
		return nil, misshapen()
	}
	b := c.server.cfg.Pool.Get(int(size))
	c.buffers = append(c.buffers, b)
	used, err := parseData(in.data, t, n, b.Bytes)
	if err != nil {
		return nil, parseError(err)
	}
	if t == tensor.Bytes {
		return used, nil
	}
	return b.Bytes, nil
}

// forward turns matching headers into parameters. Their names come in lower case, since how the client wrote them is lost.
func (c *call) forward(header http.Header) error {
	for key, values := range header {
		if len(values) == 0 || !c.server.cfg.ForwardHeaders.MatchString(key) {
			continue
		}
		key = strings.ToLower(key)
		switch {
		case key == "sequence_id", key == "priority", key == "timeout", key == "headers", key == "binary_data_output",
			strings.HasPrefix(key, reservedParam):
			return invalid("Header '%s' is reserved for Triton usage and cannot be forwarded.", key)
		}
		c.setParameter(key, values[0])
	}
	return nil
}

// parseVersion reads a version as the protocol writes it: "" is the policy's choice.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, invalid("failed to get model version from specified version string '%s' (details: stoll), version should be an integral value > 0", s)
	}
	if v <= 0 {
		return 0, invalid("invalid model version specified '%s' , version should be an integral value > 0", s)
	}
	return v, nil
}
