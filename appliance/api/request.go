package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// identified is a request that may carry an id of its own (AIP-155).
type identified interface {
	proto.Message
	GetRequestId() string
	GetValidateOnly() bool
}

var requestID = regexp.MustCompile(`^[\x21-\x7e]{1,128}$`)

// once is the interceptor that has a request with an id make what it makes one time, however often it is sent. It stands
// inside the gate.
func (s *Server) once(g *gate) grpc.UnaryServerInterceptor {
	var one sync.Mutex // one of them at a time: the second of two has to see what the first made
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		r, ok := req.(identified)
		if !ok || r.GetRequestId() == "" {
			return next(ctx, req)
		}
		if !requestID.MatchString(r.GetRequestId()) {
			return nil, invalid("request_id", "1 to 128 printable ASCII characters without spaces, such as a UUID")
		}
		if r.GetValidateOnly() {
			return next(ctx, req)
		}
		a, err := g.access(ctx)
		if err != nil {
			return nil, err
		}
		known := store.Request{ID: digest([]byte(a.Actor), []byte(info.FullMethod), []byte(r.GetRequestId())), Content: contentOf(r)}
		one.Lock()
		defer one.Unlock()
		switch was, err := s.cfg.Store.GetRequest(ctx, known.ID); {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return nil, err
		case !bytes.Equal(was.Content, known.Content):
			return nil, &ReasonError{
				Code: codes.InvalidArgument, Reason: "REQUEST_ID_REUSED", Message: "this request_id was used for another request, which made " + was.Name,
				Hint: "give every request an id of its own",
			}
		default:
			return s.made(ctx, req, was.Name)
		}
		mintID(req, known.ID)
		resp, err := next(ctx, req)
		if err != nil {
			return nil, err
		}
		if made, ok := resp.(interface{ GetName() string }); ok {
			known.Name = made.GetName()
		}
		// Whoever hangs up after a change has still made it.
		if err := s.cfg.Store.KeepRequest(context.WithoutCancel(ctx), known); err != nil {
			s.cfg.Logger.ErrorContext(ctx, "a request could not be noted: sent again, it would be refused", slog.String("resource", known.Name), slog.Any("err", err))
		}
		return resp, nil
	}
}

func digest(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		h.Write(sum[:])
	}
	return h.Sum(nil)
}

// contentOf is a hash of what a request asks for, without its secrets, which must not be guessed from it.
func contentOf(r proto.Message) []byte {
	r = proto.Clone(r)
	redact(r.ProtoReflect())
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r) // it was read from bytes
	return digest(b)
}

// mintID gives what is to be made an id that follows from the request, where the client leaves that to the box: if the box
// dies before it has noted the request, the next try finds the name taken.
func mintID(req any, request []byte) {
	id := "r-" + strings.ToLower(base32.HexEncoding.EncodeToString(request[:10]))
	switch r := req.(type) {
	case *vedettev1.CreateCameraRequest:
		r.CameraId = cmp.Or(r.CameraId, id)
	case *vedettev1.CreateZoneRequest:
		r.ZoneId = cmp.Or(r.ZoneId, id)
	case *vedettev1.CreateLineRequest:
		r.LineId = cmp.Or(r.LineId, id)
	case *vedettev1.CreateSinkRequest:
		r.SinkId = cmp.Or(r.SinkId, id)
	}
}

// made is what an earlier request made, as it is now.
func (s *Server) made(ctx context.Context, req any, name string) (any, error) {
	switch req.(type) {
	case *vedettev1.CreateCameraRequest:
		return (&cameraService{cfg: &s.cfg}).GetCamera(ctx, &vedettev1.GetCameraRequest{Name: name})
	case *vedettev1.CreateZoneRequest:
		return s.cfg.Rules.GetZone(ctx, &vedettev1.GetZoneRequest{Name: name})
	case *vedettev1.CreateLineRequest:
		return s.cfg.Rules.GetLine(ctx, &vedettev1.GetLineRequest{Name: name})
	case *vedettev1.CreateSinkRequest:
		return s.cfg.Sinks.GetSink(ctx, &vedettev1.GetSinkRequest{Name: name})
	}
	return nil, errors.New("nobody knows what " + name + " is")
}
