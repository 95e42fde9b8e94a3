package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Change is one step towards a state.
type Change struct {
	// Action is create, update or delete.
	Action string `json:"action"`
	// Name of what is changed: cameras/door.
	Name string `json:"name"`
	// Fields that an update changes.
	Fields []Field `json:"fields,omitempty"`

	do func(ctx context.Context) error
}

// Field is one value that changes; empty: it is not set.
type Field struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Options of a plan.
type Options struct {
	// Prune removes what is in a list that the state has, but not in the state.
	Prune bool
	// Secrets writes passwords and keys again although it cannot be known whether they changed: they are never read
	// back. Otherwise they are written with what they belong to when that is new, or has none yet.
	Secrets bool
	// AllowOverload takes cameras although the box's measured capacity is exceeded by them.
	AllowOverload bool
}

// Plan compares a box with a state and returns what leads there, in order. Everything is checked by the box first: a
// state it would not take is an error, and nothing is changed.
func Plan(ctx context.Context, conn grpc.ClientConnInterface, s *State, o Options) ([]Change, error) {
	p := &planner{conn: conn, options: o}
	var plan []Change
	var late []Change // removals, once nothing refers to what is removed
	for _, k := range kinds(conn, o.AllowOverload) {
		want, owned := k.of(s)
		changes, gone, err := p.kind(ctx, k, want, owned)
		if err != nil {
			return nil, err
		}
		plan = append(plan, changes...)
		late = append(gone, late...)
	}
	return append(plan, late...), nil
}

// Apply makes the changes, one after the other, and stops at the first that fails; how many were made is told.
func Apply(ctx context.Context, plan []Change) (done int, err error) {
	for i, c := range plan {
		if err := c.do(ctx); err != nil {
			return i, fmt.Errorf("%s %s: %w", c.Action, c.Name, err)
		}
	}
	return len(plan), nil
}

type planner struct {
	conn    grpc.ClientConnInterface
	options Options
	fresh   map[string]bool // cameras that will be new
}

// kind plans one kind of thing.
func (p *planner) kind(ctx context.Context, k kind, want []proto.Message, owned func(name string) bool) (changes, gone []Change, err error) {
	have := map[string]proto.Message{}
	list, err := k.list(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", k.plural, err)
	}
	for _, m := range list {
		have[nameOf(m)] = m
	}
	for _, m := range want {
		name := nameOf(m)
		was, known := have[name]
		delete(have, name)
		if !known {
			c, err := p.create(ctx, k, m)
			if err != nil {
				return nil, nil, err
			}
			changes = append(changes, c)
			continue
		}
		c, err := p.update(ctx, k, was, m)
		if err != nil {
			return nil, nil, err
		}
		if c != nil {
			changes = append(changes, *c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if p.options.Prune && owned(name) {
			gone = append(gone, Change{Action: "delete", Name: name, do: func(ctx context.Context) error {
				err := k.remove(ctx, name)
				if status.Code(err) == codes.NotFound { // with its camera
					err = nil
				}
				return err
			}})
		}
	}
	return changes, gone, nil
}

func (p *planner) create(ctx context.Context, k kind, m proto.Message) (Change, error) {
	name := nameOf(m)
	camera, _, isRule := strings.Cut(strings.TrimPrefix(name, "cameras/"), "/")
	if !isRule || !p.fresh[camera] { // of a camera that is not there yet a rule cannot be checked
		if _, err := k.create(ctx, m, true); err != nil {
			return Change{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if k.plural == "cameras" {
		if p.fresh == nil {
			p.fresh = map[string]bool{}
		}
		p.fresh[camera] = true
	}
	return Change{Action: "create", Name: name, do: func(ctx context.Context) error {
		_, err := k.create(ctx, m, false)
		return err
	}}, nil
}

// update asks the box what the thing would be, which is compared with what it is.
func (p *planner) update(ctx context.Context, k kind, was, want proto.Message) (*Change, error) {
	name := nameOf(want)
	paths := k.paths(want, was)
	secret := k.secret(want, was)
	if secret != "" && (p.options.Secrets || !k.keeps(want, was)) {
		paths = append(paths, secret)
	} else {
		secret = ""
	}
	would, err := k.update(ctx, want, paths, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	fields := difference(was, would)
	if secret != "" {
		fields = append(fields, Field{Path: secret, To: "***"})
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return &Change{Action: "update", Name: name, Fields: fields, do: func(ctx context.Context) error {
		_, err := k.update(ctx, want, paths, false)
		return err
	}}, nil
}

// difference lists the values in which two messages differ, apart from those that are the box's own.
func difference(was, would proto.Message) (fields []Field) {
	a, b := flat(was), flat(would)
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if a[path] != b[path] {
			fields = append(fields, Field{Path: path, From: a[path], To: b[path]})
		}
	}
	return fields
}

// flat gives the values of a message by their paths.
func flat(m proto.Message) map[string]string {
	m = proto.Clone(m)
	for _, own := range []protoreflect.Name{"name", "uid", "etag", "create_time", "update_time", "status", "password_set", "secret_set"} {
		if f := m.ProtoReflect().Descriptor().Fields().ByName(own); f != nil {
			m.ProtoReflect().Clear(f)
		}
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil { // what came over the wire can be written again
		panic(err)
	}
	values := map[string]string{}
	flatten(values, "", tree)
	delete(values, "source.password_set")
	return values
}

func flatten(values map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(values, strings.TrimPrefix(path+"."+k, "."), e)
		}
	case []any:
		for i, e := range v {
			flatten(values, fmt.Sprintf("%s[%d]", path, i), e)
		}
	default:
		values[path] = fmt.Sprint(v)
	}
}

func nameOf(m proto.Message) string {
	r := m.ProtoReflect()
	return r.Get(r.Descriptor().Fields().ByName("name")).String()
}

func setName(m proto.Message, name string) {
	r := m.ProtoReflect()
	r.Set(r.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString(name))
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
