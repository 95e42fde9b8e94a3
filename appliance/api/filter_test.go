package api

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vedette/vedette/store"
)

func TestFiltersBecomeQueries(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for filter, want := range map[string]store.Query{
		"":                                  {},
		`camera = "door"`:                   {Cameras: []string{"door"}},
		`camera = "cameras/door"`:           {Cameras: []string{"door"}},
		`class = person`:                    {Classes: []string{"person"}},
		`class = "person" OR class = "car"`: {Classes: []string{"person", "car"}},
		`(class = "a" OR class = "b") AND score >= 0.5`:                                     {Classes: []string{"a", "b"}, MinScore: 0.5},
		`start_time >= "2026-05-01T12:00:00Z" AND start_time < "2026-05-01T14:00:00+02:00"`: {Start: at, End: at},
		`start_time >= timestamp("2026-05-01T12:00:00Z")`:                                   {Start: at},
		`state = OPEN AND duration >= "1.5s"`:                                               {State: store.TrackActive, MinDuration: 1500 * time.Millisecond},
		`sequence = 12 AND score >= 1`:                                                      {Sequence: 12, MinScore: 1},
		`camera = "a'; DROP TABLE tracks; --"`:                                              {Cameras: []string{"a'; DROP TABLE tracks; --"}},
	} {
		var q store.Query
		if err := applyFilter(&q, filter, trackFields()); err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if diff := cmp.Diff(want, q); diff != "" {
			t.Errorf("%s (-want +got):\n%s", filter, diff)
		}
	}
}

func TestBadFiltersAreRefusedWithTheirPlace(t *testing.T) {
	for filter, want := range map[string]string{
		`colour = "red"`:                           `at character 1: "colour" is no field`,
		`camera = "door" AND colour = "red"`:       `at character 21: "colour" is no field`,
		`score < 0.5`:                              `< does not go with score; it takes >=`,
		`score >= 7`:                               `want a number from 0 to 1`,
		`score >= "many"`:                          `want a number from 0 to 1`,
		`start_time >= "yesterday"`:                `want a time such as`,
		`camera = "a" AND camera = "b"`:            `camera = is given twice`,
		`camera = "a" OR class = "b"`:              `OR joins values of one field only`,
		`score >= 0.5 OR score >= 0.7`:             `OR joins values of one field only`,
		`NOT camera = "a"`:                         `expected a comparison`,
		`camera`:                                   `expected a comparison`,
		`camera = `:                                `filter: `,
		`camera = "a`:                              `filter: `,
		`state = SLEEPING`:                         `want OPEN or ENDED`,
		`sequence = 0`:                             `want a positive number`,
		`duration >= "-1s"`:                        `want a duration`,
		`camera.name = "a"`:                        `"camera.name" is no field`,
		strings.Repeat("a", maxFilter+1):           `at most 4096`,
		strings.Repeat("(", 2000) + `camera = "a"`: `filter: `,
	} {
		var q store.Query
		err := applyFilter(&q, filter, trackFields())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v does not say %q", filter, err, want)
		}
	}
}

// FuzzFilter checks that a filter which is taken means the same when its conditions are put in parentheses, and that
// whatever comes, nothing panics.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`camera = "door" AND class = "person" AND start_time >= "2026-05-01T00:00:00Z"`, `class = "a" OR class = "b"`, `score >= 0.5`, `NOT a`, `a.b : "c"`, `((`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, filter string) {
		var a, b store.Query
		if applyFilter(&a, filter, trackFields()) != nil || strings.TrimSpace(filter) == "" {
			return
		}
		if len(filter)+2 > maxFilter {
			return
		}
		if err := applyFilter(&b, "("+strings.TrimSpace(filter)+")", trackFields()); err != nil {
			t.Fatalf("%q is taken, in parentheses it is not: %v", filter, err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%q means something else in parentheses:\n%s", filter, diff)
		}
	})
}
