package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// The scripts ask the program itself, so that they never know less than it does.
const (
	bashCompletion = `# vedette completion bash > /etc/bash_completion.d/vedette
_vedette() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _vedette vedette
`
	zshCompletion = `#compdef vedette
# vedette completion zsh > "${fpath[1]}/_vedette"
_vedette() {
  local -a candidates
  candidates=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if (( ${#candidates} )) && [[ -n "${candidates[1]}" ]]; then compadd -- "${candidates[@]}"; else _files; fi
}
if [ "$funcstack[1]" = "_vedette" ]; then _vedette "$@"; else compdef _vedette vedette; fi
`
	fishCompletion = `# vedette completion fish > ~/.config/fish/completions/vedette.fish
complete -c vedette -a '(vedette complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`
)

// Run prints a completion script.
func (c *completionCommand) Run(env *Env) error {
	_, err := fmt.Fprint(env.Stdout, map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell])
	return err
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what may stand where the last word begins.
func (c *completeCommand) Run(ctx context.Context, env *Env, g *grammar, k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, candidate := range candidates(ctx, g, k.Model.Node, words) {
		if _, err := fmt.Fprintln(env.Stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// candidates lists what may stand in place of the last word.
func candidates(ctx context.Context, g *grammar, node *kong.Node, words []string) (list []string) {
	done, last := words[:len(words)-1], words[len(words)-1]
	var before *kong.Flag // takes the next word as its value
	given := 0            // of the node's arguments
	for _, w := range done {
		if before != nil {
			if before.Name == "data-dir" {
				g.DataDir = w
			}
			before = nil
			continue
		}
		if strings.HasPrefix(w, "-") {
			if f := flagOf(node, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") {
				before = f
			}
			continue
		}
		if child := childOf(node, w); child != nil {
			node, given = child, 0
		} else {
			given++
		}
	}
	switch {
	case before != nil:
		list = valuesOf(ctx, g, before.Value)
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				list = append(list, "--"+f.Name)
			}
		}
	case given < len(node.Positional):
		list = valuesOf(ctx, g, node.Positional[given])
	case len(node.Positional) == 0:
		for _, child := range node.Children {
			if !child.Hidden {
				list = append(list, child.Name)
			}
		}
	}
	list = slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(list)
	return slices.Compact(list)
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if f.Name == name || (len(name) == 1 && f.Short == rune(name[0])) {
				return f
			}
		}
	}
	return nil
}

// valuesOf lists the values of a flag or argument: those it is limited to, or the names the appliance knows.
func valuesOf(ctx context.Context, g *grammar, v *kong.Value) []string {
	if v.Enum != "" {
		return v.EnumSlice()
	}
	var names []string
	if v.Tag.Get("complete") == "method" {
		for _, m := range methods() {
			names = append(names, string(m.Name()))
		}
		return names
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = new(client).on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		switch v.Tag.Get("complete") {
		case "camera":
			r, err := vedettev1.NewCameraServiceClient(conn).ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000})
			for _, c := range r.GetCameras() {
				names = append(names, shortName(c.GetName()))
			}
			return err
		case "sink":
			r, err := vedettev1.NewSinkServiceClient(conn).ListSinks(ctx, &vedettev1.ListSinksRequest{PageSize: 1000})
			for _, s := range r.GetSinks() {
				names = append(names, lastPart(s.GetName()))
			}
			return err
		}
		return nil
	})
	return names
}
