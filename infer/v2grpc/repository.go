package v2grpc

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

func repositoryName(name string) error {
	if name != "" {
		return status.Error(codes.Unimplemented, "'repository_name' specification is not supported")
	}
	return nil
}

// RepositoryIndex lists the models of the repositories.
func (s *Server) RepositoryIndex(ctx context.Context, req *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	if err := s.admit(ctx, apiModelRepository); err != nil {
		return nil, err
	}
	if err := repositoryName(req.GetRepositoryName()); err != nil {
		return nil, err
	}
	resp := new(inference.RepositoryIndexResponse)
	for _, e := range s.cfg.Catalog.Index(req.GetReady()) {
		resp.Models = append(resp.Models, &inference.RepositoryIndexResponse_ModelIndex{
			Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason,
		})
	}
	return resp, nil
}

// RepositoryModelLoad loads a model and answers when that has ended.
func (s *Server) RepositoryModelLoad(ctx context.Context, req *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	if err := s.admit(ctx, apiModelRepository); err != nil {
		return nil, err
	}
	if err := repositoryName(req.GetRepositoryName()); err != nil {
		return nil, err
	}
	var opts infer.LoadOptions
	for k, v := range req.GetParameters() {
		switch path, isFile := strings.CutPrefix(k, "file:"); {
		case k == "config":
			c, ok := v.GetParameterChoice().(*inference.ModelRepositoryParameter_StringParam)
			if !ok {
				return nil, loadParameter(k, "string_param")
			}
			opts.Config = c.StringParam
		case k == "replace" && s.cfg.Frames: // the appliance's own listener
			opts.Replace = v.GetBoolParam()
		case isFile:
			c, ok := v.GetParameterChoice().(*inference.ModelRepositoryParameter_BytesParam)
			if !ok {
				return nil, loadParameter(k, "bytes_param")
			}
			if opts.Files == nil {
				opts.Files = make(map[string][]byte)
			}
			opts.Files[path] = c.BytesParam
		default:
			return nil, status.Errorf(codes.InvalidArgument, "unrecognized load parameter '%s'.", k)
		}
	}
	if err := s.cfg.Catalog.Load(ctx, req.GetModelName(), opts); err != nil {
		return nil, statusOf(err)
	}
	return &inference.RepositoryModelLoadResponse{}, nil
}

func loadParameter(key, expected string) error {
	return status.Errorf(codes.InvalidArgument, "invalid value type for load parameter '%s', expected %s.", key, expected)
}

// RepositoryModelUnload begins to unload a model.
func (s *Server) RepositoryModelUnload(ctx context.Context, req *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	if err := s.admit(ctx, apiModelRepository); err != nil {
		return nil, err
	}
	if err := repositoryName(req.GetRepositoryName()); err != nil {
		return nil, err
	}
	dependents := false
	for k, v := range req.GetParameters() {
		if k != "unload_dependents" {
			continue // Triton ignores what it does not know here, and so must we
		}
		c, ok := v.GetParameterChoice().(*inference.ModelRepositoryParameter_BoolParam)
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "invalid value type for unload parameter '%s', expected bool_param.", k)
		}
		dependents = c.BoolParam
	}
	if err := s.cfg.Catalog.Unload(ctx, req.GetModelName(), dependents); err != nil {
		return nil, statusOf(err)
	}
	return &inference.RepositoryModelUnloadResponse{}, nil
}

// SystemSharedMemoryStatus lists the regions of the listener.
func (s *Server) SystemSharedMemoryStatus(ctx context.Context, req *inference.SystemSharedMemoryStatusRequest) (*inference.SystemSharedMemoryStatusResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	list, err := s.cfg.Regions.Status(req.GetName())
	if err != nil {
		return nil, statusOf(err)
	}
	resp := &inference.SystemSharedMemoryStatusResponse{Regions: make(map[string]*inference.SystemSharedMemoryStatusResponse_RegionStatus, len(list))}
	for _, r := range list {
		resp.Regions[r.Name] = &inference.SystemSharedMemoryStatusResponse_RegionStatus{Name: r.Name, Key: r.Key, Offset: r.Offset, ByteSize: r.ByteSize}
	}
	return resp, nil
}

// SystemSharedMemoryRegister makes a region known.
func (s *Server) SystemSharedMemoryRegister(ctx context.Context, req *inference.SystemSharedMemoryRegisterRequest) (*inference.SystemSharedMemoryRegisterResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	if err := s.cfg.Regions.Register(req.GetName(), req.GetKey(), req.GetOffset(), req.GetByteSize()); err != nil {
		return nil, statusOf(err)
	}
	return &inference.SystemSharedMemoryRegisterResponse{}, nil
}

// SystemSharedMemoryUnregister forgets one region or all.
func (s *Server) SystemSharedMemoryUnregister(ctx context.Context, req *inference.SystemSharedMemoryUnregisterRequest) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	if err := s.cfg.Regions.Unregister(req.GetName()); err != nil {
		return nil, statusOf(err)
	}
	return &inference.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus lists the regions of GPU memory: there are none.
func (s *Server) CudaSharedMemoryStatus(ctx context.Context, req *inference.CudaSharedMemoryStatusRequest) (*inference.CudaSharedMemoryStatusResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	if _, err := s.cfg.Regions.Status(""); err != nil {
		return nil, statusOf(err)
	}
	if req.GetName() != "" {
		return nil, status.Errorf(codes.NotFound, "Unable to find cuda shared memory region: '%s'", req.GetName())
	}
	return &inference.CudaSharedMemoryStatusResponse{}, nil
}

// CudaSharedMemoryRegister is refused: no GPU memory can be mapped.
func (s *Server) CudaSharedMemoryRegister(ctx context.Context, req *inference.CudaSharedMemoryRegisterRequest) (*inference.CudaSharedMemoryRegisterResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	if _, err := s.cfg.Regions.Status(""); err != nil {
		return nil, statusOf(err)
	}
	return nil, status.Errorf(codes.InvalidArgument, "failed to register CUDA shared memory region: '%s', GPUs not supported", req.GetName())
}

// CudaSharedMemoryUnregister has nothing to forget.
func (s *Server) CudaSharedMemoryUnregister(ctx context.Context, _ *inference.CudaSharedMemoryUnregisterRequest) (*inference.CudaSharedMemoryUnregisterResponse, error) {
	if err := s.admit(ctx, apiSharedMemory); err != nil {
		return nil, err
	}
	if _, err := s.cfg.Regions.Status(""); err != nil {
		return nil, statusOf(err)
	}
	return &inference.CudaSharedMemoryUnregisterResponse{}, nil
}
