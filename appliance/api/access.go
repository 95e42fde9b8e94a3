package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vedette/vedette/appliance/cameras"
)

// access is what a client may do: a role, and the cameras it is for (none: all).
type access struct {
	Actor   string   `json:"-"` // who it is
	Role    Role     `json:"role"`
	Cameras []string `json:"cameras,omitempty"` // ids
	// Login is the user whose session it is; their own role and cameras hold.
	Login string `json:"login,omitempty"`

	token  string    // id; empty: none was needed
	expire time.Time // zero: never
}

// names are the cameras' full names.
func (a access) names() (names []string) {
	for _, id := range a.Cameras {
		names = append(names, cameras.Name(id))
	}
	return names
}

// spec is how the store keeps it: the bare role, or JSON when there are cameras.
func (a access) spec() []byte {
	if len(a.Cameras) == 0 && a.Login == "" {
		return []byte(a.Role)
	}
	b, err := json.Marshal(a)
	if err != nil { // a struct of strings
		panic(err)
	}
	return b
}

func parseAccess(spec []byte) (access, error) {
	if len(spec) == 0 || spec[0] != '{' {
		return access{Role: Role(spec)}, nil
	}
	var a access
	if err := json.Unmarshal(spec, &a); err != nil {
		return access{}, fmt.Errorf("read what a token is for: %w", err)
	}
	if len(a.Cameras) == 0 && a.Login == "" {
		return access{}, fmt.Errorf("read what a token is for: it is limited to cameras and names none")
	}
	return a, nil
}

// scoped tells whether the client may see some cameras only.
func (a access) scoped() bool { return len(a.Cameras) > 0 }

// open tells whether a scoped client may call a method: those whose messages say which camera they are about. Any
// other is closed to it, so that a new one cannot tell about the wrong cameras by accident.
func (a access) open(method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "vedette.v1.CameraService":
		return name != "CreateCamera" && name != "ProbeCamera" && name != "DiscoverCameras"
	case "vedette.v1.AnalyticsService", "vedette.v1.EventService":
		return true
	case "vedette.v1.SystemService":
		return name == "GetSystem" || name == "GetHistory"
	case "vedette.v1.UserService": // of oneself: the others are for admins
		return name == "GetSession" || name == "LogOut" || name == "ChangePassword"
	case "vedette.v1.RuleService":
		return true
	}
	return false
}

// allows tells whether a text, when it names something of a camera (cameras/{camera}...), names one of the client's.
func (a access) allows(text string) bool {
	rest, ok := strings.CutPrefix(text, "cameras/")
	if !ok {
		return true
	}
	id, _, _ := strings.Cut(rest, "/")
	return id == "-" || slices.Contains(a.Cameras, id)
}

// within tells whether everything a message names is the client's.
func (a access) within(m protoreflect.Message) bool {
	ok := true
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		ok = a.value(f, v)
		return ok
	})
	return ok
}

func (a access) value(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch {
	case f.IsMap():
		return true // labels and counts by cause: no names of cameras
	case f.IsList():
		for i := range v.List().Len() {
			if !a.single(f, v.List().Get(i)) {
				return false
			}
		}
		return true
	}
	return a.single(f, v)
}

func (a access) single(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch f.Kind() {
	case protoreflect.StringKind:
		return a.allows(v.String())
	case protoreflect.MessageKind:
		return a.within(v.Message())
	default:
		return true
	}
}

// trim takes out of an answer's lists what is not the client's, and tells whether the rest may be sent.
func (a access) trim(m protoreflect.Message) bool {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsList() || (f.Kind() != protoreflect.MessageKind && f.Kind() != protoreflect.StringKind) {
			return true
		}
		kept := m.NewField(f).List()
		for i := range v.List().Len() {
			if e := v.List().Get(i); a.single(f, e) {
				kept.Append(e)
			}
		}
		if kept.Len() < v.List().Len() {
			m.Set(f, protoreflect.ValueOfList(kept))
		}
		return true
	})
	return a.within(m)
}

// notYours is the same answer for a camera that is not there and one the client may not know of.
func notYours() error {
	return &ReasonError{Code: codes.NotFound, Reason: "NOT_FOUND", Message: "there is no such thing among the cameras this token is for"}
}

func closed(method string) error {
	return &ReasonError{
		Code: codes.PermissionDenied, Reason: "SCOPE_TOO_NARROW", Message: method[strings.LastIndexByte(method, '/')+1:] + " is not for a token limited to some cameras",
		Hint: "use a token for all cameras",
	}
}

// answer calls a unary method for a client.
func (a access) answer(ctx context.Context, method string, req any, next grpc.UnaryHandler) (any, error) {
	if !a.scoped() {
		return next(ctx, req)
	}
	if !a.open(method) {
		return nil, closed(method)
	}
	if m, ok := req.(proto.Message); ok && !a.within(m.ProtoReflect()) {
		return nil, notYours()
	}
	resp, err := next(cameras.WithScope(ctx, a.Cameras), req)
	if err != nil {
		return nil, err
	}
	// What is answered may be shared with other answers: a copy is trimmed.
	m, ok := resp.(proto.Message)
	if !ok {
		return nil, closed(method)
	}
	m = proto.Clone(m)
	if !a.trim(m.ProtoReflect()) {
		return nil, notYours()
	}
	return m, nil
}

// narrow is a stream that receives and sends only what is the client's. A message that is about another camera as a
// whole is left out.
type narrow struct {
	grpc.ServerStream
	access access
}

func (s *narrow) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if p, ok := m.(proto.Message); ok && !s.access.within(p.ProtoReflect()) {
		return notYours()
	}
	return nil
}

func (s *narrow) SendMsg(m any) error {
	if o, ok := m.(*observed); ok {
		if !s.access.allows(o.camera) {
			return nil
		}
		return s.ServerStream.SendMsg(o)
	}
	p, ok := m.(proto.Message)
	if !ok {
		return closed("the stream")
	}
	p = proto.Clone(p)
	if !s.access.trim(p.ProtoReflect()) {
		return nil
	}
	return s.ServerStream.SendMsg(p)
}
