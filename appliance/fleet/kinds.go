package fleet

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// kind is how one kind of thing is listed, made, changed and removed.
type kind struct {
	plural string
	of     func(s *State) (want []proto.Message, owned func(name string) bool)
	list   func(ctx context.Context) ([]proto.Message, error)
	create func(ctx context.Context, m proto.Message, only bool) (proto.Message, error)
	update func(ctx context.Context, m proto.Message, paths []string, only bool) (proto.Message, error)
	remove func(ctx context.Context, name string) error
	// paths are those of what an operator decides, secrets apart, and that m or was has.
	paths func(m, was proto.Message) []string
	// secret is the path of the secret that m gives, or takes from what was; empty: it does neither.
	secret func(m, was proto.Message) string
	// keeps tells whether the secret that there is may be the one that m gives.
	keeps func(m, was proto.Message) bool
}

// kinds are in the order in which they are made; overload takes cameras that exceed the box's capacity.
func kinds(conn grpc.ClientConnInterface, overload bool) []kind {
	cameras, rules, sinks := vedettev1.NewCameraServiceClient(conn), vedettev1.NewRuleServiceClient(conn), vedettev1.NewSinkServiceClient(conn)
	none := func(proto.Message, proto.Message) string { return "" }
	no := func(proto.Message, proto.Message) bool { return false }
	return []kind{
		{
			plural: "cameras",
			of: func(s *State) ([]proto.Message, func(string) bool) {
				return s.cameras, func(string) bool { return s.ownsCameras }
			},
			list: func(ctx context.Context) ([]proto.Message, error) {
				return all(func(token string) ([]*vedettev1.Camera, string, error) {
					r, err := cameras.ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000, PageToken: token})
					return r.GetCameras(), r.GetNextPageToken(), err
				})
			},
			create: func(ctx context.Context, m proto.Message, only bool) (proto.Message, error) {
				return cameras.CreateCamera(ctx, &vedettev1.CreateCameraRequest{CameraId: id(m), Camera: m.(*vedettev1.Camera), ValidateOnly: only, AllowOverload: overload})
			},
			update: func(ctx context.Context, m proto.Message, paths []string, only bool) (proto.Message, error) {
				return cameras.UpdateCamera(ctx, &vedettev1.UpdateCameraRequest{
					Camera: m.(*vedettev1.Camera), UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, ValidateOnly: only, AllowOverload: overload,
				})
			},
			remove: func(ctx context.Context, name string) error {
				_, err := cameras.DeleteCamera(ctx, &vedettev1.DeleteCameraRequest{Name: name})
				return err
			},
			paths: func(m, was proto.Message) []string {
				// The source by its parts: as a whole it would take its password along.
				paths := slices.DeleteFunc(decided(m, was), func(path string) bool { return path == "source" })
				for _, part := range decided(m.(*vedettev1.Camera).GetSource(), was.(*vedettev1.Camera).GetSource()) {
					paths = append(paths, "source."+part)
				}
				return paths
			},
			secret: func(m, was proto.Message) string {
				source := m.(*vedettev1.Camera).GetSource()
				gone := source.GetUsername() == "" && was.(*vedettev1.Camera).GetSource().GetPasswordSet() // with its user
				if source.GetPassword() == "" && !gone {
					return ""
				}
				return "source.password"
			},
			keeps: func(m, was proto.Message) bool {
				return was.(*vedettev1.Camera).GetSource().GetPasswordSet() && m.(*vedettev1.Camera).GetSource().GetUsername() != ""
			},
		},
		{
			plural: "zones",
			of: func(s *State) ([]proto.Message, func(string) bool) {
				return s.zones, func(name string) bool { return s.ownsRules[name[:strings.LastIndexByte(name, '/')]] }
			},
			list: func(ctx context.Context) ([]proto.Message, error) {
				return all(func(token string) ([]*vedettev1.Zone, string, error) {
					r, err := rules.ListZones(ctx, &vedettev1.ListZonesRequest{Parent: "cameras/-", PageSize: 1000, PageToken: token})
					return r.GetZones(), r.GetNextPageToken(), err
				})
			},
			create: func(ctx context.Context, m proto.Message, only bool) (proto.Message, error) {
				return rules.CreateZone(ctx, &vedettev1.CreateZoneRequest{Parent: parent(m), ZoneId: id(m), Zone: m.(*vedettev1.Zone), ValidateOnly: only})
			},
			update: func(ctx context.Context, m proto.Message, paths []string, only bool) (proto.Message, error) {
				return rules.UpdateZone(ctx, &vedettev1.UpdateZoneRequest{Zone: m.(*vedettev1.Zone), UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, ValidateOnly: only})
			},
			remove: func(ctx context.Context, name string) error {
				_, err := rules.DeleteZone(ctx, &vedettev1.DeleteZoneRequest{Name: name})
				return err
			},
			paths: decided, secret: none, keeps: no,
		},
		{
			plural: "lines",
			of: func(s *State) ([]proto.Message, func(string) bool) {
				return s.lines, func(name string) bool { return s.ownsRules[name[:strings.LastIndexByte(name, '/')]] }
			},
			list: func(ctx context.Context) ([]proto.Message, error) {
				return all(func(token string) ([]*vedettev1.Line, string, error) {
					r, err := rules.ListLines(ctx, &vedettev1.ListLinesRequest{Parent: "cameras/-", PageSize: 1000, PageToken: token})
					return r.GetLines(), r.GetNextPageToken(), err
				})
			},
			create: func(ctx context.Context, m proto.Message, only bool) (proto.Message, error) {
				return rules.CreateLine(ctx, &vedettev1.CreateLineRequest{Parent: parent(m), LineId: id(m), Line: m.(*vedettev1.Line), ValidateOnly: only})
			},
			update: func(ctx context.Context, m proto.Message, paths []string, only bool) (proto.Message, error) {
				return rules.UpdateLine(ctx, &vedettev1.UpdateLineRequest{Line: m.(*vedettev1.Line), UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, ValidateOnly: only})
			},
			remove: func(ctx context.Context, name string) error {
				_, err := rules.DeleteLine(ctx, &vedettev1.DeleteLineRequest{Name: name})
				return err
			},
			paths: decided, secret: none, keeps: no,
		},
		{
			plural: "sinks",
			of: func(s *State) ([]proto.Message, func(string) bool) {
				return s.sinks, func(string) bool { return s.ownsSinks }
			},
			list: func(ctx context.Context) ([]proto.Message, error) {
				return all(func(token string) ([]*vedettev1.Sink, string, error) {
					r, err := sinks.ListSinks(ctx, &vedettev1.ListSinksRequest{PageSize: 1000, PageToken: token})
					return r.GetSinks(), r.GetNextPageToken(), err
				})
			},
			create: func(ctx context.Context, m proto.Message, only bool) (proto.Message, error) {
				return sinks.CreateSink(ctx, &vedettev1.CreateSinkRequest{SinkId: id(m), Sink: m.(*vedettev1.Sink), ValidateOnly: only})
			},
			update: func(ctx context.Context, m proto.Message, paths []string, only bool) (proto.Message, error) {
				return sinks.UpdateSink(ctx, &vedettev1.UpdateSinkRequest{Sink: m.(*vedettev1.Sink), UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, ValidateOnly: only})
			},
			remove: func(ctx context.Context, name string) error {
				_, err := sinks.DeleteSink(ctx, &vedettev1.DeleteSinkRequest{Name: name})
				return err
			},
			paths: func(m, was proto.Message) []string {
				// Of the targets, the one that is set: naming another would clear it again.
				target := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("target"))
				var paths []string
				for _, path := range decided(m, was) {
					f := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path))
					if f.ContainingOneof() == nil || f == target {
						paths = append(paths, path)
					}
				}
				return paths
			},
			secret: func(m, _ proto.Message) string {
				if m.(*vedettev1.Sink).GetSecret() == "" {
					return ""
				}
				return "secret"
			},
			keeps: func(_, was proto.Message) bool { return was.(*vedettev1.Sink).GetSecretSet() },
		},
	}
}

// decided are the fields that an operator decides, secrets apart, and that one of two messages has.
func decided(m, was proto.Message) (paths []string) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch name := string(f.Name()); name {
		case "name", "uid", "etag", "create_time", "update_time", "status", "password", "password_set", "secret", "secret_set":
		default:
			if m.ProtoReflect().Has(f) || was.ProtoReflect().Has(f) {
				paths = append(paths, name)
			}
		}
	}
	return paths
}

// all reads every page.
func all[M proto.Message](page func(token string) ([]M, string, error)) (list []proto.Message, err error) {
	for token := ""; ; {
		part, next, err := page(token)
		if err != nil {
			return nil, err
		}
		for _, m := range part {
			list = append(list, m)
		}
		if token = next; token == "" {
			return list, nil
		}
	}
}

func id(m proto.Message) string {
	name := nameOf(m)
	return name[strings.LastIndexByte(name, '/')+1:]
}

func parent(m proto.Message) string {
	return strings.Join(strings.Split(nameOf(m), "/")[:2], "/")
}
