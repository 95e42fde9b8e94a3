package archtest

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/vedette/vedette/"

type pkg struct {
	ImportPath, Dir, Name, Doc string
	Imports, GoFiles, CgoFiles []string
}

func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

func (p pkg) files() []string { return append(slices.Clone(p.GoFiles), p.CgoFiles...) }

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,GoFiles,CgoFiles", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.files()) > 0 {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Fatal("go list found no packages")
	}
	return all
}

// covers reports whether pattern ("a/b" or "a/...") covers path; "a/..." covers a itself too.
func covers(pattern, path string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "/..."); wild {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	}
	return pattern == path
}

func row(path string) (allowed []string, found bool) {
	best := ""
	for pattern := range imports {
		if covers(pattern, path) && (len(pattern) > len(best) || pattern == path) {
			if best == path {
				continue
			}
			best = pattern
		}
	}
	return imports[best], best != ""
}

func TestEveryPackageImportsOnlyWhatItsRowAllows(t *testing.T) {
	for _, p := range packages(t) {
		allowed, found := row(p.path())
		if !found {
			t.Errorf("%s has no row in the import table: claim one in table_test.go", p.path())
			continue
		}
		for _, imp := range p.Imports {
			ours, is := strings.CutPrefix(imp, module)
			if is && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, ours) }) {
				t.Errorf("%s imports %s: its row allows only %v", p.path(), ours, allowed)
			}
		}
	}
}

func TestEachBindingHasItsOneImporter(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for binding, importers := range bindings {
				if covers(binding, imp) && !slices.ContainsFunc(importers, func(a string) bool { return covers(a, p.path()) }) {
					t.Errorf("%s imports %s: only %v may", p.path(), imp, importers)
				}
			}
			if imp == "C" && !ownC[p.path()] {
				t.Errorf("%s imports C: our own C lives in internal/av, internal/mmap and internal/pixels", p.path())
			}
			if imp == "unsafe" && ownUnsafe[p.path()] == "" && !strings.HasPrefix(p.path(), "api/") { // generated
				t.Errorf("%s imports unsafe: only packages with a reason in table_test.go may", p.path())
			}
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(bannedNames, p.Name) {
			t.Errorf("%s: %q says nothing; name the package after a noun of the domain", p.path(), p.Name)
		}
		comments := 0
		for _, f := range p.files() {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil && !isGenerated(file.Doc.Text()) {
				comments++
			}
		}
		if comments != 1 && !strings.HasPrefix(p.path(), "api/") {
			t.Errorf("%s has %d package comments, want exactly one", p.path(), comments)
		}
	}
}

func isGenerated(comment string) bool { return strings.Contains(comment, "DO NOT EDIT") }

var processCalls = regexp.MustCompile(`\b(os\.(Exit|Args|Getenv|LookupEnv)|signal\.(Notify|NotifyContext))\b`)

// TestOnlyMainsTouchTheProcess keeps flags, environment, signals and exit codes in cmd/. internal/sdnotify
// reads the name of systemd's socket; commands below appliance/demo and docs are programs of their own.
func TestOnlyMainsTouchTheProcess(t *testing.T) {
	for _, p := range packages(t) {
		if p.Name == "main" || p.path() == "internal/sdnotify" {
			continue
		}
		for _, f := range p.files() {
			src := readFile(t, filepath.Join(p.Dir, f))
			for i, line := range strings.Split(src, "\n") {
				code, _, _ := strings.Cut(line, "//")
				if m := processCalls.FindString(code); m != "" {
					t.Errorf("%s/%s:%d: %s belongs in cmd/", p.path(), f, i+1, m)
				}
			}
		}
	}
}
