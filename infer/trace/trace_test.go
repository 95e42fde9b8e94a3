package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/trace"
)

func TestX5ServerStartsWithTracingOff(t *testing.T) {
	got, err := trace.New(trace.Config{}).Get("")
	want := map[string][]string{
		"trace_level": {"OFF"}, "trace_rate": {"1000"}, "trace_count": {"-1"}, "log_frequency": {"0"}, "trace_file": {""}, "trace_mode": {"triton"},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Error(err, cmp.Diff(want, got))
	}
}

func TestX5ModelFollowsTheServerInWhatItDoesNotSet(t *testing.T) {
	s := trace.New(trace.Config{})
	update := func(model, name string, v ...string) map[string][]string {
		t.Helper()
		got, err := s.Update(model, map[string][]string{name: v})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	update("m", "trace_rate", "5")
	update("", "trace_count", "7")
	got := update("", "trace_rate", "9")
	if got["trace_rate"][0] != "9" {
		t.Error("server:", got)
	}
	if got, _ = s.Get("m"); got["trace_rate"][0] != "5" || got["trace_count"][0] != "7" {
		t.Error("model:", got)
	}
	if got = update("m", "trace_rate"); got["trace_rate"][0] != "9" {
		t.Error("cleared model:", got)
	}
	if got = update("", "trace_rate"); got["trace_rate"][0] != "1000" {
		t.Error("cleared server:", got)
	}
}

func TestX5UpdatesThatAreRefusedChangeNothing(t *testing.T) {
	s := trace.New(trace.Config{Known: func(m string) bool { return m == "m" }})
	before, _ := s.Get("")
	for _, c := range []struct {
		name, model string
		changes     map[string][]string
		code        infer.Code
		text        string
	}{
		{"a file", "", map[string][]string{"trace_file": {"x"}, "trace_rate": {"3"}}, infer.Unsupported, "trace file location can not be updated through network protocol"},
		{"OFF and another level", "", map[string][]string{"trace_level": {"OFF", "TENSORS"}}, infer.InvalidArgument, "Expect only one trace level 'OFF' is specified"},
		{"an unknown model", "x", nil, infer.NotFound, "Request for unknown model : x"},
		{"no number", "", map[string][]string{"trace_rate": {"often"}}, infer.InvalidArgument, "Unable to parse 'trace_rate', got: often"},
		{"a number out of range", "", map[string][]string{"trace_rate": {"10000000000"}}, infer.InvalidArgument, "Unable to parse 'trace_rate', value is out of range [ 1, 2147483647 ], got: 10000000000"},
		{"a count below none", "m", map[string][]string{"trace_count": {"-2"}}, infer.InvalidArgument, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"},
		{"two numbers", "", map[string][]string{"trace_rate": {"1", "2"}}, infer.InvalidArgument, "Expect only one value for 'trace_rate', got 2"},
		{"an unknown level", "", map[string][]string{"trace_level": {"ALL"}}, infer.InvalidArgument, "trace level 'ALL' is not OFF, TIMESTAMPS or TENSORS"},
		{"an unknown setting", "", map[string][]string{"x": {"1"}}, infer.InvalidArgument, "Unrecognized trace setting 'x'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Update(c.model, c.changes)
			if err == nil || err.Error() != c.text || infer.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
		})
	}
	if after, _ := s.Get(""); !cmp.Equal(before, after) {
		t.Error(cmp.Diff(before, after))
	}
}

func TestX5OneRequestInRateIsTracedUpToCount(t *testing.T) {
	s := trace.New(trace.Config{Levels: []string{"TIMESTAMPS"}, Rate: 3, Count: 2})
	made := 0
	for range 30 {
		if ts, tensors := s.Sample("m"); ts && !tensors {
			made++
		}
	}
	if made != 2 {
		t.Errorf("%d traces", made)
	}
	if got, _ := s.Get("m"); got["trace_count"][0] != "0" {
		t.Errorf("%q traces are left", got["trace_count"])
	}
}

func TestX5ClearedSettingsAreThoseTheServerStartedWith(t *testing.T) {
	s := trace.New(trace.Config{Levels: []string{"TIMESTAMPS"}, Rate: 1, File: "t.json"})
	before, _ := s.Get("")
	if _, err := s.Update("", map[string][]string{"trace_level": {"OFF"}, "trace_rate": {"56"}, "trace_count": {"78"}}); err != nil {
		t.Fatal(err)
	}
	after, err := s.Update("", map[string][]string{"trace_level": nil, "trace_rate": nil, "trace_count": nil})
	if err != nil || !cmp.Equal(before, after) {
		t.Error(err, cmp.Diff(before, after))
	}
}

func TestX5CountIsOfAllModelsThatFollowTheServer(t *testing.T) {
	s := trace.New(trace.Config{Levels: []string{"TIMESTAMPS"}, Rate: 1, Count: 3})
	if _, err := s.Update("own", map[string][]string{"trace_count": {"1"}}); err != nil {
		t.Fatal(err)
	}
	made := make(map[string]int)
	for range 5 {
		for _, m := range []string{"a", "b", "own"} {
			if ts, _ := s.Sample(m); ts {
				made[m]++
			}
		}
	}
	if want := map[string]int{"a": 2, "b": 1, "own": 1}; !cmp.Equal(made, want) {
		t.Error(cmp.Diff(want, made))
	}
}
