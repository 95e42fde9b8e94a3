package rulebook

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/rules"
	"github.com/vedette/vedette/store"
)

// The kinds of rules, as they stand in names.
const (
	zone = "zone"
	line = "line"
)

func kindOf(r rule) string {
	if _, ok := r.(*vedettev1.Zone); ok {
		return zone
	}
	return line
}

// parseName splits cameras/{camera}/zones/{zone} or cameras/{camera}/lines/{line}.
func parseName(name string) (camera, kind, id string, err error) {
	p := strings.Split(name, "/")
	if len(p) != 4 || p[0] != "cameras" || (p[2] != "zones" && p[2] != "lines") || p[1] == "" || p[3] == "" {
		return "", "", "", invalid("name", "%q is neither cameras/{camera}/zones/{zone} nor cameras/{camera}/lines/{line}", name)
	}
	return p[1], strings.TrimSuffix(p[2], "s"), p[3], nil
}

// resourceName is the name of a rule's row.
func resourceName(name string) string { return strings.TrimPrefix(name, "cameras/") }

func randomID() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.HexEncoding.EncodeToString(b))
}

func field(r rule, name protoreflect.Name) protoreflect.FieldDescriptor {
	return r.ProtoReflect().Descriptor().Fields().ByName(name)
}

func setName(r rule, name string) {
	r.ProtoReflect().Set(field(r, "name"), protoreflect.ValueOfString(name))
}

// given reports whether a field is what an operator decides.
func given(name protoreflect.Name) bool {
	return !slices.Contains([]protoreflect.Name{"name", "uid", "etag", "create_time", "update_time"}, name)
}

// clean copies what an operator decides of a rule.
func clean(r rule) rule {
	c := proto.CloneOf(r)
	m := c.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); !given(fd.Name()) {
			m.Clear(fd)
		}
	}
	return c
}

// merge puts the fields of from that paths names into want; no paths: every field that is set.
func merge(want, from rule, paths []string) error {
	to, src := want.ProtoReflect(), from.ProtoReflect()
	if slices.Equal(paths, []string{"*"}) { // the whole rule
		fields := to.Descriptor().Fields()
		for i := range fields.Len() {
			if fd := fields.Get(i); given(fd.Name()) {
				to.Clear(fd)
			}
		}
		paths = nil
	}
	if len(paths) == 0 {
		src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if given(fd.Name()) {
				to.Set(fd, v)
			}
			return true
		})
		return nil
	}
	for _, p := range paths {
		fd := field(want, protoreflect.Name(p))
		if fd == nil || !given(fd.Name()) {
			return invalid("update_mask", "%q is no field of a %s that can be changed", p, kindOf(want))
		}
		if src.Has(fd) {
			to.Set(fd, src.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
	return nil
}

func toResource(r rule) (store.Resource, error) {
	camera, _, _, err := parseName(r.GetName())
	if err != nil {
		return store.Resource{}, err
	}
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(clean(r))
	if err != nil {
		return store.Resource{}, fmt.Errorf("encode %s: %w", r.GetName(), err)
	}
	return store.Resource{
		Name: resourceName(r.GetName()), Parent: camera, DisplayName: r.GetDisplayName(), Spec: spec, Secret: []byte{}, Enabled: !r.GetDisabled(),
	}, nil
}

func fromResource(res *store.Resource) (*entry, error) {
	name := "cameras/" + res.Name
	_, kind, id, err := parseName(name)
	if err != nil {
		return nil, err
	}
	create, update := timestamppb.New(res.CreateTime), timestamppb.New(res.UpdateTime)
	if kind == zone {
		z := &vedettev1.Zone{}
		if err := proto.Unmarshal(res.Spec, z); err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		z.Name, z.Uid, z.Etag, z.CreateTime, z.UpdateTime = name, res.UID, res.Etag, create, update
		compiled := compileZone(z)
		return &entry{rule: z, zone: &compiled}, validate(kind, id, z)
	}
	l := &vedettev1.Line{}
	if err := proto.Unmarshal(res.Spec, l); err != nil {
		return nil, fmt.Errorf("decode %s: %w", name, err)
	}
	l.Name, l.Uid, l.Etag, l.CreateTime, l.UpdateTime = name, res.UID, res.Etag, create, update
	compiled := compileLine(l)
	return &entry{rule: l, line: &compiled}, validate(kind, id, l)
}

// What an unset inertia means: some frames at any usual rate, and shorter for lines, whose crossing may be the last that
// is seen of an object.
const (
	zoneInertia = 300 * time.Millisecond
	lineInertia = 200 * time.Millisecond
)

func compileZone(z *vedettev1.Zone) rules.Zone {
	c := rules.Zone{
		Subject: compileSubject(z, zoneInertia), Dwell: z.GetDwell().AsDuration(), Loitering: z.GetLoitering().AsDuration(), Occupancy: int(z.GetOccupancy()),
	}
	if z.GetInertia() != nil {
		c.Inertia = z.GetInertia().AsDuration()
	}
	for _, p := range z.GetPolygon() {
		c.Polygon = append(c.Polygon, point(p))
	}
	return c
}

func compileLine(l *vedettev1.Line) rules.Line {
	c := rules.Line{Subject: compileSubject(l, lineInertia), From: point(l.GetStart()), To: point(l.GetEnd())}
	if l.GetInertia() != nil {
		c.Inertia = l.GetInertia().AsDuration()
	}
	return c
}

func compileSubject(r rule, inertia time.Duration) rules.Subject {
	s := rules.Subject{
		ID: r.GetName(), Revision: revisionOf(r), Center: r.GetAnchor() == vedettev1.Anchor_ANCHOR_CENTER,
		Classes: r.GetClasses(), MinScore: float64(r.GetMinScore()), Inertia: inertia,
	}
	if given := r.GetSchedule(); given != nil {
		s.Schedule = &rules.Schedule{}
		if loc, err := location(given.GetTimeZone()); err == nil {
			s.Schedule.Location = loc
		}
		for _, p := range given.GetPeriods() {
			period := rules.Period{}
			period.Start, _ = minutes(p.GetStart()) // both were validated
			period.End, _ = minutes(p.GetEnd())
			for _, d := range p.GetDays() {
				period.Days[int(d)%7] = true // Sunday is 7 here and 0 there
			}
			s.Schedule.Periods = append(s.Schedule.Periods, period)
		}
	}
	return s
}

// revisionOf changes with what a rule means, and not with what people call it: whoever is in a zone that is renamed has
// not entered it again.
func revisionOf(r rule) string {
	meaning := clean(r)
	meaning.ProtoReflect().Clear(field(meaning, "display_name"))
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(meaning)
	if err != nil {
		return r.GetUid() + "." + r.GetEtag()
	}
	return r.GetUid() + string(b)
}

func point(p *vedettev1.Point) rules.Point {
	return rules.Point{X: float64(p.GetX()), Y: float64(p.GetY())}
}

// minutes reads HH:MM as minutes after midnight.
func minutes(text string) (int, bool) {
	h, m, ok := strings.Cut(text, ":")
	hours, err1 := strconv.ParseUint(h, 10, 8)
	mins, err2 := strconv.ParseUint(m, 10, 8)
	if !ok || len(h) != 2 || len(m) != 2 || err1 != nil || err2 != nil || hours > 23 || mins > 59 {
		return 0, false
	}
	return int(hours*60 + mins), true
}
