package perf

import (
	"slices"
	"strings"
	"testing"
)

func TestStepsOfACommandLine(t *testing.T) {
	c := Command{Model: "m", URL: "a:1", Beside: "b:1", Concurrency: "1:5:2", Shape: []string{"IN:PUT:3,4"}, Value: []string{"IN:PUT:1,-2.5"}, Batch: 2}
	steps, err := c.steps()
	if err != nil || len(steps) != 6 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	var loads []int
	var at []string
	for _, s := range steps {
		loads, at = append(loads, s.Concurrency), append(at, s.GRPC)
	}
	if !slices.Equal(loads, []int{1, 1, 3, 3, 5, 5}) || strings.Join(at, " ") != "a:1 b:1 a:1 b:1 a:1 b:1" || !slices.Equal(steps[0].Shapes["IN:PUT"], []int64{3, 4}) ||
		!slices.Equal(steps[0].Values["IN:PUT"], []float64{1, -2.5}) {
		t.Errorf("got %v at %v, shapes %v", loads, at, steps[0].Shapes)
	}
	c = Command{Model: "m", Rate: "0.5:1:0.25", Poisson: true}
	if steps, err = c.steps(); err != nil || len(steps) != 3 || steps[2].Rate != 1 || steps[2].Concurrency != 0 || !steps[2].Poisson {
		t.Errorf("got %+v, %v", steps, err)
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		command Command
		want    string
	}{
		{Command{Concurrency: "1:2:3:4"}, "FROM:TO:STEP"},
		{Command{Concurrency: "0"}, "above 0"},
		{Command{Rate: "NaN"}, "above 0"},
		{Command{Concurrency: "5:1"}, "ends before it begins"},
		{Command{Concurrency: "1:9999999"}, "more than a thousand"},
		{Command{Concurrency: "1", Rate: "1"}, "only one of them"},
		{Command{Memory: "cuda"}, "--shared-memory system can"},
		{Command{Shape: []string{"x"}}, "NAME:D,D"},
		{Command{Value: []string{"x"}}, "NAME:V,V"},
		{Command{Value: []string{"x:1,"}}, `"" is not a number`},
		{Command{Shape: []string{"x:1,a"}}, `"a" is not a dimension`},
	} {
		if _, err := c.command.steps(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want it to say %q", c.command, err, c.want)
		}
	}
}
