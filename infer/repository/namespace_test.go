package repository_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/repository"
)

func TestR1AndR4NamespacesTellModelsOfOneNameApart(t *testing.T) {
	around := func(namespace string) string {
		return fmt.Sprintf(`platform: "ensemble"
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "m" %s input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }`, namespace)
	}
	a := write(t, files{"m/config.pbtxt": echoModel, "m/1/keep": "", "own/config.pbtxt": around(""), "own/1/keep": "", "single/config.pbtxt": echoModel, "single/1/keep": ""})
	b := write(t, files{"m/config.pbtxt": echoModel, "m/1/keep": "", "far/config.pbtxt": around(fmt.Sprintf("model_namespace: %q", a)), "far/1/keep": ""})
	const many = "There are 2 identifiers of model 'm' in global map, model namespace must be provided to resolve ambiguity."
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{a, b}, Backends: withEcho(), Namespaces: true})
		if err := r.Loaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, model := range []string{"single", "own", "far"} {
			if err := ask(t, r, model); err != nil {
				t.Error(model, err)
			}
		}
		if err := ask(t, r, "m"); err == nil || err.Error() != many || infer.CodeOf(err) != infer.InvalidArgument {
			t.Errorf("got %v", err)
		}
		if err := ask(t, r, "none"); infer.CodeOf(err) != infer.InvalidArgument || err.Error() != "Request for unknown model: 'none' is not found" {
			t.Errorf("got %v", err)
		}
		if got := index(r); got != "far 1 READY\nm 1 READY\nm 1 READY\nown 1 READY\nsingle 1 READY" {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		served := make(map[string]uint64)
		for _, s := range r.Counters() {
			served[strings.TrimPrefix(s.Namespace, a)+" "+s.Name] += s.Inferences
		}
		if served[" m"] != 2 || served[b+" m"] != 0 || served[" own"] != 1 || served[b+" far"] != 1 || len(served) != 5 {
			t.Errorf("got %v", served)
		}
		if all, err := r.Statistics("", -1); err != nil || len(all) != 5 {
			t.Errorf("got %v, %v", all, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{a, b}, Backends: withEcho(), Namespaces: true, Mode: repository.ModeExplicit, Startup: []string{"single"}})
		if err := r.Load(t.Context(), "m", infer.LoadOptions{}); err == nil || err.Error() != many {
			t.Errorf("got %v", err)
		}
		if err := r.Load(t.Context(), "far", infer.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, model := range []string{"far", "single", "m"} { // of m only what far needs is loaded
			if err := ask(t, r, model); err != nil {
				t.Error(model, err)
			}
		}
		if err := r.Unload(t.Context(), "far", true); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, model := range []string{"far", "m"} {
			if err := ask(t, r, model); err == nil || err.Error() != "Request for unknown model: '"+model+"' has no available versions" {
				t.Errorf("%s: got %v", model, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, repository.Config{Roots: []string{a, b}, Backends: withEcho()})
		if err := ask(t, r, "m"); err == nil {
			t.Error("without namespaces one of two models was chosen")
		}
		if err := ask(t, r, "single"); err != nil {
			t.Error(err)
		}
	})
}
