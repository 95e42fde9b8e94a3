package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// packagedSettings is the configuration of an installed box; programs installed under /usr read it by themselves.
const packagedSettings = "/etc/vedette/vedette.yaml"

// setting is one line of the configuration file.
type setting struct {
	name  string // as the flag is called
	value string
	line  int
	fault string // why the value cannot be one
}

// settings is a YAML file of settings named like the flags, with - or _ between words. Everything wrong with it is
// reported at once.
type settings struct {
	list    []setting
	checked bool // nothing is wrong
}

// yamlSettings reads a configuration file for the command line.
func yamlSettings(r io.Reader) (kong.Resolver, error) {
	s, err := readSettings(r)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func readSettings(r io.Reader) (*settings, error) {
	var doc yaml.Node
	if err := yaml.NewDecoder(r).Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	s := &settings{}
	if len(doc.Content) == 0 {
		return s, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("read the configuration file: line %d: it must hold lines of the form name: value", top.Line)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		e := setting{name: strings.ReplaceAll(key.Value, "_", "-"), line: key.Line}
		switch {
		case seen[e.name] != 0:
			e.fault = fmt.Sprintf("it stands already in line %d", seen[e.name])
		case value.Kind != yaml.ScalarNode:
			e.fault = "its value is a list or a group, where one value belongs"
		case value.Tag == "!!null":
			e.fault = "it has no value: give one, or remove the line"
		default:
			e.value = value.Value
		}
		seen[e.name] = key.Line
		s.list = append(s.list, e)
	}
	return s, nil
}

// Validate finds every setting that no command knows or that has a value it cannot have.
func (s *settings) Validate(app *kong.Application) error {
	faults := s.faults(app)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("configuration file: %s", strings.Join(faults, "; "))
}

func (s *settings) faults(app *kong.Application) []string {
	known := flagsOf(app)
	values := map[string]string{}
	for _, e := range s.list {
		values[e.name] = e.value
	}
	beside := together(values)
	var faults []string
	for _, e := range s.list {
		flag := known[e.name]
		fault := e.fault
		switch {
		case flag == nil:
			fault = "there is no such setting" + alike(e.name, known)
		case fault == "":
			fault = cmp.Or(checkValue(flag, e.value), meaning(e.name, e.value), beside[e.name])
		}
		if fault != "" {
			faults = append(faults, fmt.Sprintf("line %d: %s: %s", e.line, e.name, fault))
		}
	}
	return faults
}

// flagsOf are the flags of the commands that run the box.
func flagsOf(app *kong.Application) map[string]*kong.Flag {
	known := map[string]*kong.Flag{}
	add := func(node *kong.Node) {
		for _, f := range node.Flags {
			if f.Name != "config" && f.Name != "help" {
				known[f.Name] = f
			}
		}
	}
	add(app.Node)
	for _, c := range app.Children {
		if c.Name == "run" || c.Name == "serve" {
			add(c)
		}
	}
	return known
}

// checkValue tries a value on the flag as the command line would, and tells what is wrong with it.
func checkValue(flag *kong.Flag, value string) string {
	target := flag.Target
	before := target.Interface()
	defer func() { target.Set(reflect.ValueOf(before)) }()
	err := flag.Parse(kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: value}), target)
	if err != nil {
		return fmt.Sprintf("%q: %v", value, err)
	}
	if flag.Enum != "" && !flag.EnumMap()[value] {
		return fmt.Sprintf("%q is not one of %s", value, flag.Enum)
	}
	return ""
}

// alike suggests the known setting that a name was probably meant to be.
func alike(name string, known map[string]*kong.Flag) string {
	best, least := "", 3
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return " (is " + best + " meant?)"
}

// distance is how many letters must be changed, added or left out to make a of b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Resolve returns the value of a flag. It comes before Validate, so it is here that the faults have to be told.
func (s *settings) Resolve(kctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !s.checked {
		if err := s.Validate(kctx.Model); err != nil {
			return nil, err
		}
		s.checked = true
	}
	for _, e := range s.list {
		if e.name == flag.Name && e.fault == "" {
			return e.value, nil
		}
	}
	return nil, nil
}

type configCommands struct {
	Check configCheck `cmd:"" help:"Tell every fault of a configuration file at once."`
	List  configList  `cmd:"" help:"List the names of all settings."`
	Doc   configDoc   `cmd:"" name:"reference" help:"Print what every setting means, as Markdown."`
}

type configCheck struct {
	File string `arg:"" optional:"" type:"path" default:"/etc/vedette/vedette.yaml" help:"Which file (${default})."`
}

// Run checks the file.
func (c *configCheck) Run(env *Env, app *kong.Kong) error {
	f, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	s, err := readSettings(f)
	if err != nil {
		return err
	}
	faults := s.faults(app.Model)
	for _, text := range faults {
		if _, err := fmt.Fprintf(env.Stderr, "%s: %s\n", c.File, text); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s: %d faults", c.File, len(faults))
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %d settings, no fault\n", c.File, len(s.list))
	return err
}

type configList struct{}

// Run lists the names.
func (configList) Run(env *Env, app *kong.Kong) error {
	for _, name := range slices.Sorted(maps.Keys(flagsOf(app.Model))) {
		if _, err := fmt.Fprintln(env.Stdout, name); err != nil {
			return err
		}
	}
	return nil
}

type configDoc struct{}

// Run prints the reference; docs/configuration.md is what it prints.
func (configDoc) Run(env *Env, app *kong.Kong) error {
	known := flagsOf(app.Model)
	var b strings.Builder
	b.WriteString("# Settings\n\nPrinted by `vedette config reference`. A setting can be given in the file (`/etc/vedette/vedette.yaml`, or `--config FILE`),\n" +
		"by an environment variable, which goes before the file, or by a flag, which goes before both. `vedette config check` tells every\n" +
		"fault of a file at once; `systemctl reload vedette` makes a change take effect.\n\n| setting | flag | environment | default | what it is |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(known)) {
		f := known[name]
		def := "none"
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		variable := "none"
		if len(f.Envs) > 0 {
			variable = "`" + f.Envs[0] + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s | %s |\n", name, name, variable, def, strings.ReplaceAll(strings.Replace(f.Help, " ("+f.Default+")", "", 1), "|", "or"))
	}
	_, err := io.WriteString(env.Stdout, b.String())
	return err
}
