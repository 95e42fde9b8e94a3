package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"

	"github.com/vedette/vedette/appliance/fleet"
)

type applyCommand struct {
	client
	overload
	File    string `short:"f" required:"" placeholder:"FILE" help:"YAML with the cameras, their zones and lines, and the sinks; - reads standard input."`
	DryRun  bool   `help:"Show what would change, and change nothing."`
	Prune   bool   `help:"Remove what is not in the lists that the file has."`
	Secrets bool   `help:"Write passwords and keys again: they cannot be compared. Otherwise they are written where none is yet."`
}

// Run makes the box what the file says.
func (c *applyCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	state, err := c.read(env)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		plan, err := fleet.Plan(ctx, conn, state, fleet.Options{Prune: c.Prune, Secrets: c.Secrets, AllowOverload: c.AllowOverload})
		if err != nil {
			return err
		}
		if err := c.print(env, plan); err != nil || c.DryRun {
			return err
		}
		if done, err := fleet.Apply(ctx, plan); err != nil {
			return fmt.Errorf("after %d of %d changes: %w", done, len(plan), err)
		}
		return nil
	})
}

func (c *applyCommand) read(env *Env) (*fleet.State, error) {
	if c.File == "-" {
		return fleet.Read(env.Stdin)
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return fleet.Read(f)
}

func (c *applyCommand) print(env *Env, plan []fleet.Change) error {
	if c.Output == "json" {
		if plan == nil {
			plan = []fleet.Change{}
		}
		b, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(env.Stdout, string(b))
		return err
	}
	sign := map[string]string{"create": "+", "update": "~", "delete": "-"}
	for _, change := range plan {
		if _, err := fmt.Fprintln(env.Stdout, sign[change.Action], change.Name); err != nil {
			return err
		}
		for _, f := range change.Fields {
			if _, err := fmt.Fprintf(env.Stdout, "    %s: %s -> %s\n", f.Path, orElse(f.From, "(unset)"), orElse(f.To, "(unset)")); err != nil {
				return err
			}
		}
	}
	if len(plan) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "nothing changes")
		return err
	}
	return nil
}

type stateCommands struct {
	Push statePush `cmd:"" help:"Check a state and put it into a registry, for boxes to follow."`
}

type statePush struct {
	File    string `arg:"" help:"YAML as vedette apply takes it; - reads standard input."`
	To      string `arg:"" help:"oci://HOST/REPOSITORY:TAG"`
	SignKey string `type:"existingfile" placeholder:"FILE" help:"Ed25519 key that signs it (openssl genpkey -algorithm ed25519)."`
}

// Run pushes the state.
func (c *statePush) Run(ctx context.Context, env *Env) (err error) {
	var text []byte
	if c.File == "-" {
		text, err = io.ReadAll(env.Stdin)
	} else {
		text, err = os.ReadFile(c.File)
	}
	if err != nil {
		return err
	}
	var key ed25519.PrivateKey
	if c.SignKey != "" {
		if key, err = fleet.ReadPrivateKey(c.SignKey); err != nil {
			return fmt.Errorf("--sign-key: %w", err)
		}
	}
	digest, err := fleet.Push(ctx, c.To, text, key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.Stdout, c.To+"@"+digest)
	return err
}
