package server_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/vedette/vedette/infer/server"
)

func TestMemoryGoesBackWhenItIsQuiet(t *testing.T) {
	const burst = 256 << 20
	debug.FreeOSMemory()
	debug.FreeOSMemory() // so that what other tests left does not count
	look, heap := server.Idle()
	before := heap()
	func() {
		memory := make([]byte, burst)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		runtime.KeepAlive(memory)
	}()
	look(1) // a request came
	look(1)
	if got := heap(); got > before+burst/2 {
		t.Errorf("%d MiB are in use after a quiet time, %d before", got>>20, before>>20)
	}
}
