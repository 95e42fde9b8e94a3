// Package intern keeps strings that come again and again.
package intern

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxNames bounds the names kept; what comes after is not kept.
const maxNames = 4096

// Names keeps the names of models, tensors and types, which come again with every request, so that
// they cost no allocation. The zero value is ready.
type Names struct {
	names atomic.Pointer[map[string]string]
	mu    sync.Mutex // serialises writers; readers never wait
}

// Get returns b as a string; b may change afterwards.
func (n *Names) Get(b []byte) string {
	if m := n.names.Load(); m != nil {
		if s, ok := (*m)[string(b)]; ok {
			return s
		}
	}
	s := string(b)
	if len(s) > 256 {
		return s
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[string]string{}
	if m := n.names.Load(); m != nil {
		if len(*m) >= maxNames {
			return s
		}
		next = maps.Clone(*m)
	}
	next[s] = s
	n.names.Store(&next)
	return s
}
