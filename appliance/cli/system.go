package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

type systemCommand struct {
	client
	watching
}

// Run shows versions, processes and storage.
func (c *systemCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		return c.again(ctx, env, func() error {
			sys, err := vedettev1.NewSystemServiceClient(conn).GetSystem(ctx, &vedettev1.GetSystemRequest{})
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(env.Stdout, sys)
			}
			rows := [][]string{{"vedette " + sys.GetVersion(), "since " + clock(sys.GetStartTime()), sys.GetBox(), sys.GetBoxId()}}
			for _, p := range sys.GetProcesses() {
				rows = append(rows, []string{p.GetName(), word(p.GetState(), "PROCESS_STATE_"), fmt.Sprintf("restarts %d", p.GetRestarts()), p.GetMessage()})
			}
			if l := sys.GetLoad(); l != nil {
				rows = append(rows, []string{"load", word(l.GetLevel(), "LOAD_LEVEL_"), fmt.Sprintf("%.1f frames/s analysed, %.1f lost", l.GetAnalysedFps(), l.GetLostFps()), l.GetMessage()})
			}
			st := sys.GetStorage()
			rows = append(rows,
				[]string{"kept", gib(st.GetUsedBytes()), fmt.Sprintf("%d days, pictures and clips %s", st.GetDays(), gib(st.GetMediaBytes())), "since " + clock(st.GetOldestTime())},
				[]string{"free", gib(st.GetFreeBytes()), word(st.GetPressure(), "DISK_PRESSURE_"), strings.Join(st.GetDamaged(), ", ")})
			return table(env.Stdout, rows...)
		})
	})
}

func gib(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

type auditCommand struct {
	client
	Filter string `help:"Such as: actor = \"ann\" AND method = \"DeleteCamera\" AND time >= \"2026-05-01T00:00:00Z\"."`
	Limit  int32  `default:"50" help:"How many at most; 0: all."`
}

// Run lists who changed what.
func (c *auditCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		list, err := pages(c.Limit, 1000, func(size int32, token string) ([]*vedettev1.AuditEntry, string, error) {
			r, err := vedettev1.NewSystemServiceClient(conn).ListAuditEntries(ctx, &vedettev1.ListAuditEntriesRequest{Filter: c.Filter, PageSize: size, PageToken: token})
			return r.GetAuditEntries(), r.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return show(&c.client, env, []string{"TIME", "WHO", "FROM", "DID", "TO", "OUTCOME"}, list, func(e *vedettev1.AuditEntry) []string {
			return []string{clock(e.GetTime()), e.GetActor(), e.GetPeer(), e.GetMethod(), e.GetResource(), e.GetOutcome()}
		})
	})
}

type backupCommands struct {
	Create backupCreate `cmd:"" default:"withargs" help:"Copy the database while the box goes on."`
	List   backupList   `cmd:"" help:"List the backups on the box."`
	Remove backupRemove `cmd:"" aliases:"delete" help:"Remove a backup."`
	Verify backupVerify `cmd:"" help:"Check every file of a backup in a folder."`
}

func backupHeader() []string { return []string{"BACKUP", "TIME", "FILES", "SIZE", "FOLDER"} }

func backupRow(b *vedettev1.Backup) []string {
	return []string{lastPart(b.GetName()), clock(b.GetCreateTime()), fmt.Sprint(b.GetFiles()), gib(b.GetBytes()), b.GetPath()}
}

type backupCreate struct {
	client
	ID string `arg:"" optional:"" help:"Name of the backup; the time by default."`
	To string `type:"path" placeholder:"DIR" help:"Move it to this folder of the box, which must be empty or missing; another disk, for example."`
}

// Run makes a backup.
func (c *backupCreate) Run(ctx context.Context, env *Env, g *grammar) error {
	if c.To != "" && c.Server != "" && !nearby(c.Server) {
		return fmt.Errorf("--to is a folder of the box: run this there, or fetch the backup yourself")
	}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		system := vedettev1.NewSystemServiceClient(conn)
		b, err := system.CreateBackup(ctx, &vedettev1.CreateBackupRequest{BackupId: c.ID})
		if err != nil {
			return err
		}
		if c.To != "" {
			if err := moveBackup(ctx, b, c.To); err != nil {
				return err
			}
			if _, err := system.DeleteBackup(ctx, &vedettev1.DeleteBackupRequest{Name: b.GetName()}); err != nil {
				return err
			}
			b.Path = c.To
		}
		return show(&c.client, env, backupHeader(), []*vedettev1.Backup{b}, backupRow)
	})
}

func moveBackup(ctx context.Context, b *vedettev1.Backup, to string) error {
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return fmt.Errorf("--to: %s is not empty; the backup stays at %s", to, b.GetPath())
	}
	if err := os.CopyFS(to, os.DirFS(b.GetPath())); err != nil {
		return fmt.Errorf("--to: %w (the backup stays at %s)", err, b.GetPath())
	}
	if _, err := store.VerifyBackup(ctx, to); err != nil {
		return fmt.Errorf("--to: %w (the backup stays at %s)", err, b.GetPath())
	}
	return nil
}

type backupList struct{ client }

// Run lists the backups.
func (c *backupList) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewSystemServiceClient(conn).ListBackups(ctx, &vedettev1.ListBackupsRequest{})
		if err != nil {
			return err
		}
		return show(&c.client, env, backupHeader(), r.GetBackups(), backupRow)
	})
}

type backupRemove struct {
	client
	ID string `arg:"" help:"Name of the backup."`
}

// Run removes a backup.
func (c *backupRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		if _, err := vedettev1.NewSystemServiceClient(conn).DeleteBackup(ctx, &vedettev1.DeleteBackupRequest{Name: "backups/" + c.ID}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(env.Stdout, "removed", c.ID)
		return err
	})
}

type backupVerify struct {
	Dir string `arg:"" type:"existingdir" help:"Folder of the backup."`
}

// Run checks a backup.
func (c *backupVerify) Run(ctx context.Context, env *Env) error {
	r, err := store.VerifyBackup(ctx, c.Dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: whole, %d files of %s\n", c.Dir, len(r.Files), r.Time.Local().Format("2006-01-02 15:04:05"))
	return err
}

type restoreCommand struct {
	Dir string `arg:"" type:"existingdir" help:"Folder of the backup."`
}

// Run puts a backup into the data directory, which must hold no database.
func (c *restoreCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	r, err := store.Restore(ctx, c.Dir, g.DataDir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "restored %d files of %s into %s\n", len(r.Files), r.Time.Local().Format("2006-01-02 15:04:05"), g.DataDir)
	return err
}
