package modelconfig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
)

// ConfigError is all that is wrong with a configuration.
type ConfigError []string

// Error lists every fault.
func (f ConfigError) Error() string { return strings.Join(f, "; ") }

func (f *ConfigError) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// Limits that only mistakes exceed.
const (
	maxLevels     = 1 << 16
	maxCandidates = 1 << 20
	maxInstances  = 1 << 10
	maxBatch      = 1 << 20
)

// Validate checks a normalised configuration against itself and the machine. It
// reports every fault, each with the field it is in.
func Validate(cfg *inference.ModelConfig, m Machine) error {
	var f ConfigError
	name := cfg.GetName()
	if b := cfg.GetMaxBatchSize(); b < 0 {
		f.add("'max_batch_size' must be non-negative value for %s", name)
	} else if b > maxBatch {
		f.add("'max_batch_size' is %d for %s, more than %d", b, name, maxBatch)
	}
	if file := cfg.GetDefaultModelFilename(); file != "" && !filepath.IsLocal(file) {
		f.add("default_model_filename '%s' of %s leads out of the version's directory", file, name)
	}
	f.version(cfg)
	f.io(cfg)
	f.batchIO(cfg)
	switch {
	case cfg.GetDynamicBatching() != nil:
		f.dynamic(cfg)
	case cfg.GetSequenceBatching() != nil:
		f.sequence(cfg)
	}
	if cfg.GetEnsembleScheduling() != nil {
		f.ensemble(cfg)
	} else {
		if cfg.GetPlatform() == "ensemble" {
			f.add("ensemble scheduling must be set for ensemble %s whose platform is ensemble", name)
		}
		f.instances(cfg, m)
	}
	f.warmup(cfg)
	f.parameters(cfg)
	if cfg.GetResponseCache().GetEnable() && cfg.GetSequenceBatching() != nil {
		f.add("Response cache does not currently support model '%s' with sequence batching. Please disable the response cache.", name)
	}
	if cfg.GetResponseCache().GetEnable() && cfg.GetModelTransactionPolicy().GetDecoupled() {
		f.add("Response cache does not currently support model '%s' with 'decoupled' transaction policy. Please disable the response cache.", name)
	}
	if len(f) == 0 {
		return nil
	}
	return f
}

func (f *ConfigError) version(cfg *inference.ModelConfig) {
	if p, ok := cfg.GetVersionPolicy().GetPolicyChoice().(*inference.ModelVersionPolicy_Specific_); ok {
		for i, v := range p.Specific.GetVersions() {
			if v < 1 {
				f.add("version_policy.specific.versions[%d]: version %d of %s is not above zero", i, v, cfg.GetName())
			}
		}
	}
}

func (f *ConfigError) io(cfg *inference.ModelConfig) {
	seen := make(map[string]bool)
	for i, in := range cfg.GetInput() {
		at := fmt.Sprintf("input[%d]", i)
		if seen[in.GetName()] && in.GetName() != "" {
			f.add("%s: input '%s' appears twice in %s", at, in.GetName(), cfg.GetName())
		}
		seen[in.GetName()] = true
		f.port(cfg, at, "model input", in.GetName(), in.GetDataType(), in.GetDims(), in.GetReshape())
		if in.GetFormat() != inference.ModelInput_FORMAT_NONE && len(in.GetDims()) != 3 {
			f.add("%s: model input NHWC/NCHW require 3 dims for %s", at, cfg.GetName())
		}
		if in.GetOptional() && in.GetAllowRaggedBatch() {
			f.add("%s: '%s' cannot be optional and ragged", at, in.GetName())
		}
	}
	clear(seen)
	for i, out := range cfg.GetOutput() {
		at := fmt.Sprintf("output[%d]", i)
		if seen[out.GetName()] && out.GetName() != "" {
			f.add("%s: output '%s' appears twice in %s", at, out.GetName(), cfg.GetName())
		}
		seen[out.GetName()] = true
		f.port(cfg, at, "model output", out.GetName(), out.GetDataType(), out.GetDims(), out.GetReshape())
	}
}

func (f *ConfigError) port(cfg *inference.ModelConfig, at, kind, name string, t inference.DataType, dims []int64, r *inference.ModelTensorReshape) {
	if name == "" {
		f.add("%s: %s must specify 'name' for %s", at, kind, cfg.GetName())
	}
	if DataType(t) == tensor.Invalid {
		f.add("%s: %s must specify 'data_type' for %s", at, kind, cfg.GetName())
	}
	if len(dims) == 0 && (r == nil || cfg.GetMaxBatchSize() == 0) {
		f.add("%s: %s must specify 'dims' for %s", at, kind, cfg.GetName())
	}
	for _, d := range dims {
		if d < 1 && d != -1 {
			f.add("%s: %s dimension must be integer >= 1, or -1 to indicate a variable-size dimension for %s", at, kind, cfg.GetName())
			return
		}
	}
	if _, err := tensor.ElementCount(fixed(dims)); err != nil {
		f.add("%s: dims of '%s': %v", at, name, err)
	}
	if r != nil {
		f.reshape(cfg, at, kind, dims, r.GetShape())
	}
}

func fixed(dims []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(dims), func(d int64) bool { return d == -1 })
}

func (f *ConfigError) reshape(cfg *inference.ModelConfig, at, kind string, dims, shape []int64) {
	if len(shape) == 0 && cfg.GetMaxBatchSize() == 0 {
		f.add("%s: %s cannot have empty reshape for non-batching model as scalar tensors are not supported for %s", at, kind, cfg.GetName())
		return
	}
	for _, d := range shape {
		if d < 1 && d != -1 {
			f.add("%s: %s reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for %s", at, kind, cfg.GetName())
			return
		}
	}
	from, err1 := tensor.ElementCount(fixed(dims))
	to, err2 := tensor.ElementCount(fixed(shape))
	variable := func(s []int64) int { return len(s) - len(fixed(s)) }
	if err1 != nil || err2 != nil || from != to || variable(dims) != variable(shape) {
		f.add("%s: %s has different size for dims and reshape for %s", at, kind, cfg.GetName())
	}
}

func (f *ConfigError) batchIO(cfg *inference.ModelConfig) {
	for i, b := range cfg.GetBatchInput() {
		at := fmt.Sprintf("batch_input[%d]", i)
		if len(b.GetTargetName()) != 1 {
			f.add("%s: batch input kind '%s' expects 1 target name, got %d", at, b.GetKind(), len(b.GetTargetName()))
		}
		if len(b.GetSourceInput()) != 1 {
			f.add("%s: batch input kind '%s' expects 1 source input, got %d", at, b.GetKind(), len(b.GetSourceInput()))
		}
		if t := b.GetDataType(); t != inference.DataType_TYPE_INT32 && t != inference.DataType_TYPE_FP32 {
			f.add("%s: batch input data type must be TYPE_INT32 or TYPE_FP32, got %s", at, t)
		}
		for _, s := range b.GetSourceInput() {
			f.source(cfg, at, s)
		}
	}
	for i, b := range cfg.GetBatchOutput() {
		at := fmt.Sprintf("batch_output[%d]", i)
		if len(b.GetTargetName()) != 1 || len(b.GetSourceInput()) != 1 {
			f.add("%s: batch output kind '%s' expects 1 target name and 1 source input", at, b.GetKind())
		}
		for _, s := range b.GetSourceInput() {
			f.source(cfg, at, s)
		}
	}
}

func (f *ConfigError) source(cfg *inference.ModelConfig, at, name string) {
	if !slices.ContainsFunc(cfg.GetInput(), func(in *inference.ModelInput) bool { return in.GetName() == name }) {
		f.add("%s: unknown source input name '%s'", at, name)
	}
}

func (f *ConfigError) dynamic(cfg *inference.ModelConfig) {
	d, name := cfg.GetDynamicBatching(), cfg.GetName()
	f.preferred("dynamic batching", d.GetPreferredBatchSize(), cfg)
	levels := d.GetPriorityLevels()
	if levels > maxLevels {
		f.add("dynamic_batching.priority_levels: %d levels for %s are more than %d", levels, name, maxLevels)
		return
	}
	if l := d.GetDefaultPriorityLevel(); levels > 0 && (l < 1 || l > levels) {
		f.add("default priority level must be in range [1, %d] for %s", levels, name)
	}
	if d.GetPreserveOrdering() && levels > 1 {
		f.add("Only one priority level is allowed when 'preserve_ordering' is true for %s", name)
	}
	policies := map[string]*inference.ModelQueuePolicy{"default": d.GetDefaultQueuePolicy()}
	for level, p := range d.GetPriorityQueuePolicy() {
		if level < 1 || level > levels {
			f.add("dynamic_batching.priority_queue_policy: level %d of %s is not one of its %d", level, name, levels)
		}
		policies[strconv.FormatUint(level, 10)] = p
	}
	for _, p := range policies {
		if d.GetPreserveOrdering() && p.GetTimeoutAction() == inference.ModelQueuePolicy_DELAY {
			f.add("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s", name)
			break
		}
	}
}

func (f *ConfigError) preferred(what string, sizes []int32, cfg *inference.ModelConfig) {
	for _, s := range sizes {
		if s <= 0 {
			f.add("%s preferred size must be positive for %s", what, cfg.GetName())
		} else if s > max(cfg.GetMaxBatchSize(), 1) {
			f.add("%s preferred size must be <= max batch size for %s", what, cfg.GetName())
		}
	}
}

func (f *ConfigError) ensemble(cfg *inference.ModelConfig) {
	name := cfg.GetName()
	if cfg.GetPlatform() != "" && cfg.GetPlatform() != "ensemble" {
		f.add("ensemble scheduling cannot be set for model '%s' whose platform is not ensemble", name)
	}
	if len(cfg.GetEnsembleScheduling().GetStep()) == 0 {
		f.add("must specify 'step' for ensemble '%s'", name)
	}
	if len(cfg.GetInstanceGroup()) > 0 {
		f.add("instance group should not be specified for ensemble '%s'", name)
	}
	if cfg.GetOptimization() != nil {
		f.add("optimization should not be specified for ensemble '%s'", name)
	}
	if len(cfg.GetModelWarmup()) > 0 {
		f.add("model_warmup can not be specified for ensemble '%s'", name)
	}
}

func (f *ConfigError) instances(cfg *inference.ModelConfig, m Machine) {
	total := 0
	for i, g := range cfg.GetInstanceGroup() {
		at := fmt.Sprintf("instance_group[%d]", i)
		if g.GetCount() < 1 || g.GetCount() > maxInstances {
			f.add("%s: instance group %s of model %s must have 'count' between 1 and %d", at, g.GetName(), cfg.GetName(), maxInstances)
			continue
		}
		total += int(g.GetCount())
		switch g.GetKind() {
		case inference.ModelInstanceGroup_KIND_GPU:
			if len(m.GPUs) == 0 {
				f.add("instance group %s of model %s has kind KIND_GPU but no GPUs are available", g.GetName(), cfg.GetName())
			}
			for _, gpu := range g.GetGpus() {
				if len(m.GPUs) > 0 && !slices.Contains(m.GPUs, gpu) {
					f.add("%s: instance group %s of model %s specifies invalid or unsupported gpu id %d", at, g.GetName(), cfg.GetName(), gpu)
				}
			}
		default:
			if len(g.GetGpus()) > 0 {
				f.add("instance group %s of model %s has kind %s but specifies one or more GPUs", g.GetName(), cfg.GetName(), g.GetKind())
			}
		}
	}
	if total > maxInstances {
		f.add("instance_group: %d instances of model %s are more than %d", total, cfg.GetName(), maxInstances)
	}
}

func (f *ConfigError) warmup(cfg *inference.ModelConfig) {
	for i, w := range cfg.GetModelWarmup() {
		if int64(w.GetBatchSize()) > max(int64(cfg.GetMaxBatchSize()), 1) {
			f.add("model_warmup[%d]: sample '%s' has batch size %d, the model takes %d", i, w.GetName(), w.GetBatchSize(), cfg.GetMaxBatchSize())
		}
		for name, in := range w.GetInputs() {
			if DataType(in.GetDataType()) == tensor.Invalid {
				f.add("model_warmup[%d].inputs['%s']: must specify 'data_type'", i, name)
			}
			if in.GetInputDataType() == nil {
				f.add("model_warmup[%d].inputs['%s']: must specify zero_data, random_data or input_data_file", i, name)
			}
		}
	}
}

// parameters checks the parameters that this server itself reads.
func (f *ConfigError) parameters(cfg *inference.ModelConfig) {
	get := func(key string) (string, bool) {
		p, ok := cfg.GetParameters()[key]
		return p.GetStringValue(), ok
	}
	for _, key := range []string{"sequence.max_queue_size", "sequence.max_idle_microseconds"} {
		s, ok := get(key)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(s, 10, 53); err != nil || n < 0 {
			f.add("parameters['%s']: %q is not a number of at least 0", key, s)
		}
	}
	s, ok := get("sequence.queue_policy")
	if ok && !slices.Contains([]string{"reject", "drop_oldest", "latest_only"}, s) {
		f.add("parameters['sequence.queue_policy']: %q is not reject, drop_oldest or latest_only", s)
	}
	if n, _ := get("sequence.max_queue_size"); s == "drop_oldest" && (n == "" || n == "0") {
		f.add("parameters['sequence.queue_policy']: drop_oldest needs a sequence.max_queue_size above 0")
	}
}
