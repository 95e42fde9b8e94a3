package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/appliance/pipeline/ladder"
)

// Load is where the box stands on the degradation ladder.
type Load struct {
	ladder.Decision

	// Since is when it came to stand there.
	Since time.Time
	// Analysed and Lost are frames a second of all live cameras at the last look; Lost are those the box could not
	// follow with.
	Analysed, Lost float64
}

// Message says what is done about it; empty when nothing is.
func (l Load) Message() string {
	switch l.Level {
	case ladder.Reduced:
		return fmt.Sprintf("there is more to analyse than this box can: no camera is analysed more than %s times a second", rateText(l.Rate))
	case ladder.Stale:
		return fmt.Sprintf("there is more to analyse than this box can: every camera is held to %s frames a second, and frames that grow too old are dropped", rateText(l.Rate))
	case ladder.Shedding:
		return "there is more to analyse than this box can: not analysed any more: " + strings.Join(l.Shed, ", ")
	default:
		return ""
	}
}

func rateText(r float64) string { return strconv.FormatFloat(r, 'f', 1, 64) }

// balancer looks at the load and keeps what was counted at the look before.
type balancer struct {
	p      *Pipeline
	ladder *ladder.Ladder
	before map[string]tally
	at     time.Time
}

// tally is what a lane has counted since it began.
type tally struct {
	analysed, lost int64
	late           int64 // coded pictures that ingest could not decode in time
}

// Load returns where the box stands.
func (p *Pipeline) Load() Load {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.load
}

// balance looks at the load until ctx ends.
func (p *Pipeline) balance(ctx context.Context) error {
	b := &balancer{p: p, ladder: ladder.New(p.cfg.Ladder), before: map[string]tally{}, at: time.Now()}
	tick := time.NewTicker(p.cfg.Balance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			b.look(ctx, now)
		}
	}
}

func (b *balancer) look(ctx context.Context, now time.Time) {
	p := b.p
	cameras := b.count(now)
	d, changed := b.ladder.Look(now, cameras)
	p.mu.Lock()
	p.load.Analysed, p.load.Lost = 0, 0
	for i := range cameras {
		p.load.Analysed += cameras[i].Analysed
		p.load.Lost += cameras[i].Lost
	}
	if !changed {
		p.mu.Unlock()
		return
	}
	before := p.load.Decision
	p.load.Decision = d
	if before.Level != d.Level || p.load.Since.IsZero() {
		p.load.Since = p.cfg.Now()
	}
	load := p.load
	for id, r := range p.lanes {
		r.lane.put(limited{rate: d.Rate, shed: slices.Contains(d.Shed, id)})
	}
	p.mu.Unlock()
	p.metrics.setLoad(d)
	p.ingest.cameras()
	p.cfg.Logger.Warn("load changed", slog.String("level", d.Level.String()), slog.Float64("rate", d.Rate), slog.Any("shed", d.Shed),
		slog.Float64("analysed", load.Analysed), slog.Float64("lost", load.Lost))
	p.loadEvents(ctx, before, load)
}

// loadEvents writes one event for the box when the level changes, and one for every camera that is given up or back.
func (p *Pipeline) loadEvents(ctx context.Context, before ladder.Decision, load Load) {
	now := p.cfg.Now()
	if before.Level != load.Level {
		p.event(ctx, "", "load_changed", now, map[string]string{
			"level": load.Level.String(), "before": before.Level.String(), "limited_fps": rateText(load.Rate),
			"analysed_fps": rateText(load.Analysed), "lost_fps": rateText(load.Lost), "message": load.Message(),
		})
	}
	for _, c := range load.Shed {
		if !slices.Contains(before.Shed, c) {
			p.event(ctx, c, "camera_shed", now, map[string]string{"message": shedMessage})
		}
	}
	for _, c := range before.Shed {
		if !slices.Contains(load.Shed, c) && p.lane(c) != nil {
			p.event(ctx, c, "camera_unshed", now, map[string]string{"message": "this camera is analysed again"})
		}
	}
}

const shedMessage = "this box has more to analyse than it can, and this camera has the lowest priority: analyse fewer cameras or at lower rates, or raise analysis.priority"

// count takes what the live cameras did since the last look.
func (b *balancer) count(now time.Time) []ladder.Camera {
	p := b.p
	seconds := now.Sub(b.at).Seconds()
	b.at = now
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []ladder.Camera
	after := map[string]tally{}
	for i := range p.wanted {
		c := &p.wanted[i]
		id := c.Ingest.GetName()
		r := p.lanes[id]
		if r == nil || c.EveryFrame || c.Paused {
			continue
		}
		t := tally{analysed: r.lane.analysed.Load(), lost: r.lane.lost.Load(), late: int64(p.counters[id].GetDroppedDecodeLate())}
		after[r.uid] = t
		was, known := b.before[r.uid]
		if !known || seconds <= 0 {
			was = t
		}
		rate := func(now, before int64) float64 { return float64(max(now-before, 0)) / max(seconds, 0.1) }
		analysed := rate(t.analysed, was.analysed)
		list = append(list, ladder.Camera{
			Name: id, Priority: c.Priority, Since: c.Since, Wanted: c.Ingest.GetAnalysisRate(),
			Analysed: analysed, Lost: missed(p.limitedLocked(c).GetAnalysisRate(), analysed, rate(t.lost, was.lost), rate(t.late, was.late)),
		})
	}
	b.before = after
	return list
}

// missed is how many frames a second the box could not follow with, of a camera to be analysed at a rate (0: every
// picture): those lost on their way to inference and, of the pictures that came too late to be decoded, as many as would have
// been analysed.
func missed(wanted, analysed, lost, late float64) float64 {
	if wanted > 0 {
		late = min(late, max(wanted-analysed-lost, 0))
	}
	return lost + late
}

// idleRate is what a camera still sends of which nothing is analysed. Where keyframes come at least as often, as with
// nearly every camera, ingest then decodes no more than those, and only one in a while.
const idleRate = 0.1

// limitedLocked is what ingest is told of a camera: less than its operator asks for while its analysis is paused or the
// box is overloaded.
func (p *Pipeline) limitedLocked(c *Camera) *ingestv1.Camera {
	d, rate := p.load.Decision, c.Ingest.GetAnalysisRate()
	switch {
	case c.EveryFrame:
		return c.Ingest
	case c.Paused, slices.Contains(d.Shed, c.Ingest.GetName()):
		rate = idleRate
	case d.Rate > 0 && (rate == 0 || rate > d.Rate):
		rate = d.Rate
	default:
		return c.Ingest
	}
	m := proto.CloneOf(c.Ingest)
	m.AnalysisRate = rate
	return m
}

// Counters returns what ingest counts of a camera; nil: nothing yet. It must not be changed.
func (p *Pipeline) Counters(camera string) *ingestv1.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters[camera]
}
