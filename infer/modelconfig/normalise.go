package modelconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
)

// Machine is what of the machine a configuration's defaults depend on.
type Machine struct {
	// GPUs are the device numbers; empty: there is none.
	GPUs []int32
	// Instances is the number of instances of a group that does not say;
	// 0: 2 for ONNX Runtime, 1 for others.
	Instances int32
}

// Identify fills in name and backend: the name of the directory, and what the
// files of the newest version tell. Version is that version's directory, files
// are the names in it.
func Identify(cfg *inference.ModelConfig, dir string, files []string) error {
	if cfg.GetName() == "" {
		cfg.Name = dir
	}
	if cfg.GetName() != dir {
		return fmt.Errorf("unexpected directory name '%s' for model '%s', directory name must equal model name", dir, cfg.GetName())
	}
	switch cfg.GetPlatform() {
	case "":
	case "ensemble":
		return nil
	case "onnxruntime_onnx":
		cfg.Backend = orDefault(cfg.GetBackend(), "onnxruntime")
	default:
		if cfg.GetBackend() == "" {
			return fmt.Errorf("unexpected platform type '%s' for %s", cfg.GetPlatform(), cfg.GetName())
		}
	}
	if cfg.GetEnsembleScheduling() != nil {
		cfg.Platform = "ensemble"
		return nil
	}
	if cfg.GetBackend() == "" {
		cfg.Backend = backendOf(cfg.GetDefaultModelFilename(), files)
	}
	if cfg.GetBackend() == "" {
		return fmt.Errorf("Invalid model name: Could not determine backend for model '%s' with no backend in model configuration. "+ //nolint:staticcheck // clients match it
			"Expected model name of the form 'model.<backend_name>'.", cfg.GetName())
	}
	if cfg.GetBackend() == "onnxruntime" {
		cfg.Platform = orDefault(cfg.GetPlatform(), "onnxruntime_onnx")
		cfg.DefaultModelFilename = orDefault(cfg.GetDefaultModelFilename(), "model.onnx")
	}
	return nil
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func backendOf(filename string, files []string) string {
	if filename != "" {
		files = []string{filename}
	}
	for _, f := range files {
		stem, ext := strings.TrimSuffix(f, path.Ext(f)), strings.TrimPrefix(path.Ext(f), ".")
		switch {
		case ext == "onnx" && (stem == "model" || filename != ""):
			return "onnxruntime"
		case ext == "star" && stem == "model":
			return "script"
		case stem == "model" && ext != "":
			return ext
		}
	}
	return ""
}

// Normalise fills in every default, so that the rest of the server reads
// values and never absence.
func Normalise(cfg *inference.ModelConfig, m Machine) {
	switch p := cfg.GetVersionPolicy().GetPolicyChoice().(type) {
	case nil:
		cfg.VersionPolicy = &inference.ModelVersionPolicy{PolicyChoice: &inference.ModelVersionPolicy_Latest_{
			Latest: &inference.ModelVersionPolicy_Latest{NumVersions: 1},
		}}
	case *inference.ModelVersionPolicy_Latest_:
		if p.Latest.GetNumVersions() == 0 {
			p.Latest.NumVersions = 1
		}
	}
	whole := []int32{cfg.GetMaxBatchSize()}
	if d := cfg.GetDynamicBatching(); d != nil && len(d.GetPreferredBatchSize()) == 0 && cfg.GetMaxBatchSize() > 0 {
		d.PreferredBatchSize = slices.Clone(whole)
	}
	if s := cfg.GetSequenceBatching(); s != nil {
		if s.GetMaxSequenceIdleMicroseconds() == 0 {
			s.MaxSequenceIdleMicroseconds = 1_000_000
		}
		if s.GetStrategyChoice() == nil {
			s.StrategyChoice = &inference.ModelSequenceBatching_Direct{Direct: &inference.ModelSequenceBatching_StrategyDirect{}}
		}
		if o := s.GetOldest(); o != nil && len(o.GetPreferredBatchSize()) == 0 && cfg.GetMaxBatchSize() > 0 {
			o.PreferredBatchSize = slices.Clone(whole)
		}
	}
	if cfg.GetEnsembleScheduling() == nil {
		if cfg.GetOptimization() == nil {
			cfg.Optimization = new(inference.ModelOptimizationPolicy)
		}
		o := cfg.GetOptimization()
		if o.GetInputPinnedMemory() == nil {
			o.InputPinnedMemory = &inference.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
		}
		if o.GetOutputPinnedMemory() == nil {
			o.OutputPinnedMemory = &inference.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
		}
	}
	for _, w := range cfg.GetModelWarmup() {
		w.Count = max(w.GetCount(), 1)
	}
	if cfg.GetEnsembleScheduling() != nil {
		for _, s := range cfg.GetEnsembleScheduling().GetStep() {
			if s.GetModelVersion() == 0 {
				s.ModelVersion = -1
			}
		}
		return
	}
	instances(cfg, m)
}

func instances(cfg *inference.ModelConfig, m Machine) {
	first := len(cfg.GetInstanceGroup()) == 0
	if first {
		cfg.InstanceGroup = []*inference.ModelInstanceGroup{{Name: cfg.GetName()}}
	}
	for i, g := range cfg.GetInstanceGroup() {
		if g.GetName() == "" {
			g.Name = fmt.Sprintf("%s_%d", cfg.GetName(), i)
		}
		if g.GetKind() == inference.ModelInstanceGroup_KIND_AUTO {
			switch {
			case len(g.GetGpus()) > 0, len(m.GPUs) > 0 && cfg.GetBackend() == "onnxruntime":
				g.Kind = inference.ModelInstanceGroup_KIND_GPU
			default:
				g.Kind = inference.ModelInstanceGroup_KIND_CPU
			}
		}
		if g.GetCount() == 0 {
			g.Count = defaultCount(cfg, g, m)
		}
		if g.GetKind() == inference.ModelInstanceGroup_KIND_GPU && len(g.GetGpus()) == 0 {
			g.Gpus = slices.Clone(m.GPUs)
		}
	}
}

func defaultCount(cfg *inference.ModelConfig, g *inference.ModelInstanceGroup, m Machine) int32 {
	switch {
	case m.Instances > 0:
		return m.Instances
	case cfg.GetBackend() == "onnxruntime" && g.GetKind() == inference.ModelInstanceGroup_KIND_CPU:
		return 2
	}
	return 1
}

// EqualButInstances tells whether two configurations differ at most in their
// instance groups, so that a change needs no reload.
func EqualButInstances(a, b *inference.ModelConfig) bool {
	x, _ := proto.Clone(a).(*inference.ModelConfig)
	y, _ := proto.Clone(b).(*inference.ModelConfig)
	x.InstanceGroup, y.InstanceGroup = nil, nil
	return proto.Equal(x, y)
}
