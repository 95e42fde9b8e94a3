package flags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"gopkg.in/yaml.v3"
)

// configFile is the flag that names a file of flags.
const configFile = "config-file"

// readFile sets what a configuration file says: flags by their names, without dashes, each with a value or, where a
// flag may be given several times, a list. The command line comes after it and wins; its lists are added. Every fault
// is told, with its line.
func (p *parser) readFile(args []string) error {
	name := ""
	for i, a := range args {
		switch flag, value, found := strings.Cut(strings.TrimLeft(a, "-"), "="); {
		case flag != configFile || !strings.HasPrefix(a, "-"):
		case found:
			name = value
		case i+1 < len(args):
			name = args[i+1]
		}
	}
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("--%s: %w", configFile, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("--%s: %s: %w", configFile, name, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("--%s: %s, line %d: expected lines of flag: value", configFile, name, top.Line)
	}
	var faults []error
	fault := func(at *yaml.Node, format string, a ...any) {
		faults = append(faults, fmt.Errorf("--%s: %s, line %d: %w", configFile, name, at.Line, fmt.Errorf(format, a...)))
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if p.set.Lookup(key.Value) == nil || key.Value == configFile {
			fault(key, "there is no flag %q", key.Value)
			continue
		}
		values := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			values = value.Content
		}
		for _, v := range values {
			if v.Kind != yaml.ScalarNode {
				fault(v, "%s takes a value or a list of values", key.Value)
			} else if err := p.set.Set(key.Value, v.Value); err != nil {
				fault(v, "%s: %w", key.Value, err)
			}
		}
	}
	return errors.Join(faults...)
}
