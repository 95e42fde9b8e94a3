package pipeline

import (
	"sync"
	"time"

	"github.com/vedette/vedette/appliance/pipeline/collect"
)

// turns deals the turns of the cameras of one pipeline: whoever brings news lets the collector decide, under one lock,
// and wakes the lanes whose turn it is.
type turns struct {
	mu        sync.Mutex // guards what follows
	collector *collect.Collector
	lanes     map[string]*lane
	dealt     map[string]int // turns a lane has not taken yet
	window    *time.Timer    // nil: none was needed yet
}

func newTurns() *turns {
	return &turns{collector: collect.New(collect.Limits{}), lanes: map[string]*lane{}, dealt: map[string]int{}}
}

// turnsOf returns those of a pipeline.
func (p *Pipeline) turnsOf(pipeline string) *turns {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.turns[pipeline]
	if t == nil {
		t = newTurns()
		p.turns[pipeline] = t
	}
	return t
}

// put adds a lane, or changes what it is.
func (t *turns) put(l *lane, limits collect.Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes[l.camera] = l
	t.collector.SetLimits(limits)
	t.collector.Put(l.camera, l.settings.source())
}

// source is how a camera is to be treated where frames wait.
func (a Analysing) source() collect.Source {
	s := collect.Source{Live: !a.EveryFrame, Weight: 1}
	switch {
	case a.Priority < 0:
		s.Weight = 0.5
	case a.Priority > 0:
		s.Weight = 2
	}
	return s
}

// remove forgets a lane; its frames at inference no longer count.
func (t *turns) remove(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collector.Remove(l.camera)
	delete(t.lanes, l.camera)
	delete(t.dealt, l.camera)
	t.decideLocked()
}

// arrived tells of a frame of the camera.
func (t *turns) arrived(camera string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collector.Arrived(time.Now(), camera)
}

// take takes the lane's turn. Without one, the lane is in line for it from now on and will be woken.
func (t *turns) take(l *lane) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dealt[l.camera] == 0 {
		t.collector.Wait(time.Now(), l.camera)
		t.decideLocked()
	}
	if t.dealt[l.camera] == 0 {
		return false
	}
	t.dealt[l.camera]--
	return true
}

// leave takes the lane out of the line: it has no frame.
func (t *turns) leave(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collector.Leave(l.camera)
	for ; t.dealt[l.camera] > 0; t.dealt[l.camera]-- {
		t.collector.Done(l.camera, 0)
	}
	t.decideLocked()
}

// done gives a turn back that was taken; took is how long the answer took, 0 without one.
func (t *turns) done(l *lane, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.collector.Done(l.camera, took)
	t.decideLocked()
}

func (t *turns) decideLocked() {
	now := time.Now()
	granted, wake := t.collector.Decide(now)
	for _, camera := range granted {
		t.dealt[camera]++
		t.lanes[camera].signal()
	}
	if wake.IsZero() {
		return
	}
	if t.window == nil {
		t.window = time.AfterFunc(wake.Sub(now), t.decide)
		return
	}
	t.window.Reset(wake.Sub(now))
}

func (t *turns) decide() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decideLocked()
}
