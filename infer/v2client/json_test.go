package v2client

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/tensor"
)

func TestP7TensorsGoToJSONAndBack(t *testing.T) {
	numbers := []byte{0, 1, 2, 3, 0xff, 0x7f, 0x80, 0x3f, 0, 0, 0, 0x40, 7, 0, 0, 0}
	for d := tensor.Bool; d <= tensor.Bytes; d++ {
		data := numbers
		switch d {
		case tensor.Bool:
			data = []byte{1, 0, 1}
		case tensor.Bytes:
			data = tensor.EncodeStrings("", "a \"b\"", "ü")
		default:
		}
		list, err := elements(&tensor.Tensor{Name: "IN", DataType: d, Data: data})
		if d == tensor.FP16 || d == tensor.BF16 {
			if err == nil || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("%s as JSON: %v", d, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		text, err := json.Marshal(list)
		if err != nil || text[0] != '[' {
			t.Fatalf("%s: %s, %v", d, text, err)
		}
		if got, err := fromElements(d, text); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s by way of %s is %v, was %v: %v", d, text, got, data, err)
		}
	}
}

func TestAnAnswerInJSONThatIsWrongSaysWhere(t *testing.T) {
	_, err := parseHTTP([]byte(`{"outputs":[{"name":"OUT","datatype":"INT8","shape":[1],"data":[1000]}]}`), "")
	if err == nil || !strings.Contains(err.Error(), `output "OUT"`) {
		t.Error(err)
	}
}

func TestP14ParametersOfAnAnswerKeepTheirTypes(t *testing.T) {
	r, err := parseHTTP([]byte(`{"model_name":"m","parameters":{"a":42,"b":-1,"c":18446744073709551615,"d":1.5,"e":"x","f":true,"g":2.0},"outputs":[]}`), "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": int64(42), "b": int64(-1), "c": uint64(math.MaxUint64), "d": 1.5, "e": "x", "f": true, "g": 2.0}
	if !maps.Equal(r.Parameters, want) {
		t.Errorf("got %#v, want %#v", r.Parameters, want)
	}
	if _, err := parseHTTP([]byte(`{"parameters":{"a":1e999}}`), ""); err == nil || !strings.Contains(err.Error(), `parameter "a"`) {
		t.Errorf("a number beyond all: %v", err)
	}
}
