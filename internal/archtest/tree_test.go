package archtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// tracked lists the files git knows, relative to the root of the repository.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	return strings.Fields(string(out))
}

func TestTheRootHoldsOnlyTheNamedRooms(t *testing.T) {
	for _, f := range tracked(t) {
		top, _, _ := strings.Cut(f, "/")
		if !strings.HasPrefix(top, ".") && !topLevel[top] {
			t.Errorf("%s: %q is not one of the rooms of the tree", f, top)
		}
	}
}

func TestNoLargeFileIsTracked(t *testing.T) {
	const limit = 6 << 20
	for _, f := range tracked(t) {
		if info, err := os.Stat(filepath.Join("..", "..", f)); err == nil && info.Size() > limit {
			t.Errorf("%s has %d bytes; the limit is %d", f, info.Size(), limit)
		}
	}
}

// TestDecisionsAreNumberedWithoutGaps keeps docs/decisions readable as a history.
func TestDecisionsAreNumberedWithoutGaps(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "decisions", "[0-9]*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no decision records found: %v", err)
	}
	for i, f := range files {
		want := fmt.Sprintf("%04d-", i+1)
		if !strings.HasPrefix(filepath.Base(f), want) {
			t.Errorf("%s: want number %s", filepath.Base(f), want)
		}
	}
}

// TestTheTestsNamedInDocumentsExist keeps a table of faults and their tests from promising what nobody checks.
func TestTheTestsNamedInDocumentsExist(t *testing.T) {
	var tests strings.Builder
	for _, f := range tracked(t) {
		if strings.HasSuffix(f, "_test.go") {
			tests.WriteString(readFile(t, filepath.Join("..", "..", f)))
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(readFile(t, filepath.Join("..", "..", "docs", "cameras.md")), -1)
	if len(named) == 0 {
		t.Error("docs/cameras.md names no test")
	}
	for _, n := range named {
		if !strings.Contains(tests.String(), "func "+n[1]+"(") {
			t.Errorf("docs/cameras.md names %s, which does not exist", n[1])
		}
	}
}
