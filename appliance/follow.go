package appliance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/vedette/vedette/appliance/fleet"
)

// Following is where the state comes from that a box is to be in. The zero value follows nothing.
type Following struct {
	// Source is oci://HOST/REPOSITORY:TAG or a file; empty: none.
	Source string
	// Key is the file of the public key that states are signed with; empty: they need no signature.
	Key string
	// Hub is told how the box is, at HUB/boxes/ID; empty: nobody is. HubToken is the file of the token it asks for.
	Hub, HubToken string
	// Box is its name among others; empty: the host's name.
	Box string
	// Interval between looks; 0: 30 s.
	Interval time.Duration
}

// boxName is what the box is called among others.
func (a *Appliance) boxName() string {
	host, _ := os.Hostname()
	return cmp.Or(a.cfg.Follow.Box, host, "vedette")
}

// follow keeps the box in the state of another's choosing, as a client of its own API.
func (a *Appliance) follow(ctx context.Context) error {
	f := a.cfg.Follow
	conn, err := grpc.NewClient("unix:"+LocalSocket(a.cfg.DataDir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	cfg := fleet.FollowConfig{
		Source: f.Source, Dir: filepath.Join(a.cfg.DataDir, "fleet"), Conn: conn, ID: a.boxID, Box: a.boxName(), Interval: f.Interval, Logger: a.cfg.Logger,
	}
	if f.Key != "" {
		if cfg.Key, err = fleet.ReadPublicKey(f.Key); err != nil {
			return fmt.Errorf("--follow-key: %w", err)
		}
	}
	if f.Hub != "" {
		token := ""
		if f.HubToken != "" {
			b, err := os.ReadFile(f.HubToken)
			if err != nil {
				return fmt.Errorf("--hub-token: %w", err)
			}
			token = strings.TrimSpace(string(b))
		}
		cfg.Report = fleet.ReportTo(f.Hub, token)
	}
	follower, err := fleet.Follow(cfg)
	if err != nil {
		return fmt.Errorf("--follow: %w", err)
	}
	return follower.Run(ctx)
}
