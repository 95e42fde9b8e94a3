package api

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

type systemService struct {
	vedettev1.UnimplementedSystemServiceServer
	cfg *Config
}

func (s *systemService) GetSystem(context.Context, *vedettev1.GetSystemRequest) (*vedettev1.System, error) {
	sys := s.cfg.System()
	sys.Storage = storage(s.cfg.Store.Stats())
	return sys, nil
}

func storage(st store.Stats) *vedettev1.Storage {
	v := &vedettev1.Storage{
		Pressure:  vedettev1.DiskPressure(st.Pressure) + vedettev1.DiskPressure_DISK_PRESSURE_NORMAL,
		UsedBytes: st.Bytes, FreeBytes: st.FreeBytes, ShedDetections: int64(st.ShedDetections), CommitErrors: int64(st.CommitErrors),
		Damaged: st.Damaged, LastDeleted: st.LastDeleted,
		Outlook: &vedettev1.DiskOutlook{Course: vedettev1.DiskCourse(st.Outlook.Course), DaysLeft: st.Outlook.Left.Hours() / 24, BytesPerDay: st.Outlook.BytesPerDay},
	}
	for _, f := range st.Files {
		v.WalBytes += f.WALBytes
		v.MediaBytes += f.MediaBytes
		if f.Day.IsZero() {
			continue
		}
		if v.Days++; v.GetOldestTime() == nil {
			v.OldestTime = timestamppb.New(f.Day)
		}
	}
	if !st.LastCommit.IsZero() {
		v.LastCommitTime = timestamppb.New(st.LastCommit)
	}
	return v
}

const backupPrefix = "backups/"

// backupID checks the last part of a backup's name.
func backupID(field, id string) error {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`).MatchString(id) {
		return invalid(field, "%q: 1 to 63 of a-z, 0-9 and -, the first and the last not -", id)
	}
	return nil
}

func (s *systemService) CreateBackup(ctx context.Context, req *vedettev1.CreateBackupRequest) (*vedettev1.Backup, error) {
	id := req.GetBackupId()
	if id == "" {
		id = strings.ToLower(s.cfg.Now().UTC().Format("20060102t150405.000z"))
		id = strings.ReplaceAll(id, ".", "-")
	}
	if err := backupID("backup_id", id); err != nil {
		return nil, err
	}
	path := filepath.Join(s.cfg.Store.BackupsDir(), id)
	if _, err := os.Stat(path); err == nil {
		return nil, store.ErrExists
	}
	report, err := s.cfg.Store.Backup(ctx, path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path)) // half a backup is none
	}
	return backupView(path, report), nil
}

func backupView(path string, r store.BackupReport) *vedettev1.Backup {
	v := &vedettev1.Backup{Name: backupPrefix + filepath.Base(path), Path: path, CreateTime: timestamppb.New(r.Time), Files: int32(len(r.Files))}
	for _, f := range r.Files {
		v.Bytes += f.Bytes
	}
	return v
}

func (s *systemService) ListBackups(context.Context, *vedettev1.ListBackupsRequest) (*vedettev1.ListBackupsResponse, error) {
	entries, err := os.ReadDir(s.cfg.Store.BackupsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	resp := &vedettev1.ListBackupsResponse{}
	for _, e := range entries {
		path := filepath.Join(s.cfg.Store.BackupsDir(), e.Name())
		// Copies that were made before an upgrade lie here too, as plain files.
		if r, err := store.ReadBackup(path); err == nil {
			resp.Backups = append(resp.Backups, backupView(path, r))
		}
	}
	slices.SortFunc(resp.GetBackups(), func(a, b *vedettev1.Backup) int {
		return cmp.Or(b.GetCreateTime().AsTime().Compare(a.GetCreateTime().AsTime()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return resp, nil
}

func (s *systemService) DeleteBackup(_ context.Context, req *vedettev1.DeleteBackupRequest) (*vedettev1.DeleteBackupResponse, error) {
	id, ok := strings.CutPrefix(req.GetName(), backupPrefix)
	if !ok || backupID("name", id) != nil {
		return nil, invalid("name", "%q is not of the form backups/{backup}", req.GetName())
	}
	path := filepath.Join(s.cfg.Store.BackupsDir(), id)
	if _, err := store.ReadBackup(path); err != nil {
		return nil, store.ErrNotFound
	}
	return &vedettev1.DeleteBackupResponse{}, os.RemoveAll(path)
}

// GetHistory implements vedettev1.SystemServiceServer.
func (s *systemService) GetHistory(_ context.Context, req *vedettev1.GetHistoryRequest) (*vedettev1.GetHistoryResponse, error) {
	if s.cfg.History == nil {
		return &vedettev1.GetHistoryResponse{}, nil
	}
	start := time.Time{}
	if req.GetStartTime() != nil {
		if err := req.GetStartTime().CheckValid(); err != nil {
			return nil, invalid("start_time", "%v", err)
		}
		start = req.GetStartTime().AsTime()
	}
	return s.cfg.History(start, req.GetCameras()), nil
}
