package pipeline

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
)

// openSlots are the slots that the ingest sidecar has open now. It tells of them once, when it opens them; a lane that is
// opened later, because a camera was switched off and on again before the sidecar noticed, is given them from here.
type openSlots struct {
	mu   sync.Mutex // guards what follows
	open map[string]addressedSlots
}

// addressedSlots are of the camera that had an address when they were opened.
type addressedSlots struct {
	epochOpened
	address string
}

// put remembers slots in place of a camera's others. The file stays the caller's.
func (o *openSlots) put(m *ingestv1.SlotsOpened, file *os.File, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropLocked(m.GetCamera())
	if own, err := duplicate(file); err == nil { // else the camera's next epoch brings others
		o.open[m.GetCamera()] = addressedSlots{epochOpened{slots: m, file: own}, address}
	}
}

// forget forgets the slots of a stream epoch.
func (o *openSlots) forget(camera, epoch string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[camera].slots.GetStreamEpoch() == epoch {
		o.dropLocked(camera)
	}
}

// clear forgets all of them.
func (o *openSlots) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for camera := range o.open {
		o.dropLocked(camera)
	}
}

// offer gives a new lane its camera's slots, if there are any: not those of another camera that had its name before.
func (o *openSlots) offer(l *lane, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m, ok := o.open[l.camera]
	if !ok || m.address != address {
		return
	}
	if own, err := duplicate(m.file); err == nil && !l.put(epochOpened{slots: m.slots, file: own}) {
		_ = own.Close()
	}
}

func (o *openSlots) dropLocked(camera string) {
	if m, ok := o.open[camera]; ok {
		_ = m.file.Close()
		delete(o.open, camera)
	}
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
