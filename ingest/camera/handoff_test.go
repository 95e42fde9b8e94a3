package camera

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/decode"
)

func TestAHandoffLosesNothingAndEndsOnBothSides(t *testing.T) {
	h := newHandoff()
	const units = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range units {
			h.put(decode.Unit{AccessUnit: ingest.AccessUnit{Ticks: ingest.Ticks(i), Data: make([]byte, i*37%200_000)}})
		}
		h.end()
	})
	for i := range units {
		u, err := h.take()
		if err != nil || u.Ticks != ingest.Ticks(i) {
			t.Fatalf("unit %d is %d, %v", i, u.Ticks, err)
		}
		h.mu.Lock()
		if len(h.units) > maxHandoff || h.bytes > maxHandoffBytes+200_000 {
			t.Errorf("%d units of %d bytes wait", len(h.units), h.bytes)
		}
		h.mu.Unlock()
	}
	if _, err := h.take(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
	wg.Wait()

	h = newHandoff()
	full := make(chan struct{})
	wg.Go(func() {
		for i := range maxHandoff + 1 { // the last has no room
			if i == maxHandoff {
				close(full)
			}
			h.put(decode.Unit{})
		}
	})
	<-full
	h.stop()
	wg.Wait()
	if _, err := h.take(); !errors.Is(err, io.EOF) {
		t.Errorf("after stop: %v", err)
	}
}

func TestCellsUnderMasksAreIgnoredByTheGate(t *testing.T) {
	half := ingest.Mask{{X: 0, Y: 0}, {X: 0.5, Y: 0}, {X: 0.5, Y: 1}, {X: 0, Y: 1}}
	top := ingest.Mask{{X: 0, Y: 0}, {X: 1, Y: 0}, {X: 1, Y: 0.5}, {X: 0, Y: 0.5}}
	g := newGate(ingest.Camera{Masks: []ingest.Mask{half}, Gate: &ingest.Gate{Ignore: []ingest.Mask{top}}})
	counted := 0
	for _, ignored := range g.ignored {
		if !ignored {
			counted++
		}
	}
	if want := len(g.ignored) / 4; counted != want {
		t.Errorf("%d cells count, want %d", counted, want)
	}
	if newGate(ingest.Camera{}) != nil {
		t.Error("a gate nobody asked for")
	}
}
