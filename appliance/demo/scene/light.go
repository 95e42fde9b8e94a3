package scene

import (
	"math"
	"math/rand/v2"
)

// light is the weather of one minute: a sun that clouds dim, a camera that
// follows it, and a band of cloud shadow that crosses the street. All of it
// returns to where it began.
type light struct {
	sunX, sunZ float64 // metres of shadow for a metre of height
	mean       float64 // brightness of the picture
	warm       float32
	waves      [3]wave
	drift      float64
	noise      float32 // deviation of the camera's noise, in grey levels
}

type wave struct{ times, phase, size float64 }

func newLight(rng *rand.Rand) light {
	l := light{
		sunX: 0.35 + 0.45*rng.Float64(), sunZ: -0.16 - 0.12*rng.Float64(),
		mean: 1.0 + 0.24*rng.Float64(), warm: float32(0.06 * (rng.Float64() - 0.35)),
		drift: 2 * math.Pi * rng.Float64(), noise: float32(2.0 + 1.4*rng.Float64()),
	}
	for i := range l.waves {
		l.waves[i] = wave{times: float64(i + 1), phase: 2 * math.Pi * rng.Float64(), size: 0.14 / float64(i+1)}
	}
	return l
}

// moment is the light of one frame.
type moment struct {
	gain  float32
	depth float32 // how much of the light a shadow takes away
	warm  float32
	band  float64
	noise float32
}

func (l *light) at(t float64) moment {
	sun := 0.72
	for _, w := range l.waves {
		sun += w.size * math.Sin(2*math.Pi*t*w.times/60+w.phase)
	}
	sun = clamp(sun, 0.25, 1)
	return moment{
		gain:  float32(l.mean * (0.72 + 0.36*sun)),
		depth: float32(0.12 + 0.46*sun),
		warm:  l.warm * float32(sun),
		band:  l.drift + 2*math.Pi*t/60,
		noise: l.noise,
	}
}

// develop turns the canvas into a picture as the camera would give it.
func (l *light) develop(c *canvas, m moment, noise []float32, seed uint64, dst []byte) {
	var column [Width]float32
	for x := range column {
		column[x] = m.gain * float32(1-0.10*(0.5+0.5*math.Sin(m.band+float64(x)/170))) * 255
	}
	y := dst[:Width*Height]
	u := dst[Width*Height : Width*Height*5/4]
	v := dst[Width*Height*5/4:]
	red, blue := 1+m.warm, 1-m.warm
	state := seed | 1
	next := func() int {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		return int(state >> 20)
	}
	mask := len(noise) - 1
	var cb, cr [Width / 2]float32
	for row := range Height {
		off := next()
		line := c.pix[row*Width*3 : (row+1)*Width*3]
		if row%2 == 0 {
			clear(cb[:])
			clear(cr[:])
		}
		out := y[row*Width : (row+1)*Width]
		for x := range Width {
			k := column[x]
			r, g, b := shoulder(line[x*3]*k*red), shoulder(line[x*3+1]*k), shoulder(line[x*3+2]*k*blue)
			// BT.601, studio range.
			luma := 0.257*r + 0.504*g + 0.098*b
			cb[x/2] += -0.148*r - 0.291*g + 0.439*b
			cr[x/2] += 0.439*r - 0.368*g - 0.071*b
			out[x] = level(luma + 16 + m.noise*noise[(off+x)&mask])
		}
		if row%2 == 1 {
			p, q := next(), next()
			for x := range cb {
				u[row/2*Width/2+x] = level(cb[x]/4 + 128 + 0.5*m.noise*noise[(p+x)&mask])
				v[row/2*Width/2+x] = level(cr[x]/4 + 128 + 0.5*m.noise*noise[(q+x)&mask])
			}
		}
	}
}

// shoulder bends the brightest tones instead of cutting them off.
func shoulder(v float32) float32 {
	if v <= 220 {
		return v
	}
	return 220 + 35*(1-1/(1+(v-220)/35))
}

func level(v float32) byte { return byte(min(max(v+0.5, 0), 255)) }
