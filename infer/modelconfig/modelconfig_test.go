package modelconfig_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
)

func load(text []byte) (*inference.ModelConfig, error) {
	cfg, err := modelconfig.Parse(text)
	if err != nil {
		return nil, err
	}
	if err := modelconfig.Identify(cfg, "m", nil); err != nil {
		return nil, err
	}
	modelconfig.Normalise(cfg, modelconfig.Machine{})
	return cfg, modelconfig.Validate(cfg, modelconfig.Machine{})
}

func each(t testing.TB, pattern string, f func(name string, text []byte)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatal("no files", pattern, err)
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f(filepath.Base(p), text)
	}
}

func TestR1GoodConfigurationsAreRead(t *testing.T) {
	each(t, "*.good.pbtxt", func(name string, text []byte) {
		cfg, err := load(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		again, err := modelconfig.Parse(modelconfig.Print(cfg))
		if err != nil || !proto.Equal(cfg, again) {
			t.Errorf("%s: printed and read again it is another configuration: %v\n%s", name, err, modelconfig.Print(cfg))
		}
		back, err := modelconfig.ParseJSON(modelconfig.AppendJSON(nil, cfg))
		if err != nil || !proto.Equal(cfg, back) {
			t.Errorf("%s: as JSON and read again it is another configuration: %v", name, err)
		}
	})
}

func TestR1BadConfigurationsSayWhatIsWrong(t *testing.T) {
	each(t, "*.bad.pbtxt", func(name string, text []byte) {
		first, _, _ := strings.Cut(string(text), "\n")
		want := strings.TrimPrefix(first, "# ")
		_, err := load(text)
		if err == nil {
			t.Errorf("%s was taken", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %q does not say %q", name, err, want)
		}
	})
}

func TestP6JSONIsWhatClientsParse(t *testing.T) {
	cfg, err := load([]byte(`name: "m" backend: "identity" max_batch_size: 8
		input { name: "A" data_type: TYPE_FP32 dims: [ -1, 3 ] }
		dynamic_batching { max_queue_delay_microseconds: 500 }
		version_policy { specific { versions: [ 1 ] } }`))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	text := modelconfig.AppendJSON(nil, cfg)
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"max_batch_size":8`, `"default_model_filename":""`, `"data_type":"TYPE_FP32"`, `"dims":[-1,3]`,
		`"preferred_batch_size":[8]`, `"max_queue_delay_microseconds":500`, `"versions":[1]`, `"kind":"KIND_CPU"`, `"optional":false`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("JSON lacks %s: %s", want, text)
		}
	}
	if _, there := got["sequence_batching"]; there {
		t.Error("a scheduler that was not chosen is printed")
	}
}

func TestR4NamesInJSONNeedNoQuotes(t *testing.T) {
	for text, want := range map[string]string{
		`{ "name": "m", max_batch_size : 4, sequence_batching: { direct:{ } } }`: `name:"m" max_batch_size:4 sequence_batching:{direct:{}}`,
		`{ "name": "a, b: \"c: d", "backend": "x" }`:                             `name:"a, b: \"c: d" backend:"x"`,
		`{ name: m }`:      "",
		`{ name: "m", n }`: "",
		`{ name: "m`:       "",
		`name: "m"`:        "",
	} {
		cfg, err := modelconfig.ParseJSON([]byte(text))
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is taken for %v", text, cfg)
		case want != "" && (err != nil || strings.Join(strings.Fields(cfg.String()), " ") != want):
			t.Errorf("%s is %v (%v)", text, cfg, err)
		}
	}
}

func TestR2BackendIsFoundByFile(t *testing.T) {
	for _, c := range []struct {
		name, want string
		files      []string
	}{
		{"an ONNX model", "onnxruntime", []string{"model.onnx"}},
		{"an ONNX model beside its data", "onnxruntime", []string{"labels.txt", "model.onnx", "weights.bin"}},
		{"a script", "script", []string{"model.star"}},
		{"a file named after its backend", "thing", []string{"model.thing"}},
	} {
		cfg := new(inference.ModelConfig)
		if err := modelconfig.Identify(cfg, "m", c.files); err != nil || cfg.GetBackend() != c.want {
			t.Errorf("%s: backend %q, %v; want %q", c.name, cfg.GetBackend(), err, c.want)
		}
	}
	err := modelconfig.Identify(new(inference.ModelConfig), "m", []string{"readme"})
	if err == nil || !strings.HasPrefix(err.Error(), "Invalid model name: Could not determine backend for model 'm'") {
		t.Errorf("no model file: %v", err)
	}
	err = modelconfig.Identify(&inference.ModelConfig{Name: "other"}, "m", nil)
	if err == nil || err.Error() != "unexpected directory name 'm' for model 'other', directory name must equal model name" {
		t.Errorf("other name: %v", err)
	}
}

func TestP9EveryDataTypeHasItsCounterpart(t *testing.T) {
	for n := range inference.DataType_name {
		d := inference.DataType(n)
		if d == inference.DataType_TYPE_INVALID {
			continue
		}
		if modelconfig.DataType(d) == tensor.Invalid || modelconfig.FromDataType(modelconfig.DataType(d)) != d {
			t.Errorf("%s has no counterpart", d)
		}
	}
}

func FuzzParse(f *testing.F) {
	each(f, "*.pbtxt", func(_ string, text []byte) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := modelconfig.Parse(text)
		if err != nil {
			return
		}
		printed := modelconfig.Print(cfg)
		again, err := modelconfig.Parse(printed)
		if err != nil || !proto.Equal(cfg, again) {
			t.Fatalf("printed and read again it is another configuration: %v\n%s", err, printed)
		}
		back, err := modelconfig.ParseJSON(modelconfig.AppendJSON(nil, cfg))
		if err != nil || !proto.Equal(cfg, back) {
			t.Fatalf("as JSON and read again it is another configuration: %v\n%s", err, printed)
		}
		if modelconfig.Identify(cfg, cfg.GetName(), nil) == nil {
			modelconfig.Normalise(cfg, modelconfig.Machine{})
			_ = modelconfig.Validate(cfg, modelconfig.Machine{})
		}
	})
}

func FuzzNamesInJSONNeedNoQuotes(f *testing.F) {
	each(f, "*.pbtxt", func(_ string, text []byte) {
		if cfg, err := modelconfig.Parse(text); err == nil {
			f.Add(modelconfig.AppendJSON(nil, cfg))
		}
	})
	f.Add([]byte(`{ name: "a\": b", "parameters" : { key : { "string_value": "c: \"d\": e" } } }`))
	name := regexp.MustCompile(`"(\w+)":`)
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := modelconfig.ParseJSON(text)
		if err != nil {
			return
		}
		bare := name.ReplaceAll(modelconfig.AppendJSON(nil, cfg), []byte("$1:"))
		if back, err := modelconfig.ParseJSON(bare); err != nil || !proto.Equal(cfg, back) {
			t.Fatalf("without quotes it is another configuration: %v\n%s", err, bare)
		}
	})
}
