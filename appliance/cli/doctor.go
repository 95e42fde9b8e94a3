package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/doctor"
)

type doctorCommands struct {
	Check    doctorCommand   `cmd:"" default:"withargs" help:"Look for what is wrong with this machine and say what to do."`
	Capacity capacityCommand `cmd:"" help:"Tell how many cameras fit on this box, from what it has measured on itself."`
	Camera   doctorCamera    `cmd:"" help:"Look at one camera of a running appliance."`
}

type doctorCamera struct {
	client
	ID string `arg:"" help:"Name of the camera."`
}

// Run prints the findings about a camera; the error says that some keep it from being analysed.
func (c *doctorCamera) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	camera, err := vedettev1.NewCameraServiceClient(conn).GetCamera(ctx, &vedettev1.GetCameraRequest{Name: fullName(c.ID)})
	if err != nil {
		return plain(err)
	}
	return report(env, c.Output, doctor.Camera(camera, time.Now()), "the camera")
}

type doctorCommand struct {
	HTTP        string `name:"http" default:"127.0.0.1:8080" env:"VEDETTE_HTTP" placeholder:"ADDR" help:"Address whose port must be free (${default})."`
	GRPC        string `name:"grpc" default:"127.0.0.1:8090" env:"VEDETTE_GRPC" placeholder:"ADDR" help:"Address whose port must be free (${default})."`
	Models      string `type:"path" env:"VEDETTE_MODELS" placeholder:"DIR" help:"Model repository; the shipped one by default."`
	Onnxruntime string `type:"path" env:"VEDETTE_ONNXRUNTIME" placeholder:"FILE" help:"ONNX Runtime library; the shipped one by default."`
	Output      string `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

func (c *doctorCommand) examine(ctx context.Context, env *Env, g *grammar) []doctor.Finding {
	cfg := doctor.Config{
		DataDir: g.DataDir, Models: c.Models, Library: c.Onnxruntime, Programs: filepath.Dir(env.Executable), Ports: []string{c.HTTP, c.GRPC},
	}
	if cfg.Models == "" {
		cfg.Models = shippedModels(env.Executable)
	}
	if cfg.Library == "" {
		cfg.Library = shippedLibrary(env.Executable)
	}
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", appliance.LocalSocket(g.DataDir)); err == nil {
		_ = conn.Close()
		cfg.Running, cfg.Ports = true, nil // its addresses are what it was told, which may be any
	}
	return doctor.Check(ctx, cfg)
}

// shippedLibrary is where vedette-infer finds ONNX Runtime.
func shippedLibrary(executable string) string {
	dir := filepath.Dir(executable)
	packaged := filepath.Join(dir, "..", "lib", "vedette", "libonnxruntime.so.1")
	if _, err := os.Stat(packaged); err == nil {
		return packaged
	}
	return filepath.Join(dir, "..", "third_party", "onnxruntime", "libonnxruntime.so.1")
}

// Run prints the findings; the error says that some keep Vedette from working.
func (c *doctorCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	return report(env, c.Output, c.examine(ctx, env, g), "Vedette, or a part of it,")
}

// report prints findings; the error says what some of them keep from working.
func report(env *Env, output string, findings []doctor.Finding, what string) error {
	if output == "json" {
		b, err := json.MarshalIndent(findings, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(env.Stdout, string(b)); err != nil {
			return err
		}
	} else {
		rows := [][]string{{"", "CHECK", "FOUND"}}
		for _, f := range findings {
			rows = append(rows, []string{strings.ToUpper(string(f.Severity)), f.Check, f.Message})
			if f.Advice != "" {
				rows = append(rows, []string{"", "", "-> " + f.Advice})
			}
		}
		if err := table(env.Stdout, rows...); err != nil {
			return err
		}
	}
	errors := 0
	for _, f := range findings {
		if f.Severity == doctor.Error {
			errors++
		}
	}
	if errors > 0 {
		return fmt.Errorf("%d faults keep %s from working", errors, what)
	}
	return nil
}
