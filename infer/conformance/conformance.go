// Package conformance shows which tests stand for which row of what the server
// promises to clients of other servers.
//
// A test claims rows by its name: TestR4AndR5RepositoryCalls stands for R4 and
// R5, and so does a script r4_reload.script in a testdata folder for R4. The
// table in docs is written from these names, and a row that nothing stands for
// fails the package's own test.
package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Evidence is one test or script that claims a row.
type Evidence struct {
	Package string // its folder
	Says    string // its name as a sentence
}

// Table is the evidence for every row, by the row's id.
type Table map[string][]Evidence

var (
	testName   = regexp.MustCompile(`(?m)^func (?:Test|Fuzz|Benchmark)((?:[PRSXT]\d+)(?:And[PRSXT]\d+)*)([A-Z]\w*)\(`)
	scriptName = regexp.MustCompile(`^((?:[prsxt]\d+)(?:_[prsxt]\d+)*)_(\w+)\.script$`)
)

// Scan reads the tests below the given folders.
func Scan(root fs.FS, folders ...string) (Table, error) {
	t := make(Table)
	for _, folder := range folders {
		err := fs.WalkDir(root, folder, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if m := scriptName.FindStringSubmatch(path.Base(file)); m != nil {
				t.add(strings.Split(strings.ToUpper(m[1]), "_"), path.Dir(path.Dir(file)), strings.ReplaceAll(m[2], "_", " "))
				return nil
			}
			if !strings.HasSuffix(file, "_test.go") {
				return nil
			}
			text, err := fs.ReadFile(root, file)
			if err != nil {
				return err
			}
			for _, m := range testName.FindAllSubmatch(text, -1) {
				t.add(strings.Split(string(m[1]), "And"), path.Dir(file), sentence(string(m[2])))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the tests below %s: %w", folder, err)
		}
	}
	for _, e := range t {
		slices.SortFunc(e, func(a, b Evidence) int {
			return strings.Compare(a.Package+" "+a.Says, b.Package+" "+b.Says)
		})
	}
	return t, nil
}

func (t Table) add(rows []string, pkg, says string) {
	for _, r := range rows {
		t[r] = append(t[r], Evidence{pkg, says})
	}
}

// sentence spells a name out: ReloadIsWithoutAGap says "reload is without a
// gap". Abbreviations stay as they are, also in the plural: GPUs.
func sentence(name string) string {
	var words []string
	for r := []rune(name); len(r) > 0; {
		n := wordLength(r)
		w := string(r[:n])
		if one := strings.TrimSuffix(w, "s"); len(one) == 1 || strings.ToUpper(one) != one {
			w = strings.ToLower(w)
		}
		words = append(words, w)
		r = r[n:]
	}
	return strings.Join(words, " ")
}

// wordLength is the length of the first word: capitals but for the one that begins the next word, or a letter and what
// is small behind it.
func wordLength(r []rune) int {
	capitals := 0
	for capitals < len(r) && !unicode.IsLower(r[capitals]) {
		capitals++
	}
	end := capitals
	for end < len(r) && unicode.IsLower(r[end]) {
		end++
	}
	switch {
	case capitals < 2 || capitals == len(r):
		return end
	case end == capitals+1 && r[capitals] == 's':
		return end
	}
	return capitals - 1
}

// Faults are the rows without evidence, the evidence for rows there are none
// of, and the rows said to be outside that have some.
func (t Table) Faults() []string {
	var out []string
	known := make(map[string]bool)
	for _, r := range contract() {
		known[r.id] = true
		switch {
		case r.outside == "" && len(t[r.id]) == 0:
			out = append(out, fmt.Sprintf("row %s (%s) has no test: name one Test%s...", r.id, r.title, r.id))
		case r.outside != "" && len(t[r.id]) > 0:
			out = append(out, fmt.Sprintf("row %s is said to be outside (%s) and has tests", r.id, r.outside))
		}
	}
	for id, e := range t {
		if !known[id] {
			out = append(out, fmt.Sprintf("there is no row %s, which %s claims in %q", id, e[0].Package, e[0].Says))
		}
	}
	slices.Sort(out)
	return out
}

// Markdown is the table as a document.
func (t Table) Markdown() []byte {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // a buffer takes everything
	put("# What the inference sidecar keeps to\n\n")
	put("One row for each behaviour that clients of a v2 (Open Inference Protocol, KServe, Triton) server rely on, and the tests\n")
	put("that show it. Written by `go generate ./infer/conformance` from the names of the tests; a row without a test fails the build.\n")
	put("Deviations are on purpose: where Triton has a known slip, the sidecar does what was meant.\n\n")
	section := ""
	for _, r := range contract() {
		if s := r.section(); s != section {
			section = s
			put("## %s\n\n| row | behaviour | shown by | deviation |\n|---|---|---|---|\n", section)
		}
		put("| %s | %s | %s | %s |\n", r.id, r.title, shown(t[r.id], r.outside), r.deviation)
		if r.last {
			put("\n")
		}
	}
	_ = w.Flush()
	return bytes.TrimRight(b.Bytes(), "\n")
}

func shown(e []Evidence, outside string) string {
	if outside != "" {
		return "out of scope: " + outside
	}
	var parts []string
	for i := 0; i < len(e); {
		pkg := e[i].Package
		var says []string
		for ; i < len(e) && e[i].Package == pkg; i++ {
			if !slices.Contains(says, e[i].Says) {
				says = append(says, e[i].Says)
			}
		}
		parts = append(parts, "`"+strings.TrimPrefix(pkg, "infer/")+"`: "+strings.Join(says, "; "))
	}
	return strings.Join(parts, "<br>")
}
