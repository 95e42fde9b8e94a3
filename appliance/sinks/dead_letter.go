package sinks

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

const (
	// maxRefusals is how often an event that the receiver finds fault with is sent by itself before it is set aside, and
	// maxFailures one that the receiver fails at without saying why.
	maxRefusals = 5
	maxFailures = 10
	// maxSuspects is how many events are tried to tell a receiver that fails at some from one that fails at all.
	maxSuspects = 16
)

// refusedError is an error of a receiver that was there and did not take an event.
type refusedError struct {
	err   error
	event bool // the receiver says that the event is at fault
}

func (r *refusedError) Error() string { return r.err.Error() }
func (r *refusedError) Unwrap() error { return r.err }

// refusal is the refusal that an error is; nil: another error.
func refusal(err error) *refusedError {
	r, _ := errors.AsType[*refusedError](err)
	return r
}

var errSetAside = errors.New("an event was set aside")

// overcome decides what becomes of the oldest event that waits, which was refused by itself: another attempt after a
// pause (the refusal is returned), or it is set aside (errSetAside).
func (d *delivery) overcome(ctx context.Context, refused error) error {
	d.refused++
	event := refusal(refused).event
	if event && d.refused < maxRefusals || !event && d.refused < maxFailures {
		return refused
	}
	list, err := d.cfg.Store.EventsAfter(ctx, d.cursor, batch)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if d.most = maxSuspects; event {
		d.most = 1
	}
	w := d.pick(list)
	d.most = 1
	switch {
	case len(w.events) == 0:
		return nil // retention took it
	case !event:
		return d.compare(ctx, w, refused)
	}
	if err := d.setAside(ctx, w.events[0], w.seqs[0], d.refused, refused); err != nil {
		return err
	}
	return errSetAside
}

// compare tries the events behind one that the receiver fails at. Once it takes one, it is not the receiver that is at
// fault: those ahead are sent once more, because it may have recovered meanwhile, and set aside if it fails again.
func (d *delivery) compare(ctx context.Context, w waiting, refused error) error {
	taken := 1
	for ; ; taken++ {
		if taken == len(w.events) {
			return refused
		}
		n, err := d.send(ctx, w.events[taken:taken+1])
		if n == 1 {
			break
		}
		if refusal(err) == nil {
			return err
		}
	}
	attempts, others := d.refused+1, d.refused-maxFailures+2 // the others were tried here alone
	for i, e := range w.events[:taken] {
		n, err := d.send(ctx, []*vedettev1.Event{e})
		switch {
		case n == 1:
			err = d.taken(ctx, w.seqs[i])
		case refusal(err) != nil:
			err = d.setAside(ctx, e, w.seqs[i], attempts, err)
		}
		if err != nil {
			return err
		}
		attempts = others
	}
	d.refused = 0
	return d.taken(ctx, w.seqs[taken])
}

// taken notes that the receiver has an event.
func (d *delivery) taken(ctx context.Context, seq int64) error {
	d.cursor = seq
	d.status.delivered(1, seq, d.cfg.Now())
	return d.cfg.Store.SetSinkCursor(context.WithoutCancel(ctx), d.id, seq)
}

// setAside makes a dead letter of the oldest event that waits.
func (d *delivery) setAside(ctx context.Context, e *vedettev1.Event, seq int64, attempts int, cause error) error {
	ctx = context.WithoutCancel(ctx)
	body, err := proto.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", e.GetName(), err)
	}
	err = d.cfg.Store.SetAside(ctx, store.DeadLetter{Sink: d.id, Seq: seq, Event: body, Reason: cause.Error(), Attempts: attempts})
	switch {
	case errors.Is(err, store.ErrDeadLetters):
		return fmt.Errorf("%w (this sink has %d dead letters: send them again or delete them, and delivery goes on)", cause, store.MaxDeadLetters)
	case err != nil:
		return err
	}
	d.cursor, d.refused = seq, 0
	d.logger.Warn("the sink's receiver refuses an event for good; it is set aside", slog.String("event", e.GetName()), slog.Any("err", cause))
	return d.count(ctx)
}

// redeliver sends one dead letter that waits to be sent again; false: there is none.
func (d *delivery) redeliver(ctx context.Context) (bool, error) {
	list, err := d.cfg.Store.DeadLetters(ctx, d.id, 0, true, 1)
	if err != nil || len(list) == 0 {
		return false, err
	}
	letter, e := list[0], &vedettev1.Event{}
	if err := proto.Unmarshal(letter.Event, e); err != nil {
		return true, fmt.Errorf("decode dead letter %d: %w", letter.Seq, err)
	}
	d.status.delivering(e.GetTime().AsTime())
	_, err = d.send(ctx, []*vedettev1.Event{e})
	kept := context.WithoutCancel(ctx)
	switch {
	case err == nil:
		d.status.delivered(1, d.cursor, d.cfg.Now())
		_, err = d.cfg.Store.DeleteDeadLetters(kept, d.id, []int64{letter.Seq})
		if errors.Is(err, store.ErrNotFound) { // somebody gave it up meanwhile
			err = nil
		}
	case refusal(err) != nil:
		d.logger.Warn("the sink's receiver refuses a dead letter again", slog.String("event", e.GetName()), slog.Any("err", err))
		letter.Again, letter.Reason, letter.Attempts = false, err.Error(), letter.Attempts+1
		err = d.cfg.Store.SetAside(kept, letter)
	}
	return true, errors.Join(err, d.count(kept))
}

// count has the status tell how many dead letters there are.
func (d *delivery) count(ctx context.Context) error {
	n, err := d.cfg.Store.CountDeadLetters(ctx, d.id)
	if err == nil {
		d.status.dead(n)
	}
	return err
}

// deadLetters stands between the name of a sink and the number of an event.
const deadLetters = "/deadLetters/"

// ListDeadLetters implements vedettev1.SinkServiceServer.
func (s *Sinks) ListDeadLetters(ctx context.Context, req *vedettev1.ListDeadLettersRequest) (*vedettev1.ListDeadLettersResponse, error) {
	e, err := s.find("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	mark, after := "dead letters of "+e.sink.GetName()+" after:", int64(0)
	if t := req.GetPageToken(); t != "" {
		text, err := base64.RawURLEncoding.DecodeString(t)
		rest, ok := strings.CutPrefix(string(text), mark)
		if after, _ = strconv.ParseInt(rest, 10, 64); err != nil || !ok || after <= 0 {
			return nil, store.ErrPageToken
		}
	}
	list, err := s.cfg.Store.DeadLetters(ctx, id(e.sink), after, false, size)
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListDeadLettersResponse{}
	for i := range list {
		l := &list[i]
		v := &vedettev1.DeadLetter{
			Name: e.sink.GetName() + deadLetters + strconv.FormatInt(l.Seq, 10), Event: &vedettev1.Event{}, Reason: l.Reason, Attempts: int32(l.Attempts), SetAsideTime: timestamppb.New(l.Time), Redelivering: l.Again,
		}
		if err := proto.Unmarshal(l.Event, v.GetEvent()); err != nil {
			return nil, fmt.Errorf("decode %s: %w", v.GetName(), err)
		}
		resp.DeadLetters = append(resp.DeadLetters, v)
	}
	if len(list) == size {
		resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(mark + strconv.FormatInt(list[size-1].Seq, 10)))
	}
	return resp, nil
}

// RedeliverDeadLetters implements vedettev1.SinkServiceServer.
func (s *Sinks) RedeliverDeadLetters(ctx context.Context, req *vedettev1.RedeliverDeadLettersRequest) (*vedettev1.RedeliverDeadLettersResponse, error) {
	n, err := s.changeDeadLetters(ctx, req, s.cfg.Store.RedeliverDeadLetters)
	return &vedettev1.RedeliverDeadLettersResponse{Count: int32(n)}, err
}

// DeleteDeadLetters implements vedettev1.SinkServiceServer.
func (s *Sinks) DeleteDeadLetters(ctx context.Context, req *vedettev1.DeleteDeadLettersRequest) (*vedettev1.DeleteDeadLettersResponse, error) {
	n, err := s.changeDeadLetters(ctx, req, s.cfg.Store.DeleteDeadLetters)
	return &vedettev1.DeleteDeadLettersResponse{Count: int32(n)}, err
}

func (s *Sinks) changeDeadLetters(ctx context.Context, req interface {
	GetParent() string
	GetNames() []string
	GetAll() bool
}, change func(ctx context.Context, sink string, seqs []int64) (int, error),
) (int, error) {
	e, err := s.find("parent", req.GetParent())
	if err != nil {
		return 0, err
	}
	var seqs []int64
	switch names := req.GetNames(); {
	case req.GetAll() == (len(names) > 0):
		return 0, invalid("names", "give the names of dead letters, or all")
	case len(names) > 1000:
		return 0, invalid("names", "%d of them, at most 1000", len(names))
	default:
		for _, name := range names {
			number, ok := strings.CutPrefix(name, e.sink.GetName()+deadLetters)
			seq, err := strconv.ParseInt(number, 10, 64)
			if !ok || err != nil || seq <= 0 {
				return 0, invalid("names", "%q is not of the form %s/deadLetters/{event}", name, e.sink.GetName())
			}
			seqs = append(seqs, seq)
		}
	}
	n, err := change(ctx, id(e.sink), seqs)
	if err != nil {
		return 0, err
	}
	count, err := s.cfg.Store.CountDeadLetters(ctx, id(e.sink))
	if err != nil {
		return 0, err
	}
	e.status.dead(count)
	select {
	case e.status.again <- struct{}{}:
	default:
	}
	return n, nil
}
