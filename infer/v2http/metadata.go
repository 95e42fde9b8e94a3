package v2http

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// health answers with the bodies of the Open Inference Protocol; Triton's clients look at the status only.
func (s *Server) health(w http.ResponseWriter, req *http.Request, r route) error {
	if s.stopping.Load() {
		return infer.Errorf(infer.Unavailable, "Server exiting")
	}
	ok := r.verb == "live" || s.cfg.Catalog.Ready(req.Context())
	status := http.StatusOK
	if !ok {
		status = http.StatusBadRequest
	}
	writeJSON(w, status, map[string]bool{r.verb: ok})
	return nil
}

func (s *Server) modelReady(w http.ResponseWriter, _ *http.Request, r route) error {
	version, err := parseVersion(r.version)
	if err != nil {
		return err
	}
	ready, err := s.cfg.Catalog.ModelReady(r.model, version)
	if err != nil {
		return err
	}
	if !ready {
		return invalid("Model version not ready")
	}
	writeJSON(w, http.StatusOK, struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{r.model, true})
	return nil
}

func (s *Server) serverMetadata(w http.ResponseWriter, _ *http.Request, _ route) error {
	info := s.cfg.Catalog.Server()
	writeJSON(w, http.StatusOK, struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{info.Name, info.Version, info.Extensions})
	return nil
}

func (s *Server) modelMetadata(w http.ResponseWriter, _ *http.Request, r route) error {
	m, err := s.model(r)
	if err != nil {
		return err
	}
	type tensorInfo struct {
		Name     string  `json:"name"`
		Datatype string  `json:"datatype"`
		Shape    []int64 `json:"shape"`
	}
	tensors := func(list []infer.TensorInfo) []tensorInfo {
		out := make([]tensorInfo, len(list))
		for i, t := range list {
			out[i] = tensorInfo{t.Name, t.DataType.String(), slices.Concat([]int64{}, t.Shape)}
		}
		return out
	}
	versions := m.Versions
	if r.version != "" {
		versions = []string{strconv.FormatInt(m.Version, 10)}
	}
	writeJSON(w, http.StatusOK, struct {
		Name     string       `json:"name"`
		Versions []string     `json:"versions"`
		Platform string       `json:"platform"`
		Inputs   []tensorInfo `json:"inputs"`
		Outputs  []tensorInfo `json:"outputs"`
	}{m.Name, versions, m.Platform, tensors(m.Inputs), tensors(m.Outputs)})
	return nil
}

func (s *Server) model(r route) (*infer.ModelInfo, error) {
	version, err := parseVersion(r.version)
	if err != nil {
		return nil, err
	}
	return s.cfg.Catalog.Model(r.model, version)
}

func (s *Server) modelConfig(w http.ResponseWriter, _ *http.Request, r route) error {
	m, err := s.model(r)
	if err != nil {
		return err
	}
	body, err := protoJSON(m.Config, func(path string) bool { return slices.Contains(configNumbers, path) })
	if err != nil {
		return infer.Errorf(infer.Internal, "print the configuration of model '%s': %v", r.model, err)
	}
	writeBody(w, http.StatusOK, body)
	return nil
}

// configNumbers are the fields of 64 bits that Triton prints as numbers; it leaves others in the quotes that
// protobuf's JSON puts around them. The initial state's dims are ours: Triton means them and misses.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var configNumbers = []string{
	"input.dims", "input.reshape.shape", "output.dims", "output.reshape.shape",
	"version_policy.specific.versions",
	"dynamic_batching.max_queue_delay_microseconds", "dynamic_batching.priority_levels", "dynamic_batching.default_priority_level",
	"dynamic_batching.default_queue_policy.default_timeout_microseconds",
	"dynamic_batching.priority_queue_policy.*.default_timeout_microseconds",
	"sequence_batching.direct.max_queue_delay_microseconds", "sequence_batching.oldest.max_queue_delay_microseconds",
	"sequence_batching.max_sequence_idle_microseconds", "sequence_batching.state.dims", "sequence_batching.state.initial_state.dims",
	"ensemble_scheduling.step.model_version", "model_warmup.inputs.*.dims",
	"optimization.cuda.graph_spec.input.*.dim", "optimization.cuda.graph_spec.graph_lower_bound.input.*.dim",
}

// mapFields are the maps on those paths; their keys are written as a star.
//
//nolint:gochecknoglobals // a constant table; Go has no constant slices
var mapFields = []string{
	"dynamic_batching.priority_queue_policy", "model_warmup.inputs",
	"optimization.cuda.graph_spec.input", "optimization.cuda.graph_spec.graph_lower_bound.input",
}

// protoJSON prints a message with the names of the .proto file and without the quotes around the 64-bit
// numbers on the paths that isNumber chooses.
func protoJSON(m proto.Message, isNumber func(path string) bool) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	u := unquoter{scanner: scanner{b: text}, out: make([]byte, 0, len(text)), isNumber: isNumber}
	if err := u.value(""); err != nil {
		return nil, err
	}
	return u.out, nil
}

// unquoter copies JSON, without spaces and with some strings turned into numbers.
type unquoter struct {
	scanner
	out      []byte
	isNumber func(string) bool
}

func (u *unquoter) value(path string) error {
	switch u.peek() {
	case '{':
		return u.members(path)
	case '[':
		u.out = append(u.out, '[')
		first := len(u.out)
		err := u.array(func() error {
			err := u.value(path)
			u.out = append(u.out, ',')
			return err
		})
		u.out = closeList(u.out, first)
		return err
	}
	text, err := u.skip()
	if err != nil {
		return err
	}
	if len(text) > 2 && text[0] == '"' && u.isNumber(path) {
		text = text[1 : len(text)-1]
	}
	u.out = append(u.out, text...)
	return nil
}

func (u *unquoter) members(path string) error {
	u.out = append(u.out, '{')
	first := len(u.out)
	inMap := slices.Contains(mapFields, path)
	err := u.object(func(key []byte) error {
		u.out = append(appendQuoted(u.out, key), ':')
		name := string(key)
		if inMap {
			name = "*"
		}
		err := u.value(strings.TrimPrefix(path+"."+name, "."))
		u.out = append(u.out, ',')
		return err
	})
	if len(u.out) > first {
		u.out = u.out[:len(u.out)-1]
	}
	u.out = append(u.out, '}')
	return err
}

func (s *Server) statistics(w http.ResponseWriter, _ *http.Request, r route) error {
	version, err := parseVersion(r.version)
	if err != nil {
		return err
	}
	stats, err := s.cfg.Catalog.Statistics(r.model, version)
	if err != nil {
		return err
	}
	body, err := protoJSON(&inference.ModelStatisticsResponse{ModelStats: stats}, func(path string) bool {
		return !strings.HasSuffix(path, ".name") && !strings.HasSuffix(path, ".version") && !strings.HasSuffix(path, ".type")
	})
	if err != nil {
		return infer.Errorf(infer.Internal, "print statistics: %v", err)
	}
	writeBody(w, http.StatusOK, body)
	return nil
}

// instances tells where a model's instances run, of those that can tell.
func (s *Server) instances(w http.ResponseWriter, _ *http.Request, r route) error {
	m, err := s.model(r)
	if err != nil {
		return err
	}
	list := []Instance{}
	if s.cfg.Instances != nil {
		for _, in := range s.cfg.Instances(m.Name) {
			if r.version == "" || in.Version == r.version {
				list = append(list, in)
			}
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Instances []Instance `json:"instances"`
	}{list})
	return nil
}

// sequences lists the open sequences of this listener.
func (s *Server) sequences(w http.ResponseWriter, _ *http.Request, _ route) error {
	type sequence struct {
		Model    string    `json:"model"`
		Version  int64     `json:"version"`
		ID       any       `json:"sequence_id"`
		State    string    `json:"state"`
		Instance string    `json:"instance,omitempty"`
		Slot     int       `json:"slot"`
		Queued   int       `json:"queued"`
		Opened   time.Time `json:"opened"`
		Last     time.Time `json:"last"`
		Requests uint64    `json:"requests"`
		Dropped  uint64    `json:"dropped"`
	}
	list := []sequence{}
	for _, q := range s.cfg.Catalog.Sequences() {
		if q.Scope != s.cfg.Scope {
			continue
		}
		var id any = q.Correlation.Num
		if q.Correlation.Str != "" {
			id = q.Correlation.Str
		}
		list = append(list, sequence{q.Model, q.Version, id, q.State, q.Instance, q.Slot, q.Queued, q.Opened, q.Last, q.Requests, q.Dropped})
	}
	writeJSON(w, http.StatusOK, struct {
		Sequences []sequence `json:"sequences"`
	}{list})
	return nil
}
