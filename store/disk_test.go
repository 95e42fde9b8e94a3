package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestTheDiskLadder(t *testing.T) {
	free := newClock(time.UnixMicro(1000))
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MinFree: 100},
		FreeSpace: func(string) (int64, int64, error) { return free.us.Load(), 10_000, nil },
	})
	for _, c := range []struct {
		free int64
		want Pressure
		kept int
	}{
		{1000, Normal, 3}, {150, Warn, 3}, {99, ShedSnapshots, 3}, {49, ShedDetections, 0}, {0, ShedDetections, 0}, {200, Normal, 3},
	} {
		free.us.Store(c.free)
		s.retain(t.Context())
		if have := s.Pressure(); have != c.want {
			t.Errorf("%d bytes free: %v, want %v", c.free, have, c.want)
		}
		before := len(listAll(t, s, Query{PageSize: 1000}))
		b := event(noon)
		b.Frames = frames(1, "door", noon, 1, 3)
		s.appendNow(t, b)
		if n := len(listAll(t, s, Query{PageSize: 1000})) - before; n != c.kept {
			t.Errorf("%d bytes free: %d detections kept, want %d", c.free, n, c.kept)
		}
	}
	if st := s.Stats(); st.ShedDetections != 6 || st.Events != 6 {
		t.Errorf("shed %d of 6, kept %d events of 6", st.ShedDetections, st.Events)
	}
}

// A box that keeps as much as its disk holds is near the floor for good; it warns once no old days are left to delete.
func TestADiskFullOfHistoryIsNoTrouble(t *testing.T) {
	free := newClock(time.UnixMicro(1000))
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MinFree: 100},
		FreeSpace: func(string) (int64, int64, error) { return free.us.Load(), 10_000, nil },
	})
	for day := range 3 {
		s.appendNow(t, event(noon.AddDate(0, 0, day)))
	}
	for _, c := range []struct {
		free int64
		want Pressure
	}{{150, Normal}, {99, ShedSnapshots}, {150, Normal}, {99, ShedSnapshots}, {150, Warn}} { // each 99 costs a day, the newest stays
		free.us.Store(c.free)
		s.retain(t.Context())
		if have := s.Pressure(); have != c.want {
			t.Errorf("%d bytes free: %v, want %v", c.free, have, c.want)
		}
	}
}

// Room that somebody else made is noticed long before the next round of retention.
func TestSheddingEndsSoonAfterThereIsRoomAgain(t *testing.T) {
	free := newClock(time.UnixMicro(1000))
	s := open(t, Config{
		Dir: t.TempDir(), Retention: Retention{MinFree: 100, Interval: time.Hour},
		FreeSpace: func(string) (int64, int64, error) { return free.us.Load(), 10_000, nil },
	})
	free.us.Store(10)
	s.retain(t.Context())
	if s.Pressure() != ShedDetections {
		t.Fatalf("pressure %v on a full disk", s.Pressure())
	}
	free.us.Store(1000)
	for deadline := time.Now().Add(time.Minute); s.Pressure() != Normal; {
		if time.Now().After(deadline) {
			t.Fatal("nobody looked")
		}
		<-time.After(10 * time.Millisecond)
	}
	s.appendNow(t, Batch{Frames: frames(1, "door", noon, 1, 3)})
	if st := s.Stats(); st.ShedDetections != 0 || st.Detections != 3 {
		t.Errorf("afterwards %d detections are kept, %d shed", st.Detections, st.ShedDetections)
	}
}

// onSmallDisks runs a test on a small file system in memory, and on ext4 in a file behind a loop device.
func onSmallDisks(t *testing.T, size string, test func(t *testing.T, dir string)) {
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Skip("a small file system cannot be mounted here (it takes root): ", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		test(t, dir)
	})
	t.Run("ext4", func(t *testing.T) {
		dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
		for _, command := range [][]string{
			{"truncate", "--size", size, image}, {"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir},
		} {
			if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
				t.Skipf("no ext4 behind a loop device here (it takes root): %s: %v: %s", command[0], err, out)
			}
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		test(t, dir)
	})
}

// fill writes a file until the disk is full.
func fill(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	f := must[*os.File](t)(os.Create(path))
	for chunk := make([]byte, 4096); ; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	check(t, f.Close())
	return path
}

func TestAStoreStartsOnAFullDisk(t *testing.T) { onSmallDisks(t, "64m", startOnFullDisk) }

func startOnFullDisk(t *testing.T, dir string) {
	cfg := Config{Dir: dir, Retention: Retention{MinFree: 1}}
	s := open(t, cfg)
	s.appendNow(t, event(noon))
	s.retain(t.Context()) // makes the reserve, if house-keeping has not yet
	s.stop()
	filler := fill(t, dir)
	s = open(t, cfg)
	if s.Pressure() != ShedDetections {
		t.Errorf("pressure %v on a full disk", s.Pressure())
	}
	s.appendNow(t, Batch{Events: event(noon).Events, Frames: frames(1, "door", noon, 1, 1)})
	if st := s.Stats(); s.rows(t, "events") != 2 || st.ShedDetections != 1 {
		t.Errorf("%d events of 2, shed %d detections of 1", s.rows(t, "events"), st.ShedDetections)
	}
	check(t, os.Remove(filler))
	s.retain(t.Context())
	if s.Pressure() != Normal || fileBytes(filepath.Join(dir, reserveFile)) == 0 {
		t.Errorf("pressure %v with room again, reserve of %d bytes", s.Pressure(), fileBytes(filepath.Join(dir, reserveFile)))
	}
}

// TestAFullDiskLosesNoEvent fills a small file system under a running store, and empties it again.
func TestAFullDiskLosesNoEvent(t *testing.T) { onSmallDisks(t, "3m", fullDiskLosesNoEvent) }

func fullDiskLosesNoEvent(t *testing.T, dir string) {
	s := open(t, Config{Dir: dir, Retention: Retention{MinFree: 1}})
	ctx := t.Context()
	s.appendNow(t, Batch{Frames: frames(1, "door", noon, 10, 3), Events: event(noon).Events})
	must[Resource](t)(s.Create(ctx, Cameras, Resource{Name: "door"}))

	filler := fill(t, dir)
	var refused error
	made := 1
	for i := 0; refused == nil; i++ {
		_, refused = s.Create(ctx, Cameras, Resource{Name: fmt.Sprint("camera", i), Spec: make([]byte, 10_000)})
		if refused == nil {
			made++
		}
	}
	if !errors.Is(refused, ErrDiskFull) {
		t.Errorf("create on a full disk: %v", refused)
	}
	var dones []<-chan error
	events := 1
	for s.Stats().CommitErrors == 0 {
		b := Batch{Frames: frames(1, "door", noon.Add(time.Minute), 200, 10)}
		for i := range 50 {
			b.Events = append(b.Events, Event{Camera: "door", Type: "tick", Time: noon.Add(time.Duration(i) * time.Second), Payload: make([]byte, 1000)})
		}
		done, err := s.Append(ctx, b)
		check(t, err)
		dones, events = append(dones, done), events+50
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_ = s.Flush(soon) // does not come back once the disk is full
		cancel()
	}
	if s.Pressure() != ShedDetections {
		t.Errorf("pressure %v on a full disk", s.Pressure())
	}
	must[Resource](t)(s.Get(ctx, Cameras, "door"))
	if _, _, err := s.ListEvents(ctx, Query{}); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}

	check(t, os.Remove(filler))
	for _, done := range dones {
		check(t, <-done)
	}
	if have := s.rows(t, "events"); have != events {
		t.Errorf("%d events, want %d", have, events)
	}
	list, _, err := s.List(ctx, Cameras, "", 1000, "")
	check(t, err)
	if len(list) != made {
		t.Errorf("%d cameras, want %d", len(list), made)
	}
	s.retain(ctx)
	if s.Pressure() != Normal {
		t.Errorf("pressure %v with room again", s.Pressure())
	}
}
