package scene_test

import (
	"math"
	"testing"

	"github.com/vedette/vedette/appliance/demo/scene"
)

// sample is the mean Y, U and V of what lies in one object's box.
type sample struct {
	class scene.Class
	mean  [3]float64
}

func samples(seeds []uint64) []sample {
	var out []sample
	buf := make([]byte, frameSize)
	for _, seed := range seeds {
		s := scene.New(seed)
		for n := 0; n < scene.Frames; n += 45 {
			for _, o := range s.Draw(n, buf) {
				if o.Scored && o.Visibility > 0.6 {
					out = append(out, sample{o.Class, meanColour(buf, o.Full)})
				}
			}
		}
	}
	return out
}

func meanColour(i420 []byte, b scene.Box) (m [3]float64) {
	count := 0.0
	for y := int(b.Y0); y < int(b.Y1); y++ {
		for x := int(b.X0); x < int(b.X1); x++ {
			c := scene.Width*scene.Height + y/2*scene.Width/2 + x/2
			m[0] += float64(i420[y*scene.Width+x])
			m[1] += float64(i420[c])
			m[2] += float64(i420[c+scene.Width*scene.Height/4])
			count++
		}
	}
	for i := range m {
		m[i] /= count
	}
	return m
}

// Two classifiers that know nothing but an object's mean colour and brightness
// learn from half of the scenes and guess in the other half: the nearest class
// mean, and the five nearest neighbours among equally many of each class. Both
// must do little better than a fifth, which is chance among five.
func TestNoColourOrBrightnessTellsAClass(t *testing.T) {
	var learn, judge []uint64
	for s := range uint64(16) {
		learn, judge = append(learn, 300+2*s), append(judge, 301+2*s)
	}
	train, test := samples(learn), samples(judge)
	byClass := map[scene.Class][]sample{}
	for _, s := range train {
		byClass[s.class] = append(byClass[s.class], s)
	}
	classes := len(scene.Classes())
	least := math.MaxInt
	for c := range classes {
		least = min(least, len(byClass[scene.Class(c)]))
	}
	if least < 100 {
		t.Fatalf("%d samples of the rarest class: too few to learn from", least)
	}
	var means [][3]float64
	var even []sample
	for c := range classes {
		of := byClass[scene.Class(c)]
		var m [3]float64
		for _, s := range of {
			for i := range m {
				m[i] += s.mean[i] / float64(len(of))
			}
		}
		means = append(means, m)
		for i := range least {
			even = append(even, of[i*len(of)/least])
		}
	}
	for name, guess := range map[string]func([3]float64) scene.Class{
		"nearest class mean":      func(v [3]float64) scene.Class { return nearestMean(means, v) },
		"five nearest neighbours": func(v [3]float64) scene.Class { return neighbours(even, classes, v) },
	} {
		right, all := make([]float64, classes), make([]float64, classes)
		for _, s := range test {
			all[s.class]++
			if guess(s.mean) == s.class {
				right[s.class]++
			}
		}
		balanced := 0.0
		for c := range classes {
			balanced += right[c] / all[c] / float64(classes)
		}
		t.Logf("%s: balanced accuracy %.3f over %d objects", name, balanced, len(test))
		if balanced > 0.36 {
			t.Errorf("%s tells classes by colour alone: balanced accuracy %.3f, chance is 0.2", name, balanced)
		}
	}
}

func distance(a, b [3]float64) (d float64) {
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
	}
	return d
}

func nearestMean(means [][3]float64, v [3]float64) scene.Class {
	best := 0
	for c := range means {
		if distance(means[c], v) < distance(means[best], v) {
			best = c
		}
	}
	return scene.Class(best)
}

func neighbours(of []sample, classes int, v [3]float64) scene.Class {
	type near struct {
		d float64
		c scene.Class
	}
	var top [5]near
	for i := range top {
		top[i].d = math.Inf(1)
	}
	for _, s := range of {
		d := distance(s.mean, v)
		for i := range top {
			if d < top[i].d {
				copy(top[i+1:], top[i:])
				top[i] = near{d, s.class}
				break
			}
		}
	}
	votes := make([]int, classes)
	best := top[0].c
	for _, n := range top {
		votes[n.c]++
		if votes[n.c] > votes[best] {
			best = n.c
		}
	}
	return best
}
