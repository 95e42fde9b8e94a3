package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	measure     = flag.Bool("measure", false, "print what the store can do (TestMeasure)")
	measureRows = flag.Int("measure-rows", 6_000_000, "how many detections TestMeasure writes before it reads")
	measureDir  = flag.String("measure-dir", "", "folder for TestMeasure's files; a temporary one unless given")
)

// report prints a measure against its budget; sign is +1 when more is better.
func report(what string, value float64, unit string, budget float64, sign int) {
	verdict := "ok"
	if sign > 0 && value < budget || sign < 0 && value > budget {
		verdict = "over"
	}
	fmt.Printf("%s %.4g %s %g %s\n", what, value, unit, budget, verdict)
}

// percentile gives the p-th hundredth of the durations, in milliseconds.
func percentile(list []time.Duration, p int) float64 {
	slices.Sort(list)
	return float64(list[min(len(list)-1, len(list)*p/100)].Microseconds()) / 1000
}

// traffic makes what 16 cameras see at 10 frames a second with 10 objects in each: people who walk, with the jitter of
// a detector.
type traffic struct {
	r     *rand.Rand
	at    time.Time
	frame int64
	x     [16][10]float32
}

const (
	trafficCameras = 16
	trafficObjects = 10
)

func (g *traffic) next() Batch {
	var b Batch
	for c := range trafficCameras {
		f := Frame{Sequence: int64(c + 1), Camera: fmt.Sprintf("camera%02d", c), CaptureTime: g.at, ReceiveTime: g.at.Add(40 * time.Millisecond), Number: g.frame}
		f.Objects = make([]Object, trafficObjects)
		for i := range f.Objects {
			x := g.x[c][i] + 0.002
			if x > 0.9 {
				x = 0
			}
			g.x[c][i] = x
			jitter := func() float32 { return float32(g.r.NormFloat64()) * 0.001 }
			local := g.frame/600*trafficObjects + int64(i) + 1 // a track lives a minute
			f.Objects[i] = Object{Local: local, Class: []string{"person", "car", "dog"}[i%3], Score: 0.7 + 50*jitter()/10, Box: Box{x + jitter(), 0.3 + jitter(), x + 0.1 + jitter(), 0.8 + jitter()}}
			b := &f.Objects[i].Box
			b.X2, b.Y2 = max(b.X1, b.X2), max(b.Y1, b.Y2)
		}
		b.Frames = append(b.Frames, f)
		if g.frame%600 == 599 {
			b.Tracks = append(b.Tracks, g.ended(&f)...)
		}
	}
	g.frame++
	g.at = g.at.Add(100 * time.Millisecond)
	return b
}

func (g *traffic) ended(f *Frame) (list []Track) {
	for _, o := range f.Objects {
		list = append(list, Track{
			ID: TrackID{f.Sequence, o.Local}, Camera: f.Camera, Class: o.Class, Start: f.CaptureTime.Add(-time.Minute), End: f.CaptureTime,
			State: TrackEnded, EndReason: "lost", Score: o.Score, Box: o.Box, Detections: 600,
		})
	}
	return list
}

// TestMeasure prints the store's figures against their budgets: go test ./store -run TestMeasure -measure.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("-measure prints what the store can do")
	}
	dir := *measureDir
	if dir == "" {
		dir = t.TempDir()
	}
	clock := newClock(noon.Add(-12 * time.Hour))
	s := open(t, Config{
		Dir: dir, Window: 200 * time.Millisecond, Now: clock.now, Logger: slog.New(slog.DiscardHandler),
		Retention: Retention{MinFree: -1, Interval: time.Hour},
	})
	g := &traffic{r: rand.New(rand.NewPCG(1, 1)), at: clock.now()}

	frames := max(1, *measureRows/(trafficCameras*trafficObjects))
	stretch := time.Duration(frames) * 100 * time.Millisecond
	begin := time.Now()
	fast := g.write(t, s, clock, stretch, 0)
	report("store_detections_per_second", float64(fast.rows)/time.Since(begin).Seconds(), "1/s", 100_000, +1)
	report("store_page_while_writing_p99", percentile(fast.pages, 99), "ms", 50, -1)
	const pace = 100_000
	paced := g.write(t, s, clock, 20*time.Second*pace/(trafficCameras*10*trafficObjects), pace)
	fmt.Printf("store_bare_fsync_p99_meanwhile %.4g ms - ok\n", percentile(paced.fsyncs, 99))
	report("store_commit_p99_beyond_fsync_at_100k_per_second", percentile(paced.commits, 99)-percentile(paced.fsyncs, 99), "ms", 50, -1)
	fmt.Printf("store_acknowledged_p99_at_100k_per_second %.4g ms - ok\n", percentile(paced.acks, 99)) // with a window of 200 ms

	settle(t, s, clock)
	perDetection := float64(s.Stats().Bytes) / float64(fast.rows+paced.rows)
	fmt.Printf("store_detections_kept %d count - ok\n", fast.rows+paced.rows)
	report("store_bytes_per_detection", perDetection, "B", 2e9/(16*10*10*86400), -1)
	report("store_day_of_16_cameras", perDetection*16*10*10*86400/1e9, "GB", 2, -1)
	g.read(t, s, stretch, false)
	g.read(t, s, stretch, true)
	g.subscribers(t, s)
}

// written is what was measured while writing.
type written struct {
	rows                         int
	commits, acks, pages, fsyncs []time.Duration
}

// fsyncs measures what an fsync of a window's bytes costs beside the writer, until ctx ends.
func fsyncs(ctx context.Context, t *testing.T, dir string) (list []time.Duration) {
	f := must[*os.File](t)(os.Create(filepath.Join(dir, "fsync")))
	defer func() { check(t, errors.Join(f.Close(), os.Remove(f.Name()))) }()
	chunk := make([]byte, 256<<10)
	for tick := time.Tick(100 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return list
		case <-tick:
		}
		must[int](t)(f.WriteAt(chunk, 0))
		begin := time.Now()
		check(t, f.Sync())
		list = append(list, time.Since(begin))
	}
}

// write writes a stretch of history, pace detections a second (0: as fast as it goes), while a reader pages through it.
func (g *traffic) write(t *testing.T, s running, clock *clock, stretch time.Duration, pace int) (w written) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	begin := g.at
	wg.Go(func() {
		for u := s.Subscribe(0); ; {
			if _, err := u.Next(ctx); err != nil {
				return
			}
			w.commits = append(w.commits, s.Stats().CommitLatency)
		}
	})
	wg.Go(func() {
		r := rand.New(rand.NewPCG(2, 2))
		q := Query{PageSize: 100}
		for ctx.Err() == nil {
			q.Cameras = []string{fmt.Sprintf("camera%02d", r.IntN(trafficCameras))}
			q.End = begin.Add(time.Duration(r.Int64N(int64(clock.now().Sub(begin) + time.Second))))
			q.PageToken = ""
			for range 5 {
				from := time.Now()
				_, next, err := s.ListDetections(ctx, q)
				if err != nil {
					return
				}
				w.pages = append(w.pages, time.Since(from))
				if q.PageToken = next; next == "" {
					break
				}
			}
			<-time.After(5 * time.Millisecond) // a reader, not a rival for the processor
		}
	})
	wg.Go(func() { w.fsyncs = fsyncs(ctx, t, s.cfg.Dir) })
	type sent struct {
		at   time.Time
		done <-chan error
	}
	acks := make(chan sent, 10_000)
	var acknowledged sync.WaitGroup
	acknowledged.Go(func() {
		for a := range acks {
			check(t, <-a.done)
			w.acks = append(w.acks, time.Since(a.at))
		}
	})
	started := time.Now()
	for end := g.at.Add(stretch); g.at.Before(end); {
		if pace > 0 {
			<-time.After(time.Until(started.Add(time.Duration(w.rows) * time.Second / time.Duration(pace))))
		}
		b := g.next()
		w.rows += trafficCameras * trafficObjects
		clock.set(g.at)
		at := time.Now()
		done, err := s.Append(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		acks <- sent{at, done}
	}
	check(t, s.Flush(t.Context()))
	close(acks)
	acknowledged.Wait()
	stop()
	wg.Wait()
	return w
}

// settle packs what is left to pack and empties the logs, as a store does that is left alone for a minute.
func settle(t *testing.T, s running, clock *clock) {
	clock.set(clock.now().Add(2 * time.Minute))
	for before := -1; ; {
		check(t, s.do(t.Context(), func(ctx context.Context, w *writer) error {
			for _, d := range w.days {
				if err := d.pack(ctx, clock.now().UnixMicro()); err != nil {
					return err
				}
				if _, err := d.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
					return err
				}
			}
			return nil
		}))
		n := s.rows(t, "detections WHERE packed = 0")
		if n == 0 || n == before {
			return
		}
		before = n
	}
}

// chill lets the next reads come from the disk: SQLite's caches are emptied and the kernel forgets the files.
func chill(t *testing.T, s running) {
	for _, day := range s.days.list(0, 1<<40) {
		f, _ := s.days.borrow(day)
		_, err := f.db.ExecContext(t.Context(), "PRAGMA shrink_memory")
		f.release()
		check(t, err)
	}
	for _, name := range must[[]string](t)(filepath.Glob(filepath.Join(s.cfg.Dir, "*.db"))) {
		f := must[*os.File](t)(os.Open(name))
		check(t, errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()))
	}
}

// read measures first pages all over the history; with cold caches there is no budget.
func (g *traffic) read(t *testing.T, s running, stretch time.Duration, cold bool) {
	r := rand.New(rand.NewPCG(3, 3))
	begin := g.at.Add(-stretch)
	anywhere := func() time.Time { return begin.Add(time.Duration(r.Int64N(int64(stretch)))) }
	camera := func() []string { return []string{fmt.Sprintf("camera%02d", r.IntN(trafficCameras))} }
	for _, m := range []struct {
		name string
		do   func() (int, error)
	}{
		{"store_detections_by_camera_and_time", func() (int, error) {
			l, _, err := s.ListDetections(t.Context(), Query{Cameras: camera(), Start: anywhere(), Ascending: true, PageSize: 100})
			return len(l), err
		}},
		{"store_detections_of_all_cameras", func() (int, error) {
			l, _, err := s.ListDetections(t.Context(), Query{End: anywhere().Add(time.Minute), PageSize: 100})
			return len(l), err
		}},
		{"store_detections_of_a_class", func() (int, error) {
			l, _, err := s.ListDetections(t.Context(), Query{Cameras: camera(), Classes: []string{"dog"}, MinScore: 0.7, End: anywhere().Add(time.Minute), PageSize: 100})
			return len(l), err
		}},
		{"store_tracks_by_camera_and_time", func() (int, error) {
			l, _, err := s.ListTracks(t.Context(), Query{Cameras: camera(), End: anywhere().Add(time.Minute), PageSize: 100})
			return len(l), err
		}},
		{"store_tracks_of_a_class", func() (int, error) {
			l, _, err := s.ListTracks(t.Context(), Query{Classes: []string{"dog"}, MinScore: 0.7, End: anywhere().Add(time.Minute), PageSize: 100})
			return len(l), err
		}},
	} {
		var list, cpu []time.Duration
		rows, times := 0, 300
		if cold {
			times = 30
		}
		for range times {
			if cold {
				chill(t, s)
			}
			from, spent := time.Now(), cpuTime(t)
			n, err := m.do()
			list, cpu = append(list, time.Since(from)), append(cpu, cpuTime(t)-spent)
			check(t, err)
			rows += n
		}
		if rows == 0 {
			t.Errorf("%s found nothing", m.name)
		}
		if cold {
			fmt.Printf("%s_cold_p50 %.4g ms - ok\n%s_cold_max %.4g ms - ok\n", m.name, percentile(list, 50), m.name, percentile(list, 100))
			continue
		}
		fmt.Printf("%s_p50 %.4g ms - ok\n%s_processor_p99 %.4g ms - ok\n", m.name, percentile(list, 50), m.name, percentile(cpu, 99))
		report(m.name+"_p99", percentile(list, 99), "ms", 50, -1)
	}
}

// subscribers measures what 100 subscribers cost at the rate of 16 live cameras: 10 windows' worth of publishing.
func (g *traffic) subscribers(t *testing.T, s running) {
	const n, windows = 100, 50 // 10 s of windows
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	got := make(chan int, n)
	for range n {
		u := s.Subscribe(0)
		wg.Go(func() {
			seen := 0
			for {
				c, err := u.Next(ctx)
				if err != nil {
					break
				}
				seen += len(c.Frames)
				if seen >= windows*2*trafficCameras {
					break
				}
			}
			got <- seen
		})
	}
	before := cpuTime(t)
	for range windows {
		a, b := g.next(), g.next()
		a.Frames = append(a.Frames, b.Frames...)
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		check(t, s.Flush(t.Context()))
	}
	for range n {
		if seen := <-got; seen != windows*2*trafficCameras {
			t.Errorf("a subscriber saw %d frames", seen)
		}
	}
	stop()
	wg.Wait()
	spent := cpuTime(t) - before
	report("store_100_subscribers_cpu", 100*spent.Seconds()/(windows*0.2), "%core", 10, -1)
}
