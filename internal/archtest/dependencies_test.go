package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryDirectDependencyIsADecision keeps the table of direct dependencies complete.
func TestEveryDirectDependencyIsADecision(t *testing.T) {
	mod := readFile(t, filepath.Join("..", "..", "go.mod"))
	table := readFile(t, filepath.Join("..", "..", "docs", "decisions", "0006-direct-dependencies.md"))
	direct := regexp.MustCompile(`(?m)^\t(\S+\.\S+) v\S+$`).FindAllStringSubmatch(mod, -1)
	if len(direct) == 0 {
		t.Fatal("go.mod names no direct dependency")
	}
	// Modules that a row names by their parent.
	parents := map[string]string{
		"github.com/bluenviron/mediacommon/v2":      "mediacommon",
		"github.com/twmb/franz-go/pkg/kmsg":         "pkg/kmsg",
		"google.golang.org/genproto/googleapis/api": "google.golang.org/genproto",
		"google.golang.org/genproto/googleapis/rpc": "google.golang.org/genproto",
	}
	for _, m := range direct {
		name := m[1]
		if p, ok := parents[name]; ok {
			name = p
		}
		if !strings.Contains(table, name) {
			t.Errorf("%s has no row in docs/decisions/0006-direct-dependencies.md", m[1])
		}
	}
}
