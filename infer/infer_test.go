package infer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

func TestEveryCodeHasItsStatuses(t *testing.T) {
	for code, want := range map[infer.Code]struct {
		http int
		grpc uint32
	}{
		infer.Internal: {500, 13}, infer.NotFound: {404, 5}, infer.InvalidArgument: {400, 3}, infer.Unavailable: {503, 14},
		infer.Unsupported: {501, 12}, infer.AlreadyExists: {400, 6}, infer.Cancelled: {400, 1}, infer.Unknown: {400, 2},
	} {
		if code.HTTP() != want.http || code.GRPC() != want.grpc {
			t.Errorf("code %d is HTTP %d and gRPC %d", code, code.HTTP(), code.GRPC())
		}
		if got := infer.CodeOf(fmt.Errorf("wrapped: %w", infer.Errorf(code, "x"))); got != code {
			t.Errorf("wrapped code %d is read as %d", code, got)
		}
	}
	if infer.CodeOf(errors.New("x")) != infer.Internal || infer.CodeOf(context.Canceled) != infer.Cancelled {
		t.Error("errors of others have the wrong class")
	}
	if infer.ReasonOf(context.Canceled).String() != "CANCELED" || infer.ReasonOf(errors.New("x")).String() != "OTHER" {
		t.Error("reasons of others' errors are wrong")
	}
}

// stage answers requests as the test says.
type stage func(req *infer.Request, reply func(infer.Reply)) error

func (s stage) Submit(_ context.Context, req *infer.Request, reply func(infer.Reply)) error {
	return s(req, reply)
}

func TestDoWantsExactlyOneResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		s    stage
		want string
	}{
		{"one", func(_ *infer.Request, reply func(infer.Reply)) error {
			reply(infer.Reply{Response: new(infer.Response), Final: true})
			return nil
		}, "<nil>"},
		{"none", func(_ *infer.Request, reply func(infer.Reply)) error {
			reply(infer.Reply{Final: true})
			return nil
		}, "expected a single response, got 0"},
		{"two", func(_ *infer.Request, reply func(infer.Reply)) error {
			reply(infer.Reply{Response: new(infer.Response)})
			reply(infer.Reply{Response: new(infer.Response), Final: true})
			return nil
		}, "expected a single response, got 2"},
		{"an error", func(_ *infer.Request, reply func(infer.Reply)) error {
			reply(infer.Reply{Err: errors.New("no"), Final: true})
			return nil
		}, "no"},
		{"a refusal", func(*infer.Request, func(infer.Reply)) error { return errors.New("not here") }, "not here"},
	} {
		resp, err := infer.Do(t.Context(), c.s, new(infer.Request))
		if fmt.Sprint(err) != c.want || (resp == nil) != (err != nil) {
			t.Errorf("%s: %v %v, want %s", c.name, resp, err, c.want)
		}
	}
}

func TestResponseGivesEverythingBack(t *testing.T) {
	var pool tensor.Pool
	var recycled *infer.Response
	r := infer.NewResponse(&pool, func(r *infer.Response) { recycled = r })
	calls := ""
	for round := range 3 {
		r.ID = "x"
		copy(r.Add("A", tensor.Int32, []int64{1, 2}, 8), "12345678")
		r.AddView("B", tensor.Uint8, []int64{3}, []byte("abc"))
		r.Keep(pool.Get(100))
		r.OnRelease(func() { calls += "a" })
		r.OnRelease(func() { calls += "b" })
		if string(r.Output("A").Data) != "12345678" || r.Output("C") != nil || fmt.Sprint(r.Output("A").Shape, r.Output("B").Shape) != "[1 2] [3]" {
			t.Errorf("round %d: %+v", round, r.Outputs)
		}
		r.Release()
		if recycled != r || pool.Lent() != 0 || len(r.Outputs) != 0 || r.ID != "" {
			t.Errorf("round %d: not empty after release: %+v, %d lent", round, r, pool.Lent())
		}
	}
	if calls != "bababa" {
		t.Errorf("release hooks ran as %q", calls)
	}
	(*infer.Response)(nil).Release()
}

func TestP19DoReturnsAsSoonAsItsContextEnds(t *testing.T) {
	var late func(infer.Reply)
	s := stage(func(_ *infer.Request, reply func(infer.Reply)) error {
		late = reply
		return nil
	})
	for range 100 {
		gone := errors.New("the viewer went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err := infer.Do(ctx, s, new(infer.Request))
		if infer.CodeOf(err) != infer.Cancelled || !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
		released := false
		resp := infer.NewResponse(nil, func(*infer.Response) { released = true })
		late(infer.Reply{Response: resp, Final: true})
		if !released {
			t.Fatal("nobody released the response that came late")
		}
	}
}
