package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/doctor"
	"github.com/vedette/vedette/appliance/support"
)

type bundleCommand struct {
	client
	File string `arg:"" optional:"" type:"path" default:"vedette-support.tar.gz" help:"Where to write it (${default})."`
}

// Run writes the bundle, also when no appliance runs. A part that cannot be had is replaced by the reason.
func (c *bundleCommand) Run(ctx context.Context, env *Env, g *grammar) (err error) {
	f, err := os.OpenFile(c.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the support bundle: %w (name another file)", err)
	}
	err = support.Write(ctx, f, support.Config{
		Version: env.Version, DataDir: g.DataDir, Settings: packagedSettings,
		Doctor: func(ctx context.Context) []doctor.Finding {
			return (&doctorCommand{HTTP: "127.0.0.1:8080", GRPC: "127.0.0.1:8090"}).examine(ctx, env, g)
		},
		System:  func(ctx context.Context) (proto.Message, error) { return c.ask(ctx, g, system) },
		Cameras: func(ctx context.Context) (proto.Message, error) { return c.ask(ctx, g, allCameras) },
	})
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the support bundle: %w", err)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: read it before you send it; passwords, keys and tokens are left out\n", c.File)
	return err
}

// ask calls the running appliance.
func (c *bundleCommand) ask(ctx context.Context, g *grammar, call func(context.Context, *grpc.ClientConn) (proto.Message, error)) (proto.Message, error) {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	m, err := call(ctx, conn)
	if err != nil {
		return nil, plain(err)
	}
	return m, nil
}

func system(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
	return vedettev1.NewSystemServiceClient(conn).GetSystem(ctx, &vedettev1.GetSystemRequest{})
}

func allCameras(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
	return vedettev1.NewCameraServiceClient(conn).ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000})
}
