package v2grpc

import (
	"context"
	"crypto/subtle"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// restrictPrefix comes before the header's name in the metadata.
const restrictPrefix = "triton-grpc-protocol-"

func (s *Server) unlocked(ctx context.Context, api string) error {
	for _, r := range s.cfg.Restricted {
		if !slices.Contains(r.APIs, api) {
			continue
		}
		key := restrictPrefix + r.Header
		got := metadata.ValueFromIncomingContext(ctx, key)
		if len(got) == 0 || subtle.ConstantTimeCompare([]byte(got[0]), []byte(r.Value)) != 1 {
			return status.Errorf(codes.Unavailable, "This protocol is restricted, expecting header '%s'", key)
		}
	}
	return nil
}
