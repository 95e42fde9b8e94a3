package v2client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/mem"

	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/internal/grpcpool"
)

const headerLength = "Inference-Header-Content-Length"

// HTTP talks HTTP with one server, tensors as bytes behind the JSON. Safe for concurrent use.
type HTTP struct {
	base      string
	headers   map[string]string
	transport *http.Transport
	pool      grpcpool.Pool // of answers
}

// NewHTTP makes a client of a server's base address, http://host:port. Connections are kept for as many calls
// as run at once.
func NewHTTP(base string, cfg Config) *HTTP {
	return &HTTP{base: strings.TrimSuffix(base, "/"), headers: cfg.Headers, transport: &http.Transport{
		MaxIdleConnsPerHost: 1024, DisableCompression: true, TLSClientConfig: tlsOf(cfg), Proxy: http.ProxyFromEnvironment,
	}}
}

func (h *HTTP) decorate(req *http.Request) {
	for k, v := range h.headers {
		req.Header.Set(k, v)
	}
}

func tlsOf(cfg Config) *tls.Config {
	if cfg.TLS == nil {
		return nil
	}
	return cfg.TLS.Clone()
}

// Close ends idle connections.
func (h *HTTP) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// StatusError is an answer that is an error.
type StatusError struct {
	Status  int
	Message string
}

// Error is the server's message.
func (e *StatusError) Error() string { return e.Message }

func statusError(resp *http.Response, body []byte) *StatusError {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		e.Error = resp.Status
	}
	return &StatusError{Status: resp.StatusCode, Message: e.Error}
}

type jsonTensor struct {
	Name       string         `json:"name"`
	Datatype   string         `json:"datatype,omitempty"`
	Shape      []int64        `json:"shape,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Data       any            `json:"data,omitempty"`
}

type jsonRequest struct {
	ID         string         `json:"id,omitempty"`
	Parameters map[string]any `json:"parameters"`
	Inputs     []jsonTensor   `json:"inputs"`
	Outputs    []jsonTensor   `json:"outputs,omitempty"`
}

type jsonResponse struct {
	ID           string         `json:"id"`
	ModelName    string         `json:"model_name"`
	ModelVersion string         `json:"model_version"`
	Parameters   jsonParameters `json:"parameters"`
	Outputs      []struct {
		Name       string  `json:"name"`
		Datatype   string  `json:"datatype"`
		Shape      []int64 `json:"shape"`
		Parameters struct {
			Size *int `json:"binary_data_size"`
		} `json:"parameters"`
		Data json.RawMessage `json:"data"`
	} `json:"outputs"`
}

// jsonParameters are values as gRPC would bring them: whole numbers stay whole.
type jsonParameters map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (p *jsonParameters) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode((*map[string]any)(p)); err != nil {
		return err
	}
	for k, v := range *p {
		n, ok := v.(json.Number)
		if !ok {
			continue
		}
		var err error
		if (*p)[k], err = n.Int64(); err == nil {
			continue
		}
		if (*p)[k], err = strconv.ParseUint(n.String(), 10, 64); err == nil {
			continue
		}
		if (*p)[k], err = n.Float64(); err != nil {
			return fmt.Errorf("parameter %q: %w", k, err)
		}
	}
	return nil
}

// Infer asks once.
func (h *HTTP) Infer(ctx context.Context, req *Request) (*Response, error) {
	head, err := req.json()
	if err != nil {
		return nil, err
	}
	parts := []io.Reader{bytes.NewReader(head)}
	total := len(head)
	for i := range req.Inputs {
		if req.Inputs[i].Place.Region == "" && !req.JSONInputs {
			parts = append(parts, bytes.NewReader(req.Inputs[i].Data))
			total += len(req.Inputs[i].Data)
		}
	}
	path := "/v2/models/" + url.PathEscape(req.Model)
	if req.Version > 0 {
		path += "/versions/" + strconv.FormatInt(req.Version, 10)
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+path+"/infer", io.MultiReader(parts...))
	if err != nil {
		return nil, err
	}
	hr.ContentLength = int64(total)
	if req.JSONInputs {
		hr.Header.Set("Content-Type", "application/json")
	} else {
		hr.Header.Set(headerLength, strconv.Itoa(len(head)))
		hr.Header.Set("Content-Type", "application/octet-stream")
	}
	h.decorate(hr)
	resp, err := h.transport.RoundTrip(hr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := h.read(resp)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer body.Free()
		return nil, statusError(resp, body.ReadOnlyData())
	}
	r, err := parseHTTP(body.ReadOnlyData(), resp.Header.Get(headerLength))
	if err != nil {
		body.Free()
		return nil, &AnswerError{ID: req.ID, Message: err.Error()}
	}
	r.memory = body
	return r, nil
}

// maxUntold bounds an answer that does not tell its length.
const maxUntold = 256 << 20

// read takes an answer into lent memory; one whose length is not told, into memory of its own.
func (h *HTTP) read(resp *http.Response) (mem.Buffer, error) {
	n := resp.ContentLength
	if n < 0 {
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxUntold+1))
		if len(b) > maxUntold {
			return nil, fmt.Errorf("more than %d bytes came, and no length", maxUntold)
		}
		return mem.SliceBuffer(b), err
	}
	if n > math.MaxInt32 {
		return nil, fmt.Errorf("%d bytes are more than any answer may have", n)
	}
	b := h.pool.Get(int(n))
	if _, err := io.ReadFull(resp.Body, *b); err != nil {
		h.pool.Put(b)
		return nil, err
	}
	return mem.NewBuffer(b, &h.pool), nil
}

func (r *Request) json() ([]byte, error) {
	j := jsonRequest{ID: r.ID, Parameters: r.all(), Inputs: []jsonTensor{}}
	j.Parameters["binary_data_output"] = !r.JSONOutputs
	for i := range r.Inputs {
		in := &r.Inputs[i]
		p := in.Place.all()
		var data any
		switch {
		case p != nil:
		case r.JSONInputs:
			var err error
			if data, err = elements(&in.Tensor); err != nil {
				return nil, err
			}
		default:
			p = map[string]any{"binary_data_size": len(in.Data)}
		}
		shape := in.Shape
		if shape == nil {
			shape = []int64{}
		}
		j.Inputs = append(j.Inputs, jsonTensor{in.Name, in.DataType.String(), shape, p, data})
	}
	for _, out := range r.Outputs {
		p := out.Place.all()
		if out.Classes > 0 {
			p = map[string]any{"classification": out.Classes}
		}
		j.Outputs = append(j.Outputs, jsonTensor{Name: out.Name, Parameters: p})
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("write the request as JSON: %w", err)
	}
	return b, nil
}

func parseHTTP(body []byte, header string) (*Response, error) {
	head, tail := body, []byte(nil)
	if header != "" {
		n, err := strconv.Atoi(header)
		if err != nil || n < 0 || n > len(body) {
			return nil, fmt.Errorf("the answer says %s: %q of %d bytes", headerLength, header, len(body))
		}
		head, tail = body[:n], body[n:]
	}
	var j jsonResponse
	if err := json.Unmarshal(head, &j); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	r := &Response{Model: j.ModelName, Version: j.ModelVersion, ID: j.ID, Parameters: j.Parameters, Final: true}
	for _, o := range j.Outputs {
		t, err := tensor.Parse(o.Datatype)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", o.Name, err)
		}
		out := tensor.Tensor{Name: o.Name, DataType: t, Shape: o.Shape}
		if size := o.Parameters.Size; size != nil {
			if *size < 0 || *size > len(tail) {
				return nil, fmt.Errorf("output %q: %d bytes are announced, %d are left", o.Name, *size, len(tail))
			}
			out.Data, tail = tail[:*size:*size], tail[*size:]
		} else if o.Data != nil {
			if out.Data, err = fromElements(t, o.Data); err != nil {
				return nil, fmt.Errorf("output %q: %w", o.Name, err)
			}
		}
		r.Outputs = append(r.Outputs, out)
	}
	return r, nil
}
