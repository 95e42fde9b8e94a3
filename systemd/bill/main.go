// Command bill tells what a package is made of: a bill of materials (CycloneDX JSON) of the Go modules compiled into the
// programs, the Go standard library, what is bundled beside them and the Debian packages they use, and the text of every
// licence that has to travel along. A part without a licence, or with one that asks for more than to be told of, is an error.
//
//	bill -version 1.2.3 -debian versions -npm infer/backend/onnxruntime/library,web/src -to usr/share/doc/vedette bin/vedette
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	var b bill
	flag.StringVar(&b.name, "name", "vedette", "of the package")
	flag.StringVar(&b.version, "version", "", "of the package")
	debian := flag.String("debian", "", "file with a Debian package and its version on each line")
	npm := flag.String("npm", "", "folders with a package.json and its lock file, whose dependencies are bundled; commas between them")
	to := flag.String("to", "", "folder to write sbom.cdx.json and third-party-licences.gz to")
	flag.Parse()
	err := b.read(flag.Args(), *debian, *npm)
	if err == nil {
		err = b.write(*to)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

type bill struct {
	name, version string
	components    []component
	texts         bytes.Buffer // of licences
}

// component is one of CycloneDX 1.5.
type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"` //nolint:tagliatelle // the name is CycloneDX's
	PURL     string    `json:"purl"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licences []licence `json:"licenses,omitempty"` //nolint:tagliatelle // the spelling is CycloneDX's
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

// permitted are the licences of what is linked or bundled, by SPDX: those that ask for their text to travel along, no more.
//
//nolint:gochecknoglobals // a constant table
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "Unlicense", "CC0-1.0", "Zlib", "0BSD", "BlueOak-1.0.0", "MPL-2.0"}

// chosen is the licence we take where a part offers several to choose from.
//
//nolint:gochecknoglobals // a constant table
var chosen = map[string]string{
	"github.com/eclipse/paho.golang": "BSD-3-Clause", // the Eclipse Distribution License, or EPL-2.0
}

func (b *bill) read(programs []string, debian, npm string) error {
	if len(programs) == 0 {
		return errors.New("no program is named")
	}
	modules := map[string]string{} // path: version
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, m := range info.Deps {
			if m.Replace != nil && !strings.HasPrefix(m.Replace.Path, "./") { // a folder of ours is a copy of the same
				m = m.Replace
			}
			modules[m.Path] = m.Version
		}
	}
	if err := b.add("pkg:golang/std@"+runtime.Version(), "std", runtime.Version(), runtime.GOROOT()); err != nil { //nolint:staticcheck // it is run by "go run" of the very Go that compiles
		return err
	}
	dirs, err := modulesHere()
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		dir := dirs[path+"@"+modules[path]]
		if dir == "" {
			return fmt.Errorf("the source of %s@%s is not here, so its licence cannot be read: go mod download", path, modules[path])
		}
		if err := b.add("pkg:golang/"+path+"@"+modules[path], path, modules[path], dir); err != nil {
			return err
		}
	}
	for folder := range strings.SplitSeq(npm, ",") {
		if folder == "" {
			continue
		}
		if err := b.addNPM(folder); err != nil {
			return err
		}
	}
	return b.addDebian(debian)
}

// modulesHere are the folders of this project's modules, by path@version.
func modulesHere() (map[string]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Path}}@{{.Version}} {{.Dir}}", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all: %w", err)
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[name] = dir
	}
	return dirs, nil
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense)([-._].*)?$`)

// add adds a part whose source lies in dir, with the licences found there.
func (b *bill) add(purl, name, version, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ids := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".docs" { // of documents, which are not shipped
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&b.texts, "\n==== %s %s: %s\n\n%s\n", name, version, e.Name(), text)
		for _, m := range licensecheck.Scan(text).Match {
			ids[m.ID] = !m.IsURL || ids[m.ID]
		}
	}
	maps.DeleteFunc(ids, func(_ string, isText bool) bool { return !isText })
	if len(ids) == 0 {
		return fmt.Errorf("%s %s: no known licence in %s", name, version, dir)
	}
	if id, ok := chosen[name]; ok {
		ids = map[string]bool{id: true}
	}
	return b.append(purl, name, version, slices.Sorted(maps.Keys(ids)))
}

func (b *bill) append(purl, name, version string, ids []string) error {
	c := component{Type: "library", Ref: purl, PURL: purl, Name: name, Version: version}
	for _, id := range ids {
		if !slices.Contains(permitted, id) {
			return fmt.Errorf("%s %s: its licence %s may not be shipped in a package of ours", name, version, id)
		}
		var l licence
		l.License.ID = id
		c.Licences = append(c.Licences, l)
	}
	b.components = append(b.components, c)
	return nil
}

// addNPM adds what the lock file in a folder pins and package.json asks for; their licences are the lock file's word.
func (b *bill) addNPM(folder string) error {
	var asked struct{ Dependencies map[string]string }
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	for name, into := range map[string]any{"package.json": &asked, "package-lock.json": &lock} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("%s/%s: %w", folder, name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Dependencies)) {
		p, ok := lock.Packages["node_modules/"+name]
		if !ok {
			return fmt.Errorf("%s: the lock file does not have %s", folder, name)
		}
		if err := b.append("pkg:npm/"+name+"@"+p.Version, name, p.Version, []string{p.License}); err != nil {
			return err
		}
	}
	return nil
}

// addDebian adds the packages whose libraries are used; they are installed beside ours and carry their licences themselves.
func (b *bill) addDebian(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return fmt.Errorf("%s: %q is not a package and its version", file, line)
		}
		purl := "pkg:deb/debian/" + name + "@" + version
		b.components = append(b.components, component{Type: "library", Ref: purl, PURL: purl, Name: name, Version: version})
	}
	return nil
}

func (b *bill) write(to string) error {
	slices.SortFunc(b.components, func(a, c component) int { return cmp.Compare(a.PURL, c.PURL) })
	out, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": b.components,
		"metadata": map[string]any{"component": map[string]any{
			"type": "application", "name": b.name, "version": b.version,
			"licenses": []any{map[string]any{"license": map[string]string{"id": "Apache-2.0"}}},
		}},
	}, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "sbom.cdx.json"), append(out, '\n'), 0o644); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(b.texts.Bytes()); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "third-party-licences.gz"), packed.Bytes(), 0o644) //nolint:gosec // everybody may read it
}
