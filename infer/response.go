package infer

import "github.com/vedette/vedette/infer/tensor"

// Response is one answer of a model. Whoever receives it calls Release exactly
// once when its outputs are no longer read; nothing of it may be kept.
type Response struct {
	ID      string
	Model   string
	Version int64
	// Parameters are the model's own: string, int64, bool, float64.
	Parameters map[string]any
	// Outputs in the model's order, only those asked for.
	Outputs []tensor.Tensor

	pool      *tensor.Pool
	buffers   []*tensor.Buffer
	onRelease []func()
	recycle   func(*Response)
	shapes    []int64
}

// NewResponse makes a response whose buffers come from pool (nil allocates).
// Recycle, if not nil, gets the emptied response back after its release, to be
// used again. A zero Response works too.
func NewResponse(pool *tensor.Pool, recycle func(*Response)) *Response {
	return &Response{pool: pool, recycle: recycle}
}

// Alloc lends n bytes of arbitrary content that live until Release.
func (r *Response) Alloc(n int) []byte {
	b := r.pool.Get(n)
	r.buffers = append(r.buffers, b)
	return b.Bytes
}

// Keep takes over a buffer that outputs may be views of; it is released with
// the response.
func (r *Response) Keep(b *tensor.Buffer) { r.buffers = append(r.buffers, b) }

// Add appends an output with memory of its own and returns that memory to be
// filled. The shape is copied.
func (r *Response) Add(name string, t tensor.DataType, shape []int64, size int) []byte {
	data := r.Alloc(size)
	r.AddView(name, t, shape, data)
	return data
}

// AddView appends an output whose bytes live elsewhere until Release. The
// shape is copied.
func (r *Response) AddView(name string, t tensor.DataType, shape []int64, data []byte) {
	r.Outputs = append(r.Outputs, tensor.Tensor{Name: name, DataType: t, Shape: r.keepShape(shape), Data: data})
}

// Output finds an output by name, nil if there is none.
func (r *Response) Output(name string) *tensor.Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// OnRelease adds what is to be done when the outputs are no longer read.
func (r *Response) OnRelease(f func()) { r.onRelease = append(r.onRelease, f) }

// Release ends the receiver's use of the response. Nil is allowed.
func (r *Response) Release() {
	if r == nil {
		return
	}
	for i, b := range r.buffers {
		b.Release()
		r.buffers[i] = nil
	}
	for i := len(r.onRelease) - 1; i >= 0; i-- {
		r.onRelease[i]()
		r.onRelease[i] = nil
	}
	recycle := r.recycle
	clear(r.Outputs)
	*r = Response{
		Outputs: r.Outputs[:0], pool: r.pool, buffers: r.buffers[:0],
		onRelease: r.onRelease[:0], recycle: r.recycle, shapes: r.shapes[:0],
	}
	if recycle != nil {
		recycle(r)
	}
}

// keepShape copies a shape into memory that is used again with the response.
func (r *Response) keepShape(shape []int64) []int64 {
	if len(r.shapes)+len(shape) > cap(r.shapes) {
		// Earlier outputs keep the old array; only its reuse is lost.
		r.shapes = make([]int64, 0, max(16, 2*cap(r.shapes), len(shape)))
	}
	n := len(r.shapes)
	r.shapes = append(r.shapes, shape...)
	return r.shapes[n:len(r.shapes):len(r.shapes)]
}
