package v2http

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/shm"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/trace"
)

// headerLength is the header that tells how much of a body is JSON.
const headerLength = "Inference-Header-Content-Length"

// infer runs a model.
func (s *Server) infer(w http.ResponseWriter, req *http.Request, r route) error {
	s.underWay.Begin()
	defer func() { s.underWay.End(s.stopping.Load()) }()
	version, err := parseVersion(r.version)
	if err != nil {
		return err
	}
	m, err := s.cfg.Catalog.Model(r.model, version)
	if err != nil {
		return err
	}
	if m.Decoupled {
		return infer.Errorf(infer.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	c := s.newCall()
	defer c.free()
	c.req.Model, c.req.Version, c.req.Scope = r.model, version, s.cfg.Scope
	if err := c.read(req); err != nil {
		if infer.CodeOf(err) == infer.Unsupported {
			w.Header().Set("Accept-Encoding", "gzip, deflate")
		}
		return err
	}
	ctx := trace.WithParent(req.Context(), req.Header.Get("Traceparent"))
	resp, err := infer.Await(ctx, s.cfg.Inferer, &c.req)
	if err != nil {
		return err
	}
	defer resp.Release()
	return c.respond(w, req, resp)
}

// read takes the body apart.
func (c *call) read(req *http.Request) error {
	header := req.Header[headerLength]
	given := len(header) > 0
	boundary := 0
	if given {
		n, err := strconv.ParseInt(header[0], 10, 32)
		if err == nil && n > 0 {
			boundary = int(n)
		}
	}
	b, body, err := c.server.readBody(req, boundary)
	if err != nil {
		return err
	}
	c.buffers = append(c.buffers, b)
	if c.server.cfg.ForwardHeaders != nil {
		if err := c.forward(req.Header); err != nil {
			return err
		}
	}
	if given && header[0] == "0" {
		return c.readRaw(body)
	}
	text := body
	if given {
		if boundary == 0 || boundary > len(body) {
			return invalid("inference header size should be in range (0, %d), got: %s", len(body), header[0])
		}
		text, c.tail, c.hasTail = body[:boundary], body[boundary:], true
	}
	if limit := c.server.cfg.MaxInputSize; int64(len(text)) > limit {
		return invalid("Request JSON size of %d bytes exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", len(text), limit)
	}
	if err := c.parse(text); err != nil {
		return err
	}
	return c.resolve(c.req.Model)
}

func (c *call) readRaw(body []byte) error {
	if limit := c.server.cfg.MaxInputSize; int64(len(body)) > limit {
		return invalid("Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", len(body), limit)
	}
	if body == nil {
		body = []byte{}
	}
	c.req.Raw, c.binary = body, true
	return nil
}

// wanted finds what the client asked of an output; nil: nothing in particular.
func (c *call) wanted(name string) (int, *output) {
	for i := range c.outputs {
		if c.outputs[i].name == name {
			return i, &c.outputs[i]
		}
	}
	return -1, nil
}

// respond writes the response.
func (c *call) respond(w http.ResponseWriter, req *http.Request, resp *infer.Response) error {
	b := append(c.answer[:0], '{')
	if c.req.ID != "" {
		b = append(appendQuoted(append(b, `"id":`...), c.req.ID), ',')
	}
	b = appendQuoted(append(b, `"model_name":`...), resp.Model)
	b = append(b, `,"model_version":"`...)
	b = append(strconv.AppendInt(b, resp.Version, 10), '"')
	if len(resp.Parameters) > 0 {
		b = append(b, `,"parameters":{`...)
		first := len(b)
		for k, v := range resp.Parameters {
			b = appendQuoted(b, k)
			b = appendValue(append(b, ':'), v)
			b = append(b, ',')
		}
		b = append(b[:max(first, len(b)-1)], '}')
	}
	b = append(b, `,"outputs":[`...)
	pieces := append(c.pieces[:0], nil)
	for i := range resp.Outputs {
		if i > 0 {
			b = append(b, ',')
		}
		var tail []byte
		var err error
		if b, tail, err = c.appendOutput(b, &resp.Outputs[i]); err != nil {
			return err
		}
		if tail != nil {
			pieces = append(pieces, tail)
		}
	}
	b = append(b, "]}"...)
	c.answer, c.pieces, pieces[0] = b, pieces, b
	if err := c.intact(); err != nil {
		return err
	}
	return c.write(w, req, pieces, len(b))
}

// appendOutput describes an output and returns the bytes that follow the JSON; nil: none do.
func (c *call) appendOutput(b []byte, t *tensor.Tensor) (text, tail []byte, err error) {
	b = appendQuoted(append(b, `{"name":`...), t.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, t.DataType.String()...)
	b = append(b, `","shape":[`...)
	first := len(b)
	for _, d := range t.Shape {
		b = append(strconv.AppendInt(b, d, 10), ',')
	}
	b = closeList(b, first)
	binary := c.binary
	i, want := c.wanted(t.Name)
	if want == nil || c.into[i] == nil {
		c.own(t)
	}
	if want != nil {
		if c.into[i] != nil {
			return append(b, '}'), nil, c.commit(i, t)
		}
		if want.binary != nil {
			binary = *want.binary
		}
	}
	if binary {
		b = append(b, `,"parameters":{"binary_data_size":`...)
		b = append(strconv.AppendInt(b, int64(len(t.Data)), 10), "}}"...)
		tail = t.Data
		if tail == nil {
			tail = []byte{}
		}
		return b, tail, nil
	}
	if t.DataType == tensor.FP16 || t.DataType == tensor.BF16 {
		return nil, nil, invalid("sending %s data via JSON is not supported. Please use the binary data format for output %s", t.DataType, t.Name)
	}
	if b, err = appendData(append(b, `,"data":`...), t); err != nil {
		return nil, nil, infer.Errorf(infer.Internal, "output '%s': %v", t.Name, err)
	}
	return append(b, '}'), nil, nil
}

// commit writes output i to its region.
func (c *call) commit(i int, t *tensor.Tensor) error {
	lease := c.into[i]
	if len(t.Data) > len(lease.Bytes) {
		return infer.Errorf(infer.Internal,
			"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
			t.Name, len(lease.Bytes), len(t.Data))
	}
	if !tensor.SameMemory(t.Data, lease.Bytes) {
		copy(lease.Bytes, t.Data)
	}
	return nil
}

// own copies an output that goes into the message out of the region of an input, whose owner could still change it.
func (c *call) own(t *tensor.Tensor) {
	if !slices.ContainsFunc(c.leases, func(l *shm.Lease) bool { return l.Lends(t.Data) }) {
		return
	}
	b := c.server.cfg.Pool.Get(len(t.Data))
	c.buffers = append(c.buffers, b)
	copy(b.Bytes, t.Data)
	t.Data = b.Bytes
}

// intact tells whether everything in shared memory was really there.
func (c *call) intact() error {
	for _, leases := range [...][]*shm.Lease{c.leases, c.into} {
		for _, l := range leases {
			if err := l.Intact(); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendQuoted(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case float64:
		return appendFloat(b, v)
	}
	return append(b, "null"...)
}

// write sends the JSON and the tensors behind it.
func (c *call) write(w http.ResponseWriter, req *http.Request, pieces [][]byte, jsonLen int) error {
	h := w.Header()
	h["Content-Type"] = typeJSON
	if len(pieces) > 1 {
		h["Content-Type"] = typeBinary
		h[headerLength] = []string{strconv.Itoa(jsonLen)}
	}
	if encoding := accepted(req.Header["Accept-Encoding"]); encoding != "" {
		body, err := compress(encoding, pieces)
		if err != nil {
			return infer.Errorf(infer.Internal, "compress the response: %v", err)
		}
		h["Content-Encoding"] = []string{encoding}
		pieces = [][]byte{body}
	}
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	h["Content-Length"] = []string{strconv.Itoa(total)}
	// Whatever fits the connection's buffer leaves in one write; a large tensor is written from where it is.
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return nil //nolint:nilerr // the client is gone: nobody is left to be told
		}
	}
	return nil
}
