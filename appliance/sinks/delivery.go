package sinks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// carrier takes events to one receiver. One goroutine uses it.
type carrier interface {
	// connect makes ready to deliver; it is called again after an error.
	connect(ctx context.Context) error
	// lost is closed when the connection that connect made is gone; nil: there is none to lose.
	lost() <-chan struct{}
	// deliver sends events, those of a camera in order and none that came after one that failed, and returns how many,
	// from the first on, the receiver has acknowledged. Fewer than all come with an error, a refusedError if the receiver
	// answered that it does not take the next one.
	deliver(ctx context.Context, events []*vedettev1.Event) (int, error)
	// close ends the connection, if there is one.
	close()
}

// batch is how many events are looked at in one go: enough to catch up quickly, little to send twice.
const batch = 256

// delivery takes the events of the store to one carrier.
type delivery struct {
	cfg     *Config
	id      string
	sink    *vedettev1.Sink
	status  *status
	carrier carrier
	logger  *slog.Logger

	cursor    int64
	connected bool
	again     bool // there may be dead letters to send again
	most      int  // events at once: one after a refusal, to know which it is about
	refused   int  // how often the oldest event that waits was refused, sent by itself
}

func (d *delivery) run(ctx context.Context) {
	defer d.carrier.close()
	news := d.cfg.Store.Subscribe(0)
	pause := d.cfg.MinBackoff
	failing := false
	d.again, d.most = true, batch
	var err error
	for d.cursor, err = d.cfg.Store.SinkCursor(ctx, d.id); ctx.Err() == nil; err = d.round(ctx, news) {
		switch {
		case err == nil:
			if failing {
				d.logger.Info("sink delivers again")
			}
			failing, pause = false, d.cfg.MinBackoff
			continue
		case errors.Is(err, errSetAside):
			pause = d.cfg.MinBackoff
			continue
		}
		if refusal(err) == nil {
			d.connected = false
			d.carrier.close()
		}
		if !failing {
			d.logger.Warn("sink cannot deliver; it goes on trying", slog.Any("err", err))
		}
		failing = true
		wait := pause/2 + rand.N(pause/2+1) // so that many boxes do not come back at once
		if later, ok := errors.AsType[*laterError](err); ok {
			wait = max(wait, min(later.after, d.cfg.MaxBackoff))
		}
		pause = min(2*pause, d.cfg.MaxBackoff)
		d.status.failed(err, d.cfg.Now().Add(wait))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round delivers one batch, or waits until there is something to deliver.
func (d *delivery) round(ctx context.Context, news *store.Subscription) error {
	if !d.connected {
		within, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
		err := d.carrier.connect(within)
		cancel()
		if err != nil {
			return err
		}
		d.connected = true
	}
	select {
	case <-d.status.again:
		d.again = true
	default:
	}
	if d.again {
		if more, err := d.redeliver(ctx); more || err != nil {
			return err
		}
		d.again = false
	}
	list, err := d.cfg.Store.EventsAfter(ctx, d.cursor, batch)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if len(list) == 0 {
		d.status.idle(d.cursor)
		return d.await(ctx, news)
	}
	w := d.pick(list)
	d.status.delivering(list[0].Time)
	n := 0
	if len(w.events) > 0 {
		n, err = d.send(ctx, w.events)
	}
	if n > 0 {
		d.refused = 0
	}
	switch {
	case err == nil && n == len(w.events):
		d.cursor, d.most = w.end, min(2*d.most, batch)
	case err == nil: // the time was up
		d.cursor, d.most = w.seqs[n-1], n
	case n > 0:
		d.cursor = w.seqs[n-1]
	}
	if n > 0 {
		d.status.delivered(n, d.cursor, d.cfg.Now())
	}
	if err == nil || n > 0 {
		// What the receiver has, it has, also when the box is stopping.
		err = errors.Join(err, d.cfg.Store.SetSinkCursor(context.WithoutCancel(ctx), d.id, d.cursor))
	}
	if refusal(err) != nil {
		d.most = 1
		if n == 0 && len(w.events) == 1 {
			return d.overcome(ctx, err)
		}
	}
	return err
}

// waiting are the events of a stretch that the sink wants.
type waiting struct {
	events []*vedettev1.Event
	seqs   []int64
	end    int64 // number of the last event of the stretch, wanted or not
}

// pick takes what the sink wants from the beginning of a list, at most d.most events.
func (d *delivery) pick(list []store.Event) (w waiting) {
	for i := range list {
		e := &list[i]
		if w.end = e.Seq; !d.wants(e) {
			continue
		}
		w.events = append(w.events, event(e))
		w.seqs = append(w.seqs, e.Seq)
		if len(w.events) == d.most {
			break
		}
	}
	return w
}

// send has the carrier deliver within the timeout. When that is up, what was delivered until then is no error.
func (d *delivery) send(ctx context.Context, events []*vedettev1.Event) (int, error) {
	up, release := until(ctx, d.carrier.lost(), errLost)
	defer release()
	within, cancel := context.WithTimeout(up, d.cfg.Timeout)
	defer cancel()
	n, err := d.carrier.deliver(within, events)
	switch {
	case err == nil:
	case errors.Is(context.Cause(up), errLost):
		err = errLost
	case n > 0 && up.Err() == nil && within.Err() != nil:
		err = nil
	}
	return n, err
}

// await waits for the next event, for a dead letter to be sent again, or for the end of the connection.
func (d *delivery) await(ctx context.Context, news *store.Subscription) error {
	up, release := until(ctx, d.carrier.lost(), errLost)
	defer release()
	within, asked := until(up, d.status.again, errAgain)
	defer func() { d.again = asked() }()
	for {
		c, err := news.Next(within)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(context.Cause(within), errLost):
			return errLost
		case errors.Is(context.Cause(within), errAgain):
			return nil
		case err != nil:
			return fmt.Errorf("follow the store's commits: %w", err)
		case c.Missed > 0 || len(c.Events) > 0:
			return nil
		}
	}
}

// until returns a context that also ends, with cause, when something is received from signal or it is closed. What else it
// returns ends the listening, and tells whether there was something.
func until(ctx context.Context, signal <-chan struct{}, cause error) (context.Context, func() bool) {
	if signal == nil {
		return ctx, func() bool { return false }
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	heard := false
	wg.Go(func() {
		select {
		case <-signal:
			heard = true
			cancel(cause)
		case <-ctx.Done():
		}
	})
	return ctx, func() bool {
		cancel(nil)
		wg.Wait()
		return heard
	}
}

var (
	errLost  = errors.New("the connection was lost")
	errAgain = errors.New("a dead letter is to be sent again")
)

// laterError is an error whose receiver said when to come back.
type laterError struct {
	err   error
	after time.Duration
}

func (r *laterError) Error() string { return r.err.Error() }
func (r *laterError) Unwrap() error { return r.err }

func (d *delivery) wants(e *store.Event) bool {
	if t := d.sink.GetTypes(); len(t) > 0 && !slices.Contains(t, e.Type) {
		return false
	}
	c := d.sink.GetCameras()
	return len(c) == 0 || slices.Contains(c, "cameras/"+e.Camera)
}

// event is an event as receivers see it: the same as in the API.
func event(e *store.Event) *vedettev1.Event {
	v := &vedettev1.Event{Name: "events/" + strconv.FormatInt(e.Seq, 10), Type: e.Type, Time: timestamppb.New(e.Time)}
	if e.Camera != "" {
		v.Camera = "cameras/" + e.Camera
		v.Name = v.Camera + "/" + v.Name
	}
	if e.Track.Local != 0 {
		v.Track = v.Camera + "/tracks/" + e.Track.String()
	}
	if len(e.Payload) > 0 && json.Unmarshal(e.Payload, &v.Attributes) != nil {
		v.Attributes = map[string]string{"payload": "unreadable"}
	}
	return v
}

// encode is an event as compact JSON.
func encode(e *vedettev1.Event) ([]byte, error) {
	loose, err := protojson.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.GetName(), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, loose); err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.GetName(), err)
	}
	return b.Bytes(), nil
}

// status is what a delivery is doing. Safe for concurrent use.
type status struct {
	again chan struct{} // 1: a dead letter is to be sent again

	mu sync.Mutex
	v  vedettev1.DeliveryStatus
}

func newStatus() *status {
	s := &status{again: make(chan struct{}, 1)}
	s.v.State = vedettev1.DeliveryState_DELIVERY_STATE_DELIVERING // until it is known that everything is delivered
	return s
}

func (s *status) idle(cursor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.State, s.v.Message, s.v.DeliveredSeq = vedettev1.DeliveryState_DELIVERY_STATE_IDLE, "", cursor
	s.v.OldestWaitingTime, s.v.NextAttemptTime = nil, nil
}

func (s *status) delivering(oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.State, s.v.OldestWaitingTime, s.v.NextAttemptTime = vedettev1.DeliveryState_DELIVERY_STATE_DELIVERING, timestamppb.New(oldest), nil
}

func (s *status) delivered(n int, cursor int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.Delivered += int64(n)
	s.v.Message = ""
	s.v.DeliveredSeq, s.v.LastDeliveryTime = cursor, timestamppb.New(at)
}

func (s *status) failed(err error, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.State, s.v.Message, s.v.NextAttemptTime = vedettev1.DeliveryState_DELIVERY_STATE_BACKOFF, err.Error(), timestamppb.New(next)
	s.v.Failures++
}

func (s *status) dead(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v.DeadLetters = n
}

func (s *status) view(disabled bool) *vedettev1.DeliveryStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &vedettev1.DeliveryStatus{
		State: s.v.GetState(), Message: s.v.GetMessage(), DeliveredSeq: s.v.GetDeliveredSeq(), Delivered: s.v.GetDelivered(), Failures: s.v.GetFailures(),
		DeadLetters: s.v.GetDeadLetters(), LastDeliveryTime: s.v.GetLastDeliveryTime(), OldestWaitingTime: s.v.GetOldestWaitingTime(), NextAttemptTime: s.v.GetNextAttemptTime(),
	}
	if disabled {
		v.State, v.Message, v.NextAttemptTime = vedettev1.DeliveryState_DELIVERY_STATE_DISABLED, "", nil
	}
	return v
}
