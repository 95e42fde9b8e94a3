package v2grpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

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

// stream is one ModelStreamInfer. One goroutine of the server's reads requests and submits them in order; the
// handler writes what came back. Requests of ordinary models are answered in the order they came; responses of
// decoupled models are written as they come.
type stream struct {
	server  *Server
	grpc    grpc.ServerStream
	strict  bool // the first error ends the stream with its status
	cancel  context.CancelCauseFunc
	changed chan struct{} // one slot: the writer looks at everything when woken

	mu       sync.Mutex
	ordered  []*pending // requests of ordinary models, as they came
	ready    []outgoing // to be written now
	under    int        // requests without a final reply
	bytes    int        // of the responses in ready and held
	held     int        // responses in ready and behind others
	readDone bool
	closed   bool // nothing is written any more
	err      error

	room chan struct{} // one slot: a request has ended
}

// pending is one request of the stream.
type pending struct {
	stream    *stream
	call      *call
	decoupled bool
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
	ctx, cancel := context.WithCancelCause(gs.Context())
	defer cancel(nil)
	st := &stream{server: s, grpc: gs, cancel: cancel, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if v := metadata.ValueFromIncomingContext(ctx, "triton_grpc_error"); len(v) > 0 && v[0] == "true" {
		st.strict = true
	}
	// Reading may outlive the handler by a moment: only the handler's return ends a read.
	s.readers.Go(func() { st.read(ctx) })
	return statusOf(st.write())
}

// read submits requests until the client has sent its last or the stream fails.
func (st *stream) read(ctx context.Context) {
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
		if !st.wait(ctx) {
			c.free()
			st.finish(nil)
			return
		}
		st.submit(ctx, c)
	}
}

// wait returns when one more request may be under way; false when the stream has failed.
func (st *stream) wait(ctx context.Context) bool {
	for {
		st.mu.Lock()
		ok, failed := st.under < st.server.cfg.MaxStreamRequests, st.err != nil
		st.mu.Unlock()
		if failed {
			return false
		}
		if ok {
			return true
		}
		select {
		case <-st.room:
		case <-ctx.Done():
			return false
		}
	}
}

func (st *stream) submit(ctx context.Context, c *call) {
	p := &pending{stream: st, call: c}
	err := st.server.admit(ctx, apiInference)
	if err == nil {
		err = c.resolve(ctx)
	}
	if err == nil {
		var m *infer.ModelInfo
		if m, err = st.server.cfg.Catalog.Model(c.req.Model, c.req.Version); err == nil {
			p.decoupled = m.Decoupled
		}
	}
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		c.free()
		return
	}
	st.under++
	if !p.decoupled {
		st.ordered = append(st.ordered, p)
	}
	st.mu.Unlock()
	if err == nil {
		err = st.server.cfg.Inferer.Submit(ctx, &c.req, p.reply)
	}
	if err != nil {
		p.reply(infer.Reply{Err: err, Final: true})
	}
}

// reply takes what the model says. It never blocks.
func (p *pending) reply(r infer.Reply) {
	st := p.stream
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.Response != nil {
		p.call.users.Add(1)
	}
	if r.Final {
		p.done = true
		st.under--
		select {
		case st.room <- struct{}{}:
		default:
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
	st.wake()
}

// releaseOrderedLocked lets go what no earlier request holds back any more.
func (st *stream) releaseOrderedLocked() {
	for len(st.ordered) > 0 {
		p := st.ordered[0]
		for _, r := range p.replies {
			st.ready = append(st.ready, outgoing{p.call, r})
		}
		p.replies = p.replies[:0]
		if !p.done {
			return
		}
		st.ordered[0] = nil
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

func (st *stream) wake() {
	select {
	case st.changed <- struct{}{}:
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
	var batch []outgoing
	quit := st.server.quit
	var stopping error
	for {
		st.mu.Lock()
		batch, st.ready = st.ready, batch[:0]
		st.closed = (st.readDone || st.err != nil) && st.under == 0 && len(batch) == 0
		closed, err := st.closed, st.err
		st.mu.Unlock()
		if closed {
			return cmp.Or(err, stopping)
		}
		for i, o := range batch {
			st.send(o)
			batch[i] = outgoing{}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-st.changed:
		case <-quit:
			quit, stopping = nil, errStopping()
			st.finish(nil)
		}
	}
}

// send writes one message and frees what it held. After an error nothing is written any more.
func (st *stream) send(o outgoing) {
	st.mu.Lock()
	st.held--
	st.bytes -= replyBytes(o.reply)
	failed := st.err != nil
	st.mu.Unlock()
	msg, err := o.encode(failed, st.strict)
	if err == nil && msg != nil {
		err = st.grpc.SendMsg(msg)
	}
	if err != nil {
		st.mu.Lock()
		st.failLocked(err)
		st.mu.Unlock()
	}
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
