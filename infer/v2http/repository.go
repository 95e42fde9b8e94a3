package v2http

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/vedette/vedette/infer"
)

// members reads a JSON object of a small call; an empty body is an empty object.
func (s *Server) members(req *http.Request, limit int64) (map[string]any, error) {
	body, err := s.readJSON(req, limit)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	if err := (&scanner{b: body}).whole(); err != nil { // for its limit on depth, and its texts
		return nil, parseError(err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, invalid("Unable to parse 'request': attempt to access JSON non-object as object")
	}
	return m, nil
}

func noRepository(r route) error {
	if r.region != "" {
		return infer.Errorf(infer.Unsupported, "'repository_name' specification is not supported")
	}
	return nil
}

func (s *Server) index(w http.ResponseWriter, req *http.Request, r route) error {
	if err := noRepository(r); err != nil {
		return err
	}
	m, err := s.members(req, s.cfg.MaxInputSize)
	if err != nil {
		return err
	}
	ready := false
	if v, given := m["ready"]; given {
		var ok bool
		if ready, ok = v.(bool); !ok {
			return invalid("Invalid value for 'ready': expected a boolean")
		}
	}
	type entry struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
		State   string `json:"state,omitempty"`
		Reason  string `json:"reason,omitempty"`
	}
	list := []entry{}
	for _, e := range s.cfg.Catalog.Index(ready) {
		list = append(list, entry(e))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// jsonType names a value's type in messages.
func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case json.Number:
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

func parametersOf(m map[string]any) (map[string]any, error) {
	v, given := m["parameters"]
	if !given {
		return nil, nil //nolint:nilnil // an empty map is as good
	}
	p, ok := v.(map[string]any)
	if !ok {
		return nil, invalid("Unable to parse 'parameters': attempt to access JSON non-object as object")
	}
	return p, nil
}

func (s *Server) load(w http.ResponseWriter, req *http.Request, r route) error {
	if err := noRepository(r); err != nil {
		return err
	}
	m, err := s.members(req, s.cfg.MaxBodySize) // models may be in it
	if err != nil {
		return err
	}
	params, err := parametersOf(m)
	if err != nil {
		return err
	}
	var opts infer.LoadOptions
	for key, v := range params {
		path, isFile := strings.CutPrefix(key, "file:")
		if key != "config" && !isFile {
			return invalid("Unrecognized load parameter '%s' with type '%s'", key, jsonType(v))
		}
		text, ok := v.(string)
		if !ok {
			return invalid("invalid value type for load parameter '%s', expected string", key)
		}
		if !isFile {
			opts.Config = text
			continue
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return invalid("load parameter '%s' is not base64: %v", key, err)
		}
		if opts.Files == nil {
			opts.Files = make(map[string][]byte)
		}
		opts.Files[path] = data
	}
	if err := s.cfg.Catalog.Load(req.Context(), r.model, opts); err != nil {
		return err
	}
	done(w)
	return nil
}

// done answers what has nothing to say.
func done(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

func (s *Server) unload(w http.ResponseWriter, req *http.Request, r route) error {
	if err := noRepository(r); err != nil {
		return err
	}
	m, err := s.members(req, s.cfg.MaxInputSize)
	if err != nil {
		return err
	}
	params, err := parametersOf(m)
	if err != nil {
		return err
	}
	dependents := false
	if v, given := params["unload_dependents"]; given {
		var ok bool
		if dependents, ok = v.(bool); !ok {
			return invalid("Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean")
		}
	}
	if err := s.cfg.Catalog.Unload(req.Context(), r.model, dependents); err != nil {
		return err
	}
	done(w)
	return nil
}

func (s *Server) systemMemory(w http.ResponseWriter, req *http.Request, r route) error {
	switch r.verb {
	case "status":
		return s.memoryStatus(w, r)
	case "unregister":
		if err := s.cfg.Regions.Unregister(r.region); err != nil {
			return err
		}
		done(w)
		return nil
	}
	if _, err := s.cfg.Regions.Status(""); err != nil {
		return err
	}
	if r.region == "" {
		return invalid("'region name' is necessary to register system shared memory region")
	}
	m, err := s.members(req, s.cfg.MaxInputSize)
	if err != nil {
		return err
	}
	key, ok := m["key"].(string)
	if !ok {
		return invalid("Shared memory register request has no 'key' field")
	}
	if m["byte_size"] == nil {
		return invalid("Shared memory register request has no 'byte_size' field")
	}
	size, err := unsignedMember(m, "byte_size")
	if err != nil {
		return err
	}
	offset, err := unsignedMember(m, "offset")
	if err != nil {
		return err
	}
	if err := s.cfg.Regions.Register(r.region, key, offset, size); err != nil {
		return err
	}
	done(w)
	return nil
}

func unsignedMember(m map[string]any, key string) (uint64, error) {
	v, given := m[key]
	if !given {
		return 0, nil
	}
	n, ok := v.(json.Number)
	if ok {
		var u uint64
		if _, err := fmt.Sscanf(n.String(), "%d", &u); err == nil && fmt.Sprint(u) == n.String() {
			return u, nil
		}
	}
	return 0, invalid("Unable to parse '%s': attempt to access JSON non-unsigned-integer as unsigned-integer", key)
}

func (s *Server) memoryStatus(w http.ResponseWriter, r route) error {
	regions, err := s.cfg.Regions.Status(r.region)
	if err != nil {
		return err
	}
	type region struct {
		Name     string `json:"name"`
		Key      string `json:"key"`
		Offset   uint64 `json:"offset"`
		ByteSize uint64 `json:"byte_size"`
	}
	list := []region{}
	for _, st := range regions {
		list = append(list, region(st))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// cudaMemory says that there is none.
func (s *Server) cudaMemory(w http.ResponseWriter, _ *http.Request, r route) error {
	if _, err := s.cfg.Regions.Status(""); err != nil {
		return err
	}
	switch {
	case r.verb == "register":
		return invalid("failed to register CUDA shared memory region: '%s', GPUs not supported", r.region)
	case r.verb == "status" && r.region != "":
		return infer.Errorf(infer.NotFound, "Unable to find cuda shared memory region: '%s'", r.region)
	case r.verb == "status":
		writeJSON(w, http.StatusOK, []string{})
	default:
		done(w)
	}
	return nil
}

func (s *Server) traceSetting(w http.ResponseWriter, req *http.Request, r route) error {
	if s.cfg.Trace == nil {
		return infer.Errorf(infer.Unsupported, "the server does not support tracing")
	}
	changes := make(map[string][]string)
	if req.Method == http.MethodPost {
		m, err := s.members(req, s.cfg.MaxInputSize)
		if err != nil {
			return err
		}
		for key, v := range m {
			if changes[key], err = settingValue(key, v); err != nil {
				return err
			}
		}
	}
	now, err := s.cfg.Trace.Update(r.model, changes)
	if err != nil {
		return err
	}
	out := make(map[string]any, len(now))
	for key, v := range now {
		if key == "trace_level" {
			out[key] = v
		} else {
			out[key] = strings.Join(v, ",")
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// settingValue reads a new value of a trace setting; null clears it.
func settingValue(key string, v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case json.Number:
		return []string{v.String()}, nil
	case []any:
		var list []string
		for _, e := range v {
			text, ok := e.(string)
			if !ok {
				return nil, invalid("Unable to parse '%s': attempt to access JSON non-string as string", key)
			}
			list = append(list, text)
		}
		return list, nil
	}
	return nil, invalid("Unable to parse '%s': attempt to access JSON non-string as string", key)
}

func (s *Server) logging(w http.ResponseWriter, req *http.Request, _ route) error {
	if s.cfg.Log == nil {
		return infer.Errorf(infer.Unsupported, "the server does not support changes of its log")
	}
	if req.Method == http.MethodPost {
		m, err := s.members(req, s.cfg.MaxInputSize)
		if err != nil {
			return err
		}
		for key, v := range m {
			if v == nil { // leaves the setting as it is
				delete(m, key)
			}
			n, ok := v.(json.Number)
			if !ok {
				continue
			}
			u, err := unsignedMember(m, key)
			if err != nil || u > math.MaxUint32 {
				return invalid("Unable to parse '%s', got: %s", key, n)
			}
			m[key] = uint32(u)
		}
		if err := s.cfg.Log.Update(m); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, s.cfg.Log.Settings())
	return nil
}
