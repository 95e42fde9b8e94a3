package store

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBoxesComeBackWithinHalfAStep(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const step = 1.0 / boxScale
	for range 200_000 {
		b := Box{r.Float32()*1.2 - 0.1, r.Float32(), r.Float32(), r.Float32()*1.2 - 0.1}
		have := unpackBox(intBox(boxInt(packBox(b))))
		for _, v := range [][2]float32{{b.X1, have.X1}, {b.Y1, have.Y1}, {b.X2, have.X2}, {b.Y2, have.Y2}} {
			if want := math.Min(math.Max(float64(v[0]), 0), 1); math.Abs(want-float64(v[1])) > step/2+1e-7 {
				t.Fatalf("%v came back as %v", v[0], v[1])
			}
		}
		if packBox(have) != packBox(b) {
			t.Fatalf("%v is not stable: %v", b, have)
		}
	}
}

// randomFrames makes frames with everything that can differ: tracks that come, go, swap places and change class,
// untracked objects, times that stand still or go back.
func randomFrames(r *rand.Rand) []frameRec {
	list := make([]frameRec, r.IntN(40))
	for i := range list {
		f := &list[i]
		f.capture, f.receive, f.number = 1e15+int64(r.IntN(60e6)), 1e15+int64(r.IntN(60e6)), r.Int64N(1e9)
		for range r.IntN(8) {
			f.objects = append(f.objects, objectRec{
				local: r.Int64N(6), class: 1 + r.Int64N(3), score: r.Int32N(scoreScale + 1),
				box: [4]uint16{uint16(r.Uint32()), uint16(r.Uint32()), uint16(r.Uint32()), uint16(r.Uint32())},
			})
		}
	}
	return list
}

func decodeAll(data []byte, base int64) (list []frameRec, err error) {
	err = decodeBlock(data, base, func(f *frameRec) bool {
		list = append(list, cloneFrame(f))
		return true
	})
	return list, err
}

func TestBlocksComeBackExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		want := randomFrames(r)
		have, err := decodeAll(appendBlock(nil, 1e15, want), 1e15)
		check(t, err)
		if len(want) == 0 && len(have) == 0 {
			continue
		}
		if diff := cmp.Diff(want, have, cmp.AllowUnexported(frameRec{}, objectRec{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestASteadyObjectTakesAboutEightBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var recs []frameRec
	n := 0
	for _, f := range frames(1, "door", noon, 600, 10) {
		rec := frameRec{capture: f.CaptureTime.UnixMicro(), receive: f.ReceiveTime.UnixMicro(), number: f.Number}
		for _, o := range f.Objects {
			jitter := func(v float32) float32 { return v + float32(r.NormFloat64())*0.002 }
			box := Box{jitter(o.Box.X1), jitter(o.Box.Y1), jitter(o.Box.X2), jitter(o.Box.Y2)}
			rec.objects = append(rec.objects, objectRec{local: o.Local, class: 1, score: packScore(jitter(o.Score)), box: packBox(box)})
			n++
		}
		recs = append(recs, rec)
	}
	size := float64(len(appendBlock(nil, noon.UnixMicro(), recs))) / float64(n)
	t.Logf("%.1f bytes a detection", size)
	if size > 12 {
		t.Errorf("a detection takes %.1f bytes: a day of 16 cameras would not stay under 2 GB", size)
	}
}

func FuzzDecodeBlock(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		f.Add(appendBlock(nil, 1e15, randomFrames(r)))
	}
	f.Add([]byte{blockVersion, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeAll(data, 1e15)
		objects := 0
		for i := range list {
			objects += len(list[i].objects)
		}
		if len(list) > len(data) || objects > len(data) {
			t.Fatalf("%d bytes gave %d frames with %d objects", len(data), len(list), objects)
		}
		if err != nil {
			return
		}
		again, err := decodeAll(appendBlock(nil, 1e15, list), 1e15)
		if err != nil {
			t.Fatal("what was decoded and encoded does not decode: ", err)
		}
		if diff := cmp.Diff(list, again, cmp.AllowUnexported(frameRec{}, objectRec{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodePath(f *testing.F) {
	f.Add(appendPath(nil, 1e15, []Point{{noon, 0, 1}, {noon.Add(1e9), 0.5, 0.5}}))
	f.Add([]byte{blockVersion, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		path, err := decodePath(data, 1e15)
		if err != nil {
			return
		}
		again, err := decodePath(appendPath(nil, 1e15, path), 1e15)
		if err != nil || !cmp.Equal(path, again) {
			t.Fatalf("%v came back as %v, %v", path, again, err)
		}
	})
}

func FuzzPageToken(f *testing.F) {
	q := Query{Cameras: []string{"door"}}
	bound := q.hash("tracks")
	f.Add(printToken(bound, key{1, -2, 3, math.MaxInt64}))
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := parseToken(s, bound)
		if err != nil {
			if !errors.Is(err, ErrPageToken) {
				t.Fatalf("%q: %v is no ErrPageToken", s, err)
			}
			return
		}
		// Varints may be longer than they need to be; the position is what counts.
		if again, err := parseToken(printToken(bound, k), bound); err != nil || again != k {
			t.Fatalf("%v came back as %v, %v", k, again, err)
		}
	})
}

func TestAPageTokenFitsItsQueryOnly(t *testing.T) {
	q := Query{Cameras: []string{"door"}, Start: noon}
	token := printToken(q.hash("tracks"), key{1, 2, 3})
	if k, err := parseToken(token, q.hash("tracks")); err != nil || k != (key{1, 2, 3}) {
		t.Fatalf("%v, %v", k, err)
	}
	other := q
	other.Cameras = []string{"yard"}
	for name, bound := range map[string][8]byte{"another list": q.hash("events"), "another filter": other.hash("tracks")} {
		if _, err := parseToken(token, bound); !errors.Is(err, ErrPageToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, damaged := range []string{token[:len(token)-1], token + "A", "!" + token, strings.ToLower(token)} {
		if _, err := parseToken(damaged, q.hash("tracks")); !errors.Is(err, ErrPageToken) {
			t.Errorf("%q: %v", damaged, err)
		}
	}
}

func BenchmarkDecodeBlock(b *testing.B) {
	recs := make([]frameRec, 600)
	for i := range recs {
		recs[i] = frameRec{capture: int64(i) * 100_000, number: int64(i)}
		for j := range 10 {
			x := uint16(j*6000 + i)
			recs[i].objects = append(recs[i].objects, objectRec{local: int64(j + 1), class: 1, score: 500, box: [4]uint16{x, x, x + 100, x + 200}})
		}
	}
	data := appendBlock(nil, 0, recs)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		_ = decodeBlock(data, 0, func(f *frameRec) bool { n += len(f.objects); return true })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/detection")
}
