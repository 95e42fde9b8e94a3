package v2grpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/infer"
)

// maxWaiting bounds the responses of one stream that wait for a slow reader, in number and in bytes.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 512 << 20
)

// heldUp is how long the reader of a stream may take to write one answer before another goroutine reads on.
const heldUp = 20 * time.Millisecond

// stream is one ModelStreamInfer. One goroutine of the server's reads requests and submits them in order; the
// handler writes what came back. Requests of ordinary models are answered in the order they came; responses of
// decoupled models are written as they come.
//
// Where a model is done sooner than a goroutine is woken, the reader runs it and writes the answer itself. Should a client
// that does not read hold it up in that, another goroutine reads in its place.
type stream struct {
	server  *Server
	grpc    grpc.ServerStream
	ctx     context.Context //nolint:containedctx // the stream's own
	strict  bool            // the first error ends the stream with its status
	cancel  context.CancelCauseFunc
	changed chan struct{} // one slot: the writer looks at everything when woken
	room    chan struct{} // one slot: a request has ended, or its answer is written

	mu       sync.Mutex
	ordered  []*pending // requests of ordinary models, as they came
	ready    []outgoing // to be written now
	spare    []outgoing // memory for ready
	sending  bool       // somebody writes what is ready
	under    int        // requests without a final reply
	asked    int        // bytes of the requests whose answers are not written
	full     bool       // the reader waits for room
	bytes    int        // of the responses in ready and held
	held     int        // responses in ready and behind others
	readDone bool
	closed   bool // nothing is written any more
	err      error

	now      *pending // what the reader submits: it writes the answer if that is there in time
	reader   int      // how many readers there were; only the last one reads
	busy     bool     // it writes
	turn     uint64   // how often it did
	seen     uint64   // turn when the watch last looked
	watching bool     // the watch will ring
	watch    *time.Timer
}

// pending is a request of a stream.
type pending struct {
	stream    *stream
	call      *call
	reply     func(infer.Reply) // take
	decoupled bool
	bytes     int           // of the request
	replies   []infer.Reply // of an ordinary model that must wait for earlier requests
	done      bool
}

// outgoing is one message to be written.
type outgoing struct {
	call  *call
	reply infer.Reply
}

// modelStreamInfer is the handler of ModelStreamInfer.
func modelStreamInfer(srv any, gs grpc.ServerStream) error {
	s, ok := srv.(*Server)
	if !ok {
		return status.Error(codes.Internal, "handler of another service")
	}
	if err := s.admit(gs.Context(), apiInference); err != nil {
		return err
	}
	s.underWay.Begin()
	defer func() { s.underWay.End(s.stopping.Load()) }()
	ctx, cancel := context.WithCancelCause(gs.Context())
	defer cancel(nil)
	st := &stream{server: s, grpc: gs, ctx: ctx, cancel: cancel, changed: make(chan struct{}, 1), room: make(chan struct{}, 1), reader: 1}
	if v := metadata.ValueFromIncomingContext(ctx, "triton_grpc_error"); len(v) > 0 && v[0] == "true" {
		st.strict = true
	}
	st.watch = time.AfterFunc(time.Hour, st.look)
	st.watch.Stop()
	defer st.watch.Stop()
	// Reading may outlive the handler by a moment: only the handler's return ends a read.
	s.readers.Go(func() { st.read(1) })
	return statusOf(st.write())
}

// read submits requests until the client has sent its last, the stream fails or another goroutine reads in its place.
func (st *stream) read(self int) {
	for {
		c := st.server.newCall()
		if err := st.grpc.RecvMsg(c); err != nil {
			c.free()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			st.finish(err)
			return
		}
		if !st.submit(c) || !st.flush(self) {
			return
		}
	}
}

// submit hands a request on; false when the stream has ended.
func (st *stream) submit(c *call) bool {
	p := &c.pending
	p.stream, p.decoupled, p.done = st, false, false
	err := st.server.admit(st.ctx, apiInference)
	if err == nil {
		err = c.resolve(st.ctx)
	}
	if err == nil {
		var m *infer.ModelInfo
		if m, err = st.server.cfg.Catalog.Model(c.req.Model, c.req.Version); err == nil {
			p.decoupled = m.Decoupled
		}
	}
	st.mu.Lock()
	if !st.waitLocked(p.bytes) || st.closed {
		st.mu.Unlock()
		c.free()
		st.finish(nil)
		return false
	}
	st.under++
	st.asked += p.bytes
	decoupled := p.decoupled
	if !decoupled {
		st.ordered = append(st.ordered, p)
		st.now = p
	}
	st.mu.Unlock()
	switch {
	case err != nil:
	case decoupled:
		err = st.server.cfg.Inferer.Submit(st.ctx, &c.req, p.reply)
	default:
		err = infer.SubmitBrief(st.ctx, st.server.cfg.Inferer, &c.req, p.reply)
	}
	if err != nil {
		p.take(infer.Reply{Err: err, Final: true})
	}
	return true
}

// waitLocked returns when one more request of that size may be under way; false when the stream has failed.
func (st *stream) waitLocked(size int) bool {
	cfg := &st.server.cfg
	for st.err == nil && (st.under >= cfg.MaxStreamRequests || st.asked > 0 && st.asked+size > cfg.MaxStreamBytes) {
		st.full = true
		st.mu.Unlock()
		select {
		case <-st.room:
		case <-st.ctx.Done():
		}
		st.mu.Lock()
		st.full = false
		if st.ctx.Err() != nil {
			return false
		}
	}
	return st.err == nil
}

// look is the watch: it has another goroutine read where the reader still writes what it wrote when it last looked.
func (st *stream) look() {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.turn != st.seen:
		st.seen = st.turn
	case !st.busy:
		st.watching = false
		return
	default:
		st.busy = false
		st.reader++
		self := st.reader
		st.server.readers.Go(func() { st.read(self) })
	}
	st.watch.Reset(heldUp)
}

// take takes what the model says. It never blocks.
func (p *pending) take(r infer.Reply) {
	st := p.stream
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.Response != nil {
		p.call.users.Add(1)
	}
	if r.Final {
		p.done = true
		st.under--
		if st.full {
			signal(st.room)
		}
	}
	st.held++
	st.bytes += replyBytes(r)
	if st.held > maxWaiting || st.bytes > maxWaitingBytes {
		st.failLocked(infer.Errorf(infer.Unavailable, "the client reads slower than its requests are answered: %d responses wait", st.held))
	}
	if p.decoupled {
		st.ready = append(st.ready, outgoing{p.call, r})
	} else {
		p.replies = append(p.replies, r)
		st.releaseOrderedLocked()
	}
	if st.now != p && (len(st.ready) > 0 || st.readDone || st.err != nil) {
		st.wake()
	}
}

// releaseOrderedLocked lets go what no earlier request holds back any more.
func (st *stream) releaseOrderedLocked() {
	for len(st.ordered) > 0 {
		p := st.ordered[0]
		for i, r := range p.replies {
			st.ready = append(st.ready, outgoing{p.call, r})
			p.replies[i] = infer.Reply{}
		}
		p.replies = p.replies[:0]
		if !p.done {
			return
		}
		st.ordered[0] = nil
		if len(st.ordered) == 1 {
			st.ordered = st.ordered[:0]
			return
		}
		st.ordered = st.ordered[1:]
	}
}

func replyBytes(r infer.Reply) int {
	n := 0
	if r.Response != nil {
		for i := range r.Response.Outputs {
			n += len(r.Response.Outputs[i].Data)
		}
	}
	return n
}

func (st *stream) wake() { signal(st.changed) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (st *stream) finish(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.readDone = true
	if err != nil {
		st.failLocked(err)
	}
	st.wake()
}

// failLocked ends the stream with its first error; the requests under way are cancelled.
func (st *stream) failLocked(err error) {
	if st.err == nil {
		st.err = err
		st.cancel(err)
		st.wake()
	}
}

// write sends what is ready until no request can add to it any more, and returns how the stream ended.
func (st *stream) write() error {
	quit := st.server.quit
	var stopping error
	for {
		st.flush(0)
		st.mu.Lock()
		st.closed = (st.readDone || st.err != nil) && st.under == 0 && len(st.ready) == 0 && !st.sending
		closed, err := st.closed, st.err
		st.mu.Unlock()
		if closed {
			return cmp.Or(err, stopping)
		}
		select {
		case <-st.changed:
		case <-quit:
			quit, stopping = nil, errStopping()
			st.finish(nil)
		}
	}
}

// flush writes what is ready, unless another goroutine is at it: then that one will. The writer calls it as 0, a reader
// with its number when it has submitted a request, and hears whether it still is the one that reads.
func (st *stream) flush(self int) (reads bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if self > 0 {
		st.now = nil // what comes from now on is the writer's
	}
	if !st.sending && len(st.ready) > 0 {
		st.sending = true
		if self > 0 {
			st.busyLocked()
		}
		for len(st.ready) > 0 {
			st.sendLocked()
		}
		st.sending = false
	}
	if self == 0 {
		return false
	}
	if st.readDone || st.err != nil {
		st.wake()
	}
	if self != st.reader {
		return false
	}
	st.busy = false
	return true
}

// busyLocked notes that the reader begins to write.
func (st *stream) busyLocked() {
	st.busy = true
	st.turn++
	if !st.watching {
		st.watching, st.seen = true, st.turn
		st.watch.Reset(heldUp)
	}
}

// sendLocked writes what is ready now, without the lock, and frees what it held. After an error nothing is written any
// more.
func (st *stream) sendLocked() {
	batch := st.ready
	st.ready = st.spare[:0]
	for i, o := range batch {
		batch[i] = outgoing{}
		st.held--
		st.bytes -= replyBytes(o.reply)
		failed := st.err != nil
		asked := 0
		if o.reply.Final {
			asked = o.call.pending.bytes
		}
		st.mu.Unlock()
		msg, err := o.encode(failed, st.strict)
		if err == nil && msg != nil {
			err = st.grpc.SendMsg(msg)
		}
		st.mu.Lock()
		st.asked -= asked
		if err != nil {
			st.failLocked(err)
		}
		if st.full {
			signal(st.room)
		}
	}
	st.spare = batch
}

// encode makes the message of a reply; nil when there is none. An error is the stream's end.
func (o outgoing) encode(failed, strict bool) (encoded, error) {
	a := answer{call: o.call, resp: o.reply.Response, stream: true, final: o.reply.Final, last: o.reply.Final}
	err := o.reply.Err
	if err == nil && a.resp != nil {
		err = o.call.checkFrames()
	}
	switch {
	case failed:
		a.release()
		return nil, nil //nolint:nilnil // nothing is to be written
	case err != nil && strict:
		a.release()
		return nil, err
	case err != nil:
		id := o.call.id
		a.release()
		return encodeError(err, id), nil
	case a.resp == nil && !o.call.wantEnd:
		a.release()
		return nil, nil //nolint:nilnil // nobody asked for an empty end
	}
	id := o.call.id
	msg, err := a.encode()
	if err != nil && !strict {
		return encodeError(err, id), nil
	}
	return msg, err
}
