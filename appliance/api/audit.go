package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// maxAuditRequest bounds what is kept of a request.
const maxAuditRequest = 16 << 10

// auditDetail is what an entry holds besides the store's columns.
type auditDetail struct {
	Peer    string `json:"peer,omitempty"`
	Request string `json:"request,omitempty"`
}

// changes tells whether a method changes something of the box.
func changes(method string) bool {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, prefix := range []string{"Get", "List", "Watch", "Test", "Query", "Probe", "Check", "Discover"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// audit writes down a change, or the attempt of one, by whom the gate knows.
func (s *Server) audit(ctx context.Context, actor, method string, req, resp any, err error) {
	m, ok := req.(proto.Message)
	if !ok || onlyValidates(m.ProtoReflect()) {
		return
	}
	detail := auditDetail{Peer: peerOf(ctx)}
	if err == nil { // what was refused may hold a password in the wrong place
		redacted := proto.Clone(m)
		redact(redacted.ProtoReflect())
		if text, err := protojson.Marshal(redacted); err == nil && len(text) <= maxAuditRequest {
			detail.Request = string(text)
		}
	}
	packed, _ := json.Marshal(detail) // strings alone
	e := store.AuditEntry{
		Actor: actor, Action: method[strings.LastIndexByte(method, '/')+1:], Resource: resourceOf(m, resp), Outcome: outcomeOf(toStatus(ctx, s.cfg.Logger, err)), Detail: packed,
	}
	// Whoever hangs up after a change has still made it.
	if err := s.cfg.Store.Audit(context.WithoutCancel(ctx), e); err != nil {
		s.cfg.Logger.ErrorContext(ctx, "a change could not be written to the audit log", slog.String("method", e.Action), slog.String("resource", e.Resource), slog.Any("err", err))
	}
}

func onlyValidates(m protoreflect.Message) bool {
	f := m.Descriptor().Fields().ByName("validate_only")
	return f != nil && f.Kind() == protoreflect.BoolKind && m.Get(f).Bool()
}

// redact takes out what is written and never read back (INPUT_ONLY), and values of maps, in which operators keep keys
// (a webhook's headers).
func redact(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case inputOnly(f):
			m.Clear(f)
			if f.Kind() == protoreflect.StringKind && !f.IsList() {
				m.Set(f, protoreflect.ValueOfString("***"))
			}
		case f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() && strings.Contains(v.String(), "://"):
			m.Set(f, protoreflect.ValueOfString(bareAddress(v.String())))
		case f.IsMap():
			if f.MapValue().Kind() == protoreflect.StringKind {
				v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
					v.Map().Set(k, protoreflect.ValueOfString("***"))
					return true
				})
			}
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			redact(v.Message())
		}
		return true
	})
}

func inputOnly(f protoreflect.FieldDescriptor) bool {
	list, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	name := string(f.Name())
	return slices.Contains(list, annotations.FieldBehavior_INPUT_ONLY) || strings.Contains(name, "password") || strings.Contains(name, "secret")
}

// resourceOf finds the name of what a request is about: that of the answer, its own, or that of what is in it.
func resourceOf(req proto.Message, resp any) string {
	if m, ok := resp.(proto.Message); ok && m != nil {
		if name := stringField(m.ProtoReflect(), "name"); name != "" {
			return name
		}
		if name := nestedName(m.ProtoReflect()); name != "" {
			return name
		}
	}
	m := req.ProtoReflect()
	for _, field := range []protoreflect.Name{"name", "parent"} {
		if name := stringField(m, field); name != "" {
			return name
		}
	}
	return nestedName(m)
}

func nestedName(m protoreflect.Message) (name string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap() {
			name = stringField(v.Message(), "name")
		}
		return name == ""
	})
	return name
}

func stringField(m protoreflect.Message, name protoreflect.Name) string {
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// outcomeOf is OK, or the reason of an error.
func outcomeOf(err error) string {
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return strings.ToUpper(s.Code().String())
}

// peerOf is where a call came from. Calls from the box's own HTTP address bring the client's along.
func peerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if a, ok := p.Addr.(*net.TCPAddr); ok {
		return a.IP.String()
	}
	if _, ok := p.Addr.(*net.UnixAddr); ok {
		return "local"
	}
	// The gateway calls over memory.
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("x-forwarded-for"); len(v) > 0 {
		address := v[len(v)-1][strings.LastIndexByte(v[len(v)-1], ' ')+1:]
		if host, _, err := net.SplitHostPort(address); err == nil { // the dashboard tells the port too
			return host
		}
		return address
	}
	return ""
}

// audited is the interceptor that has changes written down. It stands inside the gate, which tells who calls, and sees
// what the gate refused for want of a role.
func (s *Server) audited(g *gate) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		resp, err := g.unary(ctx, req, info, next)
		if changes(info.FullMethod) && !open(info.FullMethod) { // whoever logs in is not yet who calls: LogIn writes its own entry
			if a, known := g.access(ctx); known == nil { // strangers could flood the log
				s.audit(ctx, a.Actor, info.FullMethod, req, resp, err)
			}
		}
		return resp, err
	}
}

func auditFields() map[string]field {
	text := func(put func(q *store.Query, v string)) field {
		return field{ops: []string{"="}, set: func(q *store.Query, _, v string) error { put(q, v); return nil }}
	}
	return map[string]field{
		"actor":    text(func(q *store.Query, v string) { q.Actor = v }),
		"method":   text(func(q *store.Query, v string) { q.Action = v }),
		"resource": text(func(q *store.Query, v string) { q.Resource = v }),
		"outcome":  text(func(q *store.Query, v string) { q.Outcome = v }),
		"time":     timeField(),
	}
}

// ListAuditEntries implements vedettev1.SystemServiceServer.
func (s *systemService) ListAuditEntries(ctx context.Context, req *vedettev1.ListAuditEntriesRequest) (*vedettev1.ListAuditEntriesResponse, error) {
	q, err := query("", req.GetFilter(), req.GetOrderBy(), "time", auditFields())
	if err != nil {
		return nil, err
	}
	if q.PageSize, err = pageSize(req.GetPageSize(), 50, 1000); err != nil {
		return nil, err
	}
	q.PageToken = req.GetPageToken()
	list, next, err := s.cfg.Store.ListAudit(ctx, q)
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListAuditEntriesResponse{NextPageToken: next, AuditEntries: make([]*vedettev1.AuditEntry, len(list))}
	for i := range list {
		e := &list[i]
		var detail auditDetail
		if len(e.Detail) > 0 && json.Unmarshal(e.Detail, &detail) != nil {
			return nil, &ReasonError{Code: codes.DataLoss, Reason: "AUDIT_UNREADABLE", Message: "audit entry " + strconv.FormatInt(e.ID, 10) + " cannot be read"}
		}
		resp.AuditEntries[i] = &vedettev1.AuditEntry{
			Name: "auditEntries/" + strconv.FormatInt(e.ID, 10), Time: timestamppb.New(e.Time), Actor: e.Actor, Peer: detail.Peer, Method: e.Action,
			Resource: e.Resource, Outcome: e.Outcome, Request: detail.Request,
		}
	}
	return resp, nil
}

// bareAddress is an address without what may hold a password: a user in front of the host (which an address may carry when
// a camera is added), and a query.
func bareAddress(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}
