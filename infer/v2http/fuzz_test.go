package v2http

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/vedette/vedette/infer/tensor"
)

// FuzzJSONAgreesWithTheLibrary holds the scanner against encoding/json: what the library takes, the scanner
// takes, and nothing else but numbers that are none in JSON.
func FuzzJSONAgreesWithTheLibrary(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"x\n\u00e9",true,null]}`, `[NaN,-Infinity]`, `{`, `"\ud83d\ude00"`, `01`, `1.`, `-`, `[1,]`, `{"a":1,}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &scanner{b: text}
		_, err := s.skip()
		ok := err == nil && s.peek() == 0 && s.i == len(text)
		if s.i > len(text) {
			t.Fatalf("read to %d of %d", s.i, len(text))
		}
		valid := json.Valid(text)
		notJSON := bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Inf"))
		if ok != valid && !notJSON && !mayDiffer(text) {
			t.Fatalf("scanner says %v (%v), library %v: %q", ok, err, valid, text)
		}
	})
}

// mayDiffer are texts on which the two are meant to disagree: depth, numbers beyond doubles, half surrogates.
func mayDiffer(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxDepth ||
		bytes.ContainsAny(text, "eE") || len(text) > 300 || bytes.Contains(bytes.ToLower(text), []byte(`\ud`))
}

// FuzzNumbers compares the fast way to a number with the library's.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"0", "-0.0", "1e22", "123456789012345678", "0.1", "9007199254740993", "1e-5", "18446744073709551615", "-9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want float64
		if json.Unmarshal([]byte(text), &want) != nil || strings.TrimSpace(text) != text {
			return
		}
		n, err := (&scanner{b: []byte(text)}).number()
		if text == "null" {
			return
		}
		if err != nil || math.Float64bits(n.float) != math.Float64bits(want) && n.float != want {
			t.Fatalf("%s: got %v (%v), want %v", text, n.float, err, want)
		}
	})
}

// FuzzData prints whatever bytes make a tensor and reads them back.
func FuzzData(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 255, 255, 255, 127}, uint8(tensor.FP32))
	f.Add([]byte{2, 0, 0, 0, 'a', '"'}, uint8(tensor.Bytes))
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		dt := tensor.DataType(kind % 14)
		if dt == tensor.Invalid || dt == tensor.FP16 {
			return
		}
		n, err := tensor.CountElements(data)
		if dt != tensor.Bytes {
			data = data[:len(data)/dt.Size()*dt.Size()]
			n, err = int64(len(data)/dt.Size()), nil
			if dt == tensor.Bool {
				for i := range data {
					data[i] &= 1
				}
			}
		}
		if err != nil {
			return
		}
		text, err := appendData(nil, &tensor.Tensor{DataType: dt, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, len(data))
		if dt == tensor.Bytes {
			dst = make([]byte, 2*len(text)+8)
		}
		used, err := parseData(text, dt, n, dst)
		if err != nil {
			t.Fatalf("%s of %s: %v", text, dt, err)
		}
		if dt == tensor.Bytes {
			dst = used
		}
		again, err := appendData(nil, &tensor.Tensor{DataType: dt, Data: dst})
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("%s became %s, %v", text, again, err)
		}
	})
}
