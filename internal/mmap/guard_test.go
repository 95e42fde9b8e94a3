package mmap_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vedette/vedette/internal/mmap"
)

// object makes a file as a client's shared memory is one.
func object(t *testing.T, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func guarded(t *testing.T, f *os.File, offset, size int64) *mmap.Guarded {
	t.Helper()
	g, err := mmap.MapGuarded(f, offset, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func TestAGuardedMappingIsTheFile(t *testing.T) {
	page := os.Getpagesize()
	data := bytes.Repeat([]byte{1, 2, 3}, page)
	f := object(t, data)
	g := guarded(t, f, int64(page)+5, 100)
	if !bytes.Equal(g.Bytes(), data[page+5:page+105]) || cap(g.Bytes()) != 100 {
		t.Errorf("got %v", g.Bytes())
	}
	copy(g.Bytes(), "written")
	got := make([]byte, 7)
	if _, err := f.ReadAt(got, int64(page)+5); err != nil || string(got) != "written" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.Remove(f.Name()); err != nil { // what is unlinked lives on in its mapping
		t.Fatal(err)
	}
	if string(g.Bytes()[:7]) != "written" || g.Lost() {
		t.Error("the memory went with its name")
	}
	if err := g.Close(); err != nil || g.Close() != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotLieWithinTheFileIsRefused(t *testing.T) {
	f := object(t, make([]byte, 100))
	for _, c := range [][2]int64{{0, 101}, {100, 1}, {-1, 2}, {0, 0}, {50, -1}, {1 << 62, 1 << 62}} {
		if g, err := mmap.MapGuarded(f, c[0], c[1]); err == nil {
			_ = g.Close()
			t.Errorf("%d bytes from %d on were mapped", c[1], c[0])
		}
	}
}

func TestAFileCutShortReadsAsZerosAndIsLost(t *testing.T) {
	page := os.Getpagesize()
	f := object(t, bytes.Repeat([]byte{7}, 4*page))
	g, other := guarded(t, f, 0, int64(4*page)), guarded(t, f, 0, int64(page))
	if err := f.Truncate(int64(page) + 10); err != nil {
		t.Fatal(err)
	}
	if g.Bytes()[page+5] != 7 || g.Lost() {
		t.Error("what is still there is lost")
	}
	if g.Bytes()[2*page+1] != 0 || !g.Lost() {
		t.Error("what is gone is not lost")
	}
	g.Bytes()[3*page] = 9 // what is written there reaches nobody
	if info, err := f.Stat(); err != nil || info.Size() != int64(page)+10 || g.Bytes()[3*page] != 9 {
		t.Errorf("the file has %v, %v", info, err)
	}
	if g.Bytes()[0] != 7 || other.Lost() {
		t.Error("the loss reaches further than the mapping's end")
	}
	// The next mapping in its place begins anew.
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if again := guarded(t, f, 0, 10); again.Lost() || again.Bytes()[0] != 7 {
		t.Error("a new mapping is lost from the start")
	}
}

func TestManyReadersAndWritersWhileFilesAreCut(t *testing.T) {
	page := os.Getpagesize()
	for range 20 {
		var files []*os.File
		var maps []*mmap.Guarded
		for range 4 {
			f := object(t, make([]byte, 16*page))
			files, maps = append(files, f), append(maps, guarded(t, f, 0, int64(16*page)))
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				mine := make([]byte, 16*page)
				for !maps[i%4].Lost() {
					if i < 4 {
						copy(mine, maps[i%4].Bytes())
					} else {
						clear(maps[i%4].Bytes())
					}
				}
			})
		}
		for _, f := range files {
			wg.Go(func() {
				if err := f.Truncate(0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestAFaultElsewhereIsStillGos(t *testing.T) {
	page := os.Getpagesize()
	_ = guarded(t, object(t, make([]byte, page)), 0, int64(page)) // the handler is there
	f := object(t, make([]byte, page))
	plain, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(plain) }()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("memory that nobody guards was read after its end")
		}
	}()
	t.Log(plain[0])
}
