package perf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vedette/vedette/infer/tensor"
)

func TestT1InputDataBecomesRequests(t *testing.T) {
	d, err := ParseData([]byte(`{"data": [
		{"A": [1, 2], "S": ["x", "yz"], "B": [true, 0]},
		{"A": {"content": [[3], [4]], "shape": [2]}, "S": {"content": ["", "q"]}, "B": [1, false]},
		{"A": {"b64": "AAAAAAAAgD8="}, "S": {"content": ["p", "q"]}, "B": {"content": {"b64": "AQE="}, "shape": [2]}}
	], "validation_data": [{"OUT": [7]}, {}, {"OUT": {"content": [9], "shape": [1]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := &model{
		batched: true,
		inputs: []port{
			{name: "A", typ: tensor.FP32, dims: []int64{-1}},
			{name: "S", typ: tensor.Bytes, dims: []int64{2}},
			{name: "B", typ: tensor.Bool, dims: []int64{2}},
			{name: "MAYBE", typ: tensor.FP16, dims: []int64{1}, optional: true},
		},
		outputs: []port{{name: "OUT", typ: tensor.Int64, dims: []int64{1}}},
	}
	if err := m.fill(&Config{Data: d, Batch: 2, Shapes: map[string][]int64{}}); err != nil {
		t.Fatal(err)
	}
	if len(m.streams) != 1 || len(m.streams[0]) != 3 {
		t.Fatalf("got %d streams, the first of %d requests", len(m.streams), len(m.streams[0]))
	}
	var a, s []string
	for _, r := range m.streams[0] {
		in := r.inputs
		if len(in) != 3 || !slices.Equal(in[0].Shape, []int64{2, 2}) || !slices.Equal(in[1].Shape, []int64{2, 2}) {
			t.Fatalf("got %+v", in)
		}
		text, err := json.Marshal(tensor.Float32s(in[0].Data))
		if err != nil {
			t.Fatal(err)
		}
		words, err := tensor.DecodeStrings(in[1].Data)
		if err != nil {
			t.Fatal(err)
		}
		a, s = append(a, string(text)), append(s, strings.Join(words, ","))
	}
	// Two that follow each other, and around.
	if want := []string{"[1,2,3,4]", "[0,1,1,2]", "[3,4,0,1]"}; !slices.Equal(a, want) {
		t.Errorf("A is %v, want %v", a, want)
	}
	if want := []string{"x,yz,,q", "p,q,x,yz", ",q,p,q"}; !slices.Equal(s, want) {
		t.Errorf("S is %q, want %q", s, want)
	}
	if b := m.streams[0][0].inputs[2].Data; !slices.Equal(b, []byte{1, 0, 1, 0}) {
		t.Errorf("B is %v", b)
	}
}

func TestT1SequencesOfInputDataStayApart(t *testing.T) {
	d, err := ParseData([]byte(`{"data": [[{"IN": [1]}, {"IN": [2]}], [{"IN": [3]}]]}`))
	if err != nil {
		t.Fatal(err)
	}
	in := []port{{name: "IN", typ: tensor.Int8, dims: []int64{1}}}
	for _, sequence := range []bool{true, false} {
		m := &model{inputs: in, sequence: sequence}
		if err := m.fill(&Config{Data: d, Batch: 1, Shapes: map[string][]int64{}}); err != nil {
			t.Fatal(err)
		}
		var lengths []int
		for _, s := range m.streams {
			lengths = append(lengths, len(s))
		}
		if want := map[bool][]int{true: {2, 1}, false: {3}}[sequence]; !slices.Equal(lengths, want) {
			t.Errorf("sequences %v: got streams of %v requests, want %v", sequence, lengths, want)
		}
	}
}

func TestT1InputDataThatMakesNoSense(t *testing.T) {
	in := []port{{name: "A", typ: tensor.Uint8, dims: []int64{2}}, {name: "B", typ: tensor.FP32, dims: []int64{-1, -1}, optional: true}}
	for _, c := range []struct{ text, want string }{
		{`{`, "unexpected end"},
		{`{"data": []}`, `there is no "data"`},
		{`{"data": [1]}`, "data[0]"},
		{`{"data": [{"A": [1, 2]}, [{"A": [1, 2]}]]}`, "are mixed"},
		{`{"data": [[]]}`, "a sequence without requests"},
		{`{"data": [{"A": {"content": [1, 2], "shape": [-2]}}]}`, "negative"},
		{`{"data": [{"A": {"shape": [2]}}]}`, `a tensor is {"content"`},
		{`{"data": [{"A": [1, 2]}], "validation_data": [{}, {}]}`, "not as many entries"},
		{`{"data": [{"A": [1]}]}`, "1 elements do not fill shape [2]"},
		{`{"data": [{"A": [1, 256]}]}`, "256 is no UINT8"},
		{`{"data": [{"A": [1, "x"]}]}`, `tensor "A"`},
		{`{"data": [{"A": {"b64": "%%"}}]}`, "illegal base64"},
		{`{"data": [{}]}`, `input "A" is missing`},
		{`{"data": [{"A": [1, 2], "C": [1]}]}`, `the model has no "C"`},
		{`{"data": [{"A": [1, 2], "B": [1]}]}`, `say "shape"`},
	} {
		d, err := ParseData([]byte(c.text))
		if err == nil {
			err = (&model{inputs: in}).fill(&Config{Data: d, Batch: 1, Shapes: map[string][]int64{}})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to say %q", c.text, err, c.want)
		}
	}
}

func TestT1AFolderHoldsAFileForEachInput(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"RAW": "\x01\x00\x02\x00", "TEXT": "one\ntwo\n", "OUT": "\x07", "README": "made by hand"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := readData(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{
		inputs:  []port{{name: "RAW", typ: tensor.Int16, dims: []int64{-1}}, {name: "TEXT", typ: tensor.Bytes, dims: []int64{2}}},
		outputs: []port{{name: "OUT", typ: tensor.Uint8, dims: []int64{1}}, {name: "MORE", typ: tensor.Uint8, dims: []int64{1}}},
	}
	if err := m.fill(&Config{Data: d, Batch: 1, Shapes: map[string][]int64{}}); err != nil {
		t.Fatal(err)
	}
	in := m.streams[0][0].inputs
	if !slices.Equal(tensor.View[int16](in[0].Data), []int16{1, 2}) || string(in[1].Data) != string(tensor.EncodeStrings("one", "two")) {
		t.Errorf("got %+v", in)
	}
	if out := m.streams[0][0].outputs; len(out) != 1 || out[0].Name != "OUT" || !slices.Equal(out[0].Data, []byte{7}) {
		t.Errorf("what should be answered is %+v", out)
	}
	if _, err := readData(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestT1SeveralFilesAreSentOneAfterTheOther(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one", `{"data": [{"A": [1]}, {"A": [2]}]}`), file("two", `{"data": [{"A": [3]}]}`)
	c := Command{Model: "m", Input: []string{one, two}}
	steps, err := c.steps()
	if err != nil {
		t.Fatal(err)
	}
	m := &model{inputs: []port{{name: "A", typ: tensor.Uint8, dims: []int64{1}}}}
	if err := m.fill(&steps[0]); err != nil || len(m.streams) != 1 || len(m.streams[0]) != 3 || m.streams[0][2].inputs[0].Data[0] != 3 {
		t.Errorf("got %+v, %v", m.streams, err)
	}
	for want, more := range map[string]string{"in all files or in none": file("three", `{"data": [{"A": [1]}], "validation_data": [{"B": [1]}]}`), "only one folder": dir} {
		c.Input = []string{one, more}
		if _, err := c.steps(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func TestT1StringsAsBytes(t *testing.T) {
	for text, want := range map[string][]string{"AQAAAGECAAAAYmM=": {"a", "bc"}, "/9j/4A==": {"\xff\xd8\xff\xe0"}, "": {""}} {
		d, err := ParseData([]byte(`{"data": [{"S": {"b64": "` + text + `"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		m := &model{inputs: []port{{name: "S", typ: tensor.Bytes, dims: []int64{-1}}}}
		if err := m.fill(&Config{Data: d, Batch: 1, Shapes: map[string][]int64{}}); err != nil {
			t.Fatal(err)
		}
		if got := m.streams[0][0].inputs[0].Data; !slices.Equal(got, tensor.EncodeStrings(want...)) {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

func TestT1ShapesThatMakeNoSense(t *testing.T) {
	numbers, words := port{name: "A", typ: tensor.FP32, dims: []int64{-1, 3}}, port{name: "S", typ: tensor.Bytes, dims: []int64{-1}}
	for _, c := range []struct {
		in    port
		shape []int64
		want  string
	}{
		{numbers, nil, "say what the open dimensions are with --shape A:D,D"},
		{numbers, []int64{3}, "it cannot be [3]"},
		{numbers, []int64{3, 4}, "it cannot be [3,4]"},
		{numbers, []int64{1 << 40, 3}, "would be larger than"},
		{numbers, []int64{1 << 62, 3}, "more elements"},
		{words, []int64{1 << 30}, "would be larger than"},
	} {
		_, err := c.in.made(&Config{Shapes: map[string][]int64{c.in.name: c.shape}, Batch: 2, Random: true, TextLength: 128})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want it to say %q", c.shape, err, c.want)
		}
	}
}

func TestT1FlagsOfPerfAnalyzer(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := Command{
		Model: "m", Protocol: "HTTP", URL: "h:1", Header: []string{"key: a:b"}, Intervals: file("intervals", "100\n200\n"), IDs: "5:8", Parameter: []string{"p:a:b:string", "n:3:int"},
		Input: []string{file("data.json", `{"data": [{"IN": [1]}]}`)}, Mode: "count_windows", WindowRequests: 7, Variation: 0,
	}
	steps, err := c.steps()
	if err != nil || len(steps) != 1 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	s := steps[0]
	if s.GRPC != "" || s.HTTP != "h:1" || s.Client.Headers["key"] != "a:b" || !slices.Equal(s.Intervals, []time.Duration{100 * time.Microsecond, 200 * time.Microsecond}) ||
		s.FirstID != 5 || s.LastID != 7 || s.Parameters["p"] != "a:b" || s.Parameters["n"] != int64(3) || s.Data == nil || s.WindowRequests != 7 || s.SequenceSpread >= 0 {
		t.Errorf("got %+v", s)
	}
	c = Command{Model: "m", Periodic: "2:10:4", Period: 3}
	if steps, err = c.steps(); err != nil || len(steps) != 1 || steps[0].Concurrency != 2 || steps[0].GrowTo != 10 || steps[0].GrowBy != 4 || steps[0].GrowEvery != 3 {
		t.Errorf("got %+v, %v", steps, err)
	}
	var d Time
	for text, want := range map[string]time.Duration{"250": 250 * time.Millisecond, "2s": 2 * time.Second} {
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%s is %v, %v", text, time.Duration(d), err)
		}
	}
	var tried []int
	err = search([]Config{{Concurrency: 1}, {Concurrency: 2}, {Concurrency: 3}, {Concurrency: 4}, {Concurrency: 5}}, func(c Config) (bool, error) {
		tried = append(tried, c.Concurrency)
		return c.Concurrency <= 4, nil
	})
	if err != nil || !slices.Equal(tried, []int{3, 5, 4}) {
		t.Errorf("the search tried %v, %v", tried, err)
	}
}

// FuzzParseData: whatever is read as input data makes tensors whose bytes are what their shapes say, or an error.
func FuzzParseData(f *testing.F) {
	for _, text := range []string{
		`{"data": [{"A": [1, 2], "S": ["x"], "B": [true]}]}`, `{"data": [[{"A": {"content": [[3], [4]], "shape": [2]}}]]}`, `{"data": [{"A": {"b64": "AAAA"}}]}`,
		`{"data": [{"B": [[true], [0, 1]]}], "validation_data": [{}]}`, `{"data": [{"A": {"content": [], "shape": [0, 9223372036854775807]}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseData(text)
		if err != nil {
			return
		}
		m := &model{inputs: []port{
			{name: "A", typ: tensor.Int32, dims: []int64{-1}, optional: true},
			{name: "S", typ: tensor.Bytes, dims: []int64{-1}, optional: true},
			{name: "B", typ: tensor.Bool, dims: []int64{-1}, optional: true},
			{name: "H", typ: tensor.FP16, dims: []int64{-1, 2}, optional: true},
		}}
		if m.fill(&Config{Data: d, Batch: 1, Shapes: map[string][]int64{}}) != nil {
			return
		}
		for _, in := range m.streams[0][0].inputs {
			n, err := tensor.ElementCount(in.Shape)
			if err != nil {
				t.Fatalf("%s has shape %v: %v", in.Name, in.Shape, err)
			}
			have := int64(len(in.Data))
			if in.DataType == tensor.Bytes {
				have, err = tensor.CountElements(in.Data)
			} else {
				n *= int64(in.DataType.Size())
			}
			if err != nil || have != n {
				t.Fatalf("%s of shape %v holds %d for %d, %v", in.Name, in.Shape, have, n, err)
			}
		}
	})
}
