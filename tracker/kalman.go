package tracker

// axis is a Kalman filter of one coordinate and its speed. Noise is
// uncorrelated between the coordinates of a box, so the filter of eight states
// falls apart into four of two, without any approximation.
type axis struct {
	pos, vel   float64
	pp, pv, vv float64 // covariance
}

// start forgets everything but one measurement.
func (a *axis) start(z, stdPos, stdVel float64) {
	*a = axis{pos: z, pp: stdPos * stdPos, vv: stdVel * stdVel}
}

// between takes the speed from two measurements dt seconds and a distance apart, of which the position is the second.
func (a *axis) between(distance, dt, std float64) {
	a.vel = distance / dt
	a.pp, a.pv, a.vv = std*std, std*std/dt, 2*std*std/(dt*dt)
}

// step predicts one unit of time ahead.
func (a *axis) step(stdPos, stdVel float64) {
	a.pos += a.vel
	a.pp = (a.pp + a.pv) + (a.pv + a.vv) + stdPos*stdPos
	a.pv += a.vv
	a.vv += stdVel * stdVel
}

// correct takes a measurement with the given standard deviation.
func (a *axis) correct(z, std float64) {
	s := a.pp + std*std
	kp, kv := a.pp/s, a.pv/s
	y := z - a.pos
	a.pos += kp * y
	a.vel += kv * y
	a.pp -= kp * s * kp
	a.pv -= kp * s * kv
	a.vv -= kv * s * kv
}
