// Package fleet brings a box into the state that a file describes: its cameras with their zones and lines, and its
// sinks. Apply does it once; Follow keeps doing it with a file that others replace, or with what a registry serves.
//
// It knows the box by its API alone, so whatever it does is checked, authorised and audited like any other change.
package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// State is what a box is to be.
type State struct {
	// Digest of the text, as a name for it: sha256:...; empty when it was not read from one text.
	Digest string

	cameras, zones, lines, sinks []proto.Message
	// owned are the lists that the text has, if only an empty one: what else is in them may be pruned.
	ownsCameras, ownsSinks bool
	ownsRules              map[string]bool // by camera: "cameras/door/zones"
}

// maxState is more than ten thousand cameras take.
const maxState = 64 << 20

// Read reads a state as YAML or JSON. Everything wrong with it is told with its place.
func Read(from io.Reader) (*State, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxState+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxState {
		return nil, fmt.Errorf("it is larger than %d MiB", maxState>>20)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	r := &reader{state: &State{Digest: digestOf(text), ownsRules: map[string]bool{}}}
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		switch key {
		case "cameras":
			r.state.ownsCameras = true
			r.each(key, doc[key], r.camera)
		case "sinks":
			r.state.ownsSinks = true
			r.each(key, doc[key], r.sink)
		default:
			r.fault(key, "there are cameras and sinks, and nothing of this name")
		}
	}
	if len(r.faults) > 0 {
		return nil, errors.Join(r.faults...)
	}
	return r.state, nil
}

// reader collects a state and what is wrong with it.
type reader struct {
	state  *State
	faults []error
}

func (r *reader) fault(place, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
}

// each reads a map of things by their ids.
func (r *reader) each(place string, v any, read func(place, id string, fields map[string]any)) {
	if v == nil {
		return
	}
	things, ok := v.(map[string]any)
	if !ok {
		r.fault(place, "want names with what belongs to each below")
		return
	}
	for _, id := range slices.Sorted(maps.Keys(things)) {
		fields, ok := things[id].(map[string]any)
		if !ok && things[id] != nil {
			r.fault(place+"."+id, "want fields with their values")
			continue
		}
		read(place+"."+id, id, maps.Clone(fields))
	}
}

func (r *reader) camera(place, id string, fields map[string]any) {
	name := "cameras/" + id
	if fields == nil {
		fields = map[string]any{}
	}
	for _, kind := range []string{"zones", "lines"} {
		rules, ok := fields[kind]
		if !ok {
			continue
		}
		delete(fields, kind)
		r.state.ownsRules[name+"/"+kind] = true
		r.each(place+"."+kind, rules, func(place, rule string, fields map[string]any) {
			if kind == "zones" {
				r.state.zones = r.add(r.state.zones, place, fields, &vedettev1.Zone{Name: name + "/zones/" + rule})
			} else {
				r.state.lines = r.add(r.state.lines, place, fields, &vedettev1.Line{Name: name + "/lines/" + rule})
			}
		})
	}
	if source, ok := fields["source"].(map[string]any); ok {
		source = maps.Clone(source)
		r.secret(place+".source", source, "password")
		fields["source"] = source
	}
	r.state.cameras = r.add(r.state.cameras, place, fields, &vedettev1.Camera{Name: name})
}

func (r *reader) sink(place, id string, fields map[string]any) {
	if fields == nil {
		fields = map[string]any{}
	}
	r.secret(place, fields, "secret")
	r.state.sinks = r.add(r.state.sinks, place, fields, &vedettev1.Sink{Name: "sinks/" + id})
}

// secret replaces FIELD_file by what the file holds.
func (r *reader) secret(place string, fields map[string]any, field string) {
	if path, ok := fields[field+"_file"].(string); ok {
		delete(fields, field+"_file")
		b, err := os.ReadFile(path)
		if err != nil {
			r.fault(place+"."+field+"_file", "%v", err)
		}
		fields[field] = strings.TrimRight(string(b), "\r\n")
	}
}

// add reads fields into a message that has its name already.
func (r *reader) add(list []proto.Message, place string, fields map[string]any, m proto.Message) []proto.Message {
	name := nameOf(m)
	for _, own := range []string{"name", "uid", "etag", "create_time", "update_time", "status"} {
		if _, ok := fields[own]; ok {
			r.fault(place+"."+own, "is the box's own and cannot be set")
			return list
		}
	}
	text, err := json.Marshal(points(fields))
	if err != nil {
		r.fault(place, "%v", err)
		return list
	}
	into := proto.Clone(m)
	proto.Reset(into)
	if err := protojson.Unmarshal(text, into); err != nil {
		// The place within the JSON, which nobody has seen, helps nobody.
		_, why, _ := strings.Cut(err.Error(), "): ")
		r.fault(place, "%s", orElse(why, err.Error()))
		return list
	}
	setName(into, name)
	return append(list, into)
}

// points lets places be written as [x, y].
func points(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "start" || k == "end" {
				e = point(e)
			}
			if list, ok := e.([]any); ok && k == "polygon" {
				list = slices.Clone(list)
				for i := range list {
					list[i] = point(list[i])
				}
				e = list
			}
			v[k] = points(e)
		}
	case []any:
		for i := range v {
			v[i] = points(v[i])
		}
	}
	return v
}

func point(v any) any {
	if p, ok := v.([]any); ok && len(p) == 2 {
		return map[string]any{"x": p[0], "y": p[1]}
	}
	return v
}

func orElse(v, standard string) string {
	if v == "" {
		return standard
	}
	return v
}
