// Package catalogue knows detectors that can be had from elsewhere and fetches them: what they are, under which licence,
// how well they do, and which bytes exactly they are.
package catalogue

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"

	"gopkg.in/yaml.v3"
)

//go:embed catalogue.yaml
var shipped []byte

// Model is an entry. Every field but Family and Reference is required.
type Model struct {
	Name     string `yaml:"name" json:"name"`
	Title    string `yaml:"title" json:"title"`
	Licence  string `yaml:"licence" json:"licence"`
	URL      string `yaml:"url" json:"url"`
	SHA256   string `yaml:"sha256" json:"sha256"`
	Bytes    int64  `yaml:"bytes" json:"bytes"`
	Input    string `yaml:"input" json:"input"`
	Classes  string `yaml:"classes" json:"classes"`
	Accuracy string `yaml:"accuracy" json:"accuracy"`
	// Family is how its outputs are read; empty: as they are recognised.
	Family string `yaml:"family,omitempty" json:"family,omitempty"`
	// Reference is the model whose answers it has to agree with: it is a variant of it in lower precision.
	Reference string `yaml:"reference,omitempty" json:"reference,omitempty"`
}

// Shipped is the catalogue that comes with the program.
func Shipped() ([]Model, error) { return Read(bytes.NewReader(shipped)) }

// maxCatalogue is far more than a catalogue needs.
const maxCatalogue = 4 << 20

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,47}$`)

// Read reads a catalogue (YAML: models, a list). All its faults are told at once.
func Read(r io.Reader) ([]Model, error) {
	var file struct {
		Models []Model `yaml:"models"`
	}
	d := yaml.NewDecoder(io.LimitReader(r, maxCatalogue))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	var faults []error
	known := map[string]bool{}
	for i, m := range file.Models {
		for _, err := range m.faults(known) {
			faults = append(faults, fmt.Errorf("models[%d] %q: %w", i, m.Name, err))
		}
		known[m.Name] = true
	}
	for i, m := range file.Models {
		if m.Reference != "" && (!known[m.Reference] || m.Reference == m.Name) {
			faults = append(faults, fmt.Errorf("models[%d] %q: reference %q is no other model of the catalogue", i, m.Name, m.Reference))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("the catalogue has faults: %w", err)
	}
	return file.Models, nil
}

func (m *Model) faults(known map[string]bool) (faults []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(nameForm.MatchString(m.Name), "name: up to 48 lower-case letters, digits, _ and -")
	check(!known[m.Name], "name: there is another of this name")
	check(m.Licence != "", "licence is missing")
	u, err := url.Parse(m.URL)
	check(err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "", "url: %q is no http or https address", m.URL)
	sum, err := hex.DecodeString(m.SHA256)
	check(err == nil && len(sum) == 32, "sha256: %q is not 64 hexadecimal digits", m.SHA256)
	check(m.Bytes > 0, "bytes: the size of the file is missing")
	check(m.Input != "" && m.Classes != "" && m.Accuracy != "", "input, classes and accuracy have to be told")
	return faults
}
