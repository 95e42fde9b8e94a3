package store

import "time"

// window is what is committed together.
type window struct {
	batches []*pending
	done    map[int64]bool // days whose part is on disk already
	events  bool           // event numbers are given
}

// part is what one window has for one day's file.
type part struct {
	frames []*Frame
	tracks []*Track
	events []*Event
	media  []*Media
}

func (p *part) weight() int {
	n := len(p.tracks) + len(p.events) + len(p.media)
	for _, f := range p.frames {
		n += len(f.Objects)
	}
	return n
}

// split sorts a window by day, leaving out the days that are done.
func split(win *window) map[int64]*part {
	parts := map[int64]*part{}
	at := func(t time.Time) *part {
		day := dayOf(t.UnixMicro())
		p := parts[day]
		if p == nil && !win.done[day] {
			p = &part{}
			parts[day] = p
		}
		if p == nil {
			p = &part{} // done: thrown away
		}
		return p
	}
	for _, b := range win.batches {
		for i := range b.batch.Frames {
			if f := &b.batch.Frames[i]; len(f.Objects) > 0 {
				p := at(f.CaptureTime)
				p.frames = append(p.frames, f)
			}
		}
		for i := range b.batch.Tracks {
			p := at(b.batch.Tracks[i].Start)
			p.tracks = append(p.tracks, &b.batch.Tracks[i])
		}
		for i := range b.batch.Events {
			p := at(b.batch.Events[i].Time)
			p.events = append(p.events, &b.batch.Events[i])
		}
		for i := range b.batch.Media {
			p := at(b.batch.Media[i].Time)
			p.media = append(p.media, &b.batch.Media[i])
		}
	}
	return parts
}
