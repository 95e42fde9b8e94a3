package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// ListFindings implements vedettev1.SystemServiceServer.
func (s *systemService) ListFindings(ctx context.Context, req *vedettev1.ListFindingsRequest) (*vedettev1.ListFindingsResponse, error) {
	if s.cfg.Doctor == nil {
		return s.UnimplementedSystemServiceServer.ListFindings(ctx, req)
	}
	return &vedettev1.ListFindingsResponse{Findings: s.cfg.Doctor(ctx)}, nil
}

// GetSupportBundle implements vedettev1.SystemServiceServer.
func (s *systemService) GetSupportBundle(req *vedettev1.GetSupportBundleRequest, out vedettev1.SystemService_GetSupportBundleServer) error {
	if s.cfg.Bundle == nil {
		return s.UnimplementedSystemServiceServer.GetSupportBundle(req, out)
	}
	w := bufio.NewWriterSize(archiveParts{out}, clipPart) // gzip writes some bytes at a time
	if err := s.cfg.Bundle(out.Context(), w); err != nil {
		return err
	}
	return w.Flush()
}

// archiveParts sends what is written to it, a message a write.
type archiveParts struct {
	out vedettev1.SystemService_GetSupportBundleServer
}

// Write implements io.Writer.
func (p archiveParts) Write(b []byte) (int, error) {
	return len(b), p.out.Send(&vedettev1.GetSupportBundleResponse{Archive: b})
}

// bundleHandler serves the support bundle as a file, while it is made.
type bundleHandler struct {
	system vedettev1.SystemServiceClient
}

func (h *bundleHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(outgoing(r.Context(), r))
	defer cancel()
	stream, err := h.system.GetSupportBundle(ctx, &vedettev1.GetSupportBundleRequest{})
	var part *vedettev1.GetSupportBundleResponse
	if err == nil {
		part, err = stream.Recv()
	}
	if err != nil {
		jsonFault(ctx, runtime.NewServeMux(), &runtime.JSONPb{}, w, r, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/gzip")
	header.Set("Content-Disposition", `attachment; filename="vedette-support.tar.gz"`)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	for ; err == nil; part, err = stream.Recv() {
		if _, err := w.Write(part.GetArchive()); err != nil {
			return // whoever asked is gone
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // half an archive must not pass for a whole one
	}
}
