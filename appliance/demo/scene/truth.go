package scene

import "strconv"

// TruthColumns is the number of columns that AppendTruth writes.
const TruthColumns = 14

// AppendTruth appends a frame's objects to rows, one line each, in the form
// of the MOT benchmark with the visible part added:
//
//	frame,id,x,y,w,h,scored,class,visibility,vx,vy,vw,vh,carried
//
// Frames and classes count from 1; scored is 0 or 1; carried is the number of
// minutes ago in which the object entered.
func AppendTruth(rows []byte, n int, objects []Object) []byte {
	num := func(v float64, prec int) {
		rows = append(rows, ',')
		rows = strconv.AppendFloat(rows, v, 'f', prec, 64)
	}
	for _, o := range objects {
		rows = strconv.AppendInt(rows, int64(n+1), 10)
		num(float64(o.ID), 0)
		for _, v := range []float64{o.Full.X0, o.Full.Y0, o.Full.X1 - o.Full.X0, o.Full.Y1 - o.Full.Y0} {
			num(v, 1)
		}
		if o.Scored {
			num(1, 0)
		} else {
			num(0, 0)
		}
		num(float64(o.Class+1), 0)
		num(o.Visibility, 2)
		for _, v := range []float64{o.Visible.X0, o.Visible.Y0, o.Visible.X1 - o.Visible.X0, o.Visible.Y1 - o.Visible.Y0} {
			num(v, 0)
		}
		_, pass := o.Origin()
		num(float64(pass), 0)
		rows = append(rows, '\n')
	}
	return rows
}

// ParseTruth reads back one line of AppendTruth: the frame, from 0, and the
// object, its boxes rounded as they were written.
func ParseTruth(v [TruthColumns]float64) (n int, o Object) {
	return int(v[0]) - 1, Object{
		ID:         int(v[1]),
		Full:       Box{v[2], v[3], v[2] + v[4], v[3] + v[5]},
		Scored:     v[6] > 0,
		Class:      Class(v[7]) - 1,
		Visibility: v[8],
		Visible:    Box{v[9], v[10], v[9] + v[11], v[10] + v[12]},
	}
}
