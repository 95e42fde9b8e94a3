package repository

import (
	"bytes"
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// cache keeps responses for equal requests, the least recently used of them
// giving way.
type cache struct {
	limit int

	mu      sync.Mutex
	size    int
	order   *list.List // of *cached, most recently used first
	entries map[digest]*list.Element
}

// digest names a request: model, version and their load, wanted outputs and inputs.
type digest [sha256.Size]byte

// cached is a response. Its memory is never written again, so that those who
// read it need not hold a lock.
type cached struct {
	key        digest
	size       int
	outputs    []tensor.Tensor
	parameters map[string]any
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), entries: make(map[digest]*list.Element)}
}

func digestOf(v *version, req *infer.Request, inputs []tensor.Tensor) digest {
	h := sha256.New()
	var n [8]byte
	number := func(i int64) {
		binary.LittleEndian.PutUint64(n[:], uint64(i))
		_, _ = h.Write(n[:]) // a hash takes everything
	}
	text := func(b []byte) {
		number(int64(len(b)))
		_, _ = h.Write(b)
	}
	text([]byte(v.id))
	number(v.number)
	number(v.edition())
	number(int64(len(req.Outputs)))
	for i := range req.Outputs {
		text([]byte(req.Outputs[i].Name))
	}
	sorted := slices.Clone(inputs)
	slices.SortFunc(sorted, func(a, b tensor.Tensor) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted {
		t := &sorted[i]
		text([]byte(t.Name))
		number(int64(t.DataType))
		number(int64(len(t.Shape)))
		for _, d := range t.Shape {
			number(d)
		}
		text(t.Data)
	}
	var d digest
	h.Sum(d[:0])
	return d
}

func (c *cache) get(key digest) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	entry, _ := e.Value.(*cached)
	return entry
}

// put keeps a copy of a response, unless it is larger than the whole cache.
func (c *cache) put(key digest, r *infer.Response) (size int, ok bool) {
	entry := &cached{key: key, size: 256, parameters: maps.Clone(r.Parameters)}
	for i := range r.Outputs {
		o := r.Outputs[i]
		entry.size += len(o.Data) + 8*len(o.Shape) + len(o.Name)
	}
	if entry.size > c.limit {
		return entry.size, false
	}
	for i := range r.Outputs {
		o := r.Outputs[i]
		o.Shape, o.Data = slices.Clone(o.Shape), bytes.Clone(o.Data)
		entry.outputs = append(entry.outputs, o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[key]; there {
		return entry.size, true
	}
	c.entries[key] = c.order.PushFront(entry)
	c.size += entry.size
	for c.size > c.limit {
		last := c.order.Back()
		old, _ := c.order.Remove(last).(*cached)
		delete(c.entries, old.key)
		c.size -= old.size
	}
	return entry.size, true
}
