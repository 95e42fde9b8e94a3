package conformance_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vedette/vedette/infer/conformance"
)

//go:generate go test -run ^TestTheTableIsWhatTheTestsSay$ -update

var update = flag.Bool("update", false, "write the table")

const (
	root     = "../.."
	document = root + "/docs/inference-standards.md"
)

func TestEveryRowHasATest(t *testing.T) {
	table, err := conformance.Scan(os.DirFS(root), "infer")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range table.Faults() {
		t.Error(fault)
	}
}

func TestTheTableIsWhatTheTestsSay(t *testing.T) {
	table, err := conformance.Scan(os.DirFS(root), "infer")
	if err != nil {
		t.Fatal(err)
	}
	want := append(table.Markdown(), '\n')
	if *update {
		if err := os.WriteFile(document, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/inference-standards.md is not what the names of the tests say: run go generate ./infer/conformance")
	}
}

func TestNamesClaimRows(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	table, err := conformance.Scan(fstest.MapFS{
		"infer/a/a_test.go": file("func TestS2AndX1BatchesOverTCPGrow(t *testing.T) {\n}\n\nfunc TestSomethingElse(t *testing.T) {}\n" +
			"func TestX2GPUsAsAModelHasThem(t *testing.T) {}\n// func TestS3InAComment(\nfunc FuzzP9Elements(f *testing.F) {}\n"),
		"infer/a/testdata/s5_p13_two_slots.script": file(""),
		"infer/a/testdata/notes.script":            file(""),
		"infer/a/a.go":                             file("func TestS7NotATest(\n"),
		"other/b_test.go":                          file("func TestS8Elsewhere(t *testing.T) {}\n"),
	}, "infer")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for id, es := range table {
		for _, e := range es {
			got = append(got, id+" "+e.Package+" "+e.Says)
		}
	}
	for _, want := range []string{
		"S2 infer/a batches over TCP grow", "X1 infer/a batches over TCP grow", "P9 infer/a elements",
		"S5 infer/a two slots", "P13 infer/a two slots", "X2 infer/a GPUs as a model has them",
	} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("nothing claims %q", want)
		}
	}
	if len(got) != 6 {
		t.Errorf("claims: %q", got)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	table := conformance.Table{"P1": {{Package: "a", Says: "x"}}, "P16": {{Package: "a", Says: "y"}}, "P99": {{Package: "a", Says: "z"}}}
	got := strings.Join(table.Faults(), "\n")
	for _, want := range []string{"row P2 (", "row P16 is said to be outside", "there is no row P99, which a claims"} {
		if !strings.Contains(got, want) {
			t.Errorf("no fault %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "row P1 (") {
		t.Error("a row with a test is called a fault")
	}
}
