package camera

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/vedette/vedette/ingest"
)

// Mint makes stream epochs, unique for ever: the box's boot, the moment of that boot at which this
// sidecar started, and a counter.
type Mint struct {
	instance string
	count    atomic.Uint64
}

// NewMint reads the identity of the box's boot.
func NewMint() *Mint {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id, _, _ := strings.Cut(string(boot), "-")
	if err != nil || id == "" {
		id = rand.Text()[:8] // a hardened service cannot see /proc/sys
	}
	return &Mint{instance: fmt.Sprintf("%s-%x", id, int64(ingest.Now().Mono))}
}

// Instance identifies this run of the sidecar; every epoch's ID begins with it.
func (m *Mint) Instance() string { return m.instance }

// New opens an epoch that counts media time from origin.
func (m *Mint) New(reason ingest.EpochReason, origin ingest.Ticks) *ingest.Epoch {
	return &ingest.Epoch{ID: fmt.Sprintf("%s-%d", m.instance, m.count.Add(1)), Reason: reason, Origin: origin}
}
