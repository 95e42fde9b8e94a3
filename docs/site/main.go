// Command site makes a static site of the documentation: a page for every Markdown file in docs, with navigation, and no
// script. A link that leads nowhere is an error.
//
//	go run ./docs/site -out bin/docs
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

func main() {
	root := flag.String("root", ".", "folder of the checkout")
	out := flag.String("out", "bin/docs", "folder to write the site to")
	flag.Parse()
	s := &site{root: *root, out: *out, pages: map[string]*page{}}
	if err := s.make(); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", len(s.pages), *out)
}

// elsewhere are pages whose source is not in docs.
var elsewhere = map[string]string{"models.md": "models/README.md", "contributing.md": "CONTRIBUTING.md"} //nolint:gochecknoglobals // a table

type page struct {
	source string // in the checkout
	title  string
	text   []byte
}

type site struct {
	root, out string
	pages     map[string]*page // by path below docs, such as decisions/0001.md
	files     map[string]bool  // what else pages show, by path below docs
}

//go:embed page.html
var layout string

func (s *site) make() error {
	if err := s.read(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.out); err != nil {
		return fmt.Errorf("empty the output folder: %w", err)
	}
	tmpl, err := template.New("page").Parse(layout)
	if err != nil {
		return err
	}
	s.files = map[string]bool{}
	var faults []string
	for name, p := range s.pages {
		body, bad := s.render(name, p)
		faults = append(faults, bad...)
		var b bytes.Buffer
		data := struct {
			Title, Home string
			Nav         []link
			Body        template.HTML
		}{p.title, s.relative(name, "index.md"), s.nav(name), template.HTML(body)} //nolint:gosec // our own documents
		if err := tmpl.Execute(&b, data); err != nil {
			return err
		}
		if err := s.write(htmlName(name), b.Bytes()); err != nil {
			return err
		}
	}
	for f := range s.files {
		b, err := os.ReadFile(filepath.Join(s.root, "docs", f))
		if err != nil {
			return err
		}
		if err := s.write(f, b); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return fmt.Errorf("links that lead nowhere:\n%s", strings.Join(faults, "\n"))
	}
	return nil
}

// read finds the pages.
func (s *site) read() error {
	docs := filepath.Join(s.root, "docs")
	err := filepath.WalkDir(docs, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		name, err := filepath.Rel(docs, file)
		if err != nil {
			return err
		}
		return s.add(filepath.ToSlash(name), file)
	})
	if err != nil {
		return err
	}
	for name, source := range elsewhere {
		if err := s.add(name, filepath.Join(s.root, source)); err != nil {
			return err
		}
	}
	// Decisions have a page of their own.
	var list strings.Builder
	list.WriteString("# Decisions\n\n")
	for _, name := range slices.Sorted(keys(s.pages)) {
		if rest, ok := strings.CutPrefix(name, "decisions/"); ok {
			fmt.Fprintf(&list, "- [%s](%s)\n", s.pages[name].title, rest)
		}
	}
	s.pages["decisions/index.md"] = &page{source: "docs/decisions", title: "Decisions", text: []byte(list.String())}
	return nil
}

var heading = regexp.MustCompile(`(?m)^# (.+)$`)

func (s *site) add(name, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	source, err := filepath.Rel(s.root, file)
	if err != nil {
		return err
	}
	title := name
	if m := heading.FindSubmatch(b); m != nil {
		title = string(m[1])
	}
	if name == "examples/README.md" {
		name = "examples/index.md"
	}
	s.pages[name] = &page{source: filepath.ToSlash(source), title: title, text: b}
	return nil
}

// render makes HTML of a page, its links leading to pages.
func (s *site) render(name string, p *page) (html []byte, faults []string) {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(p.text))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			to, fault := s.target(name, p, string(n.Destination))
			n.Destination = []byte(to)
			faults = append(faults, fault...)
		case *ast.Image:
			to, fault := s.target(name, p, string(n.Destination))
			n.Destination = []byte(to)
			faults = append(faults, fault...)
		}
		return ast.WalkContinue, nil
	}) // the walker has no errors
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, p.text, doc); err != nil {
		faults = append(faults, fmt.Sprintf("%s: %v", p.source, err))
	}
	return b.Bytes(), faults
}

// target is where a link leads on the site.
func (s *site) target(name string, p *page, to string) (string, []string) {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "mailto:") {
		return to, nil
	}
	file, anchor, _ := strings.Cut(to, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	if page := s.page(name, p, file); page != "" {
		return s.relative(name, page) + anchor, nil
	}
	for _, at := range places(name, p, file) {
		if info, err := os.Stat(filepath.Join(s.root, "docs", at)); err == nil && !info.IsDir() {
			s.files[at] = true
			rel, err := filepath.Rel(path.Dir(name), at)
			if err == nil {
				return filepath.ToSlash(rel), nil
			}
		}
	}
	if _, err := os.Stat(filepath.Join(s.root, path.Dir(p.source), file)); err == nil {
		return "https://github.com/vedette/vedette/blob/main/" + path.Join(path.Dir(p.source), file) + anchor, nil // source that is no page
	}
	return to, []string{p.source + ": " + to}
}

// page is the page that a link of a document leads to; empty: none.
func (s *site) page(name string, p *page, file string) string {
	for _, at := range places(name, p, file) {
		for page := range s.pages {
			if page == at || page == path.Join(at, "index.md") || s.pages[page].source == path.Join(path.Dir(p.source), file) {
				return page
			}
		}
	}
	return ""
}

// places are where a link may lead: links are relative to their document, in the checkout or among the pages.
func places(name string, p *page, file string) []string {
	return []string{path.Join(path.Dir(name), file), strings.TrimPrefix(path.Join(path.Dir(p.source), file), "docs/")}
}

func (s *site) relative(from, to string) string {
	rel, err := filepath.Rel(path.Dir(from), htmlName(to))
	if err != nil { // both are below docs
		return htmlName(to)
	}
	return filepath.ToSlash(rel)
}

func htmlName(name string) string { return strings.TrimSuffix(name, ".md") + ".html" }

type link struct {
	Title, To string
	Here      bool
}

// nav lists the pages in the order in which the first page names them.
func (s *site) nav(at string) (links []link) {
	index := s.pages["index.md"]
	for _, m := range regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`).FindAllStringSubmatch(string(index.text), -1) {
		to, title := s.page("index.md", index, m[2]), m[1]
		if p := s.pages[to]; p != nil && strings.HasPrefix(title, "its ") {
			title = p.title
		}
		links = append(links, link{Title: title, To: s.relative(at, to), Here: to == at})
	}
	return links
}

func (s *site) write(name string, b []byte) error {
	file := filepath.Join(s.out, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func keys(m map[string]*page) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
