package server_test

import (
	"runtime"
	"testing"

	"github.com/vedette/vedette/infer/server"
)

func TestMemoryGoesBackWhenItIsQuiet(t *testing.T) {
	const burst = 256 << 20
	runtime.GC()
	look, heap := server.Idle()
	before := heap()
	func() {
		memory := make([]byte, burst)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		look(1)
		if got := heap(); got < before+burst/2 {
			t.Errorf("%d MiB are in use, and %d before, with a burst of %d", got>>20, before>>20, burst>>20)
		}
		runtime.KeepAlive(memory)
	}()
	look(1)
	if got := heap(); got > before+burst/2 {
		t.Errorf("%d MiB are in use after a quiet time, %d before", got>>20, before>>20)
	}
}
