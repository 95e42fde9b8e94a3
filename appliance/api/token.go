package api

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/store"
)

type tokenService struct {
	vedettev1.UnimplementedTokenServiceServer
	cfg *Config
}

func (s *tokenService) CreateToken(ctx context.Context, req *vedettev1.CreateTokenRequest) (*vedettev1.CreateTokenResponse, error) {
	want := req.GetToken()
	a := access{Role: Role(want.GetRole())}
	if a.Role.rank() == 0 {
		return nil, invalid("token.role", "%q is not viewer, operator or admin", want.GetRole())
	}
	if want.GetUser() == "" || len(want.GetUser()) > 128 {
		return nil, invalid("token.user", "it must have between 1 and 128 bytes")
	}
	for i, name := range want.GetCameras() {
		id, err := cameras.ID(name)
		if err != nil {
			return nil, invalid(fmt.Sprintf("token.cameras[%d]", i), "%q is not of the form cameras/{camera}", name)
		}
		a.Cameras = append(a.Cameras, id)
	}
	if a.scoped() && a.Role == Admin {
		return nil, invalid("token.cameras", "an admin's token is for all cameras: leave them out, or choose operator")
	}
	t := store.Token{User: want.GetUser(), Spec: a.spec()}
	if req.GetTtl() != nil {
		if req.GetTtl().AsDuration() <= 0 {
			return nil, invalid("ttl", "it must be above zero")
		}
		t.ExpireTime = s.cfg.Now().Add(req.GetTtl().AsDuration())
	}
	secret := "vedette_" + random()
	t.Hash = hash(secret)
	t, err := s.cfg.Store.CreateToken(ctx, t)
	if err != nil {
		return nil, err
	}
	return &vedettev1.CreateTokenResponse{Token: tokenView(t, a), Secret: secret}, nil
}

func (s *tokenService) ListTokens(ctx context.Context, _ *vedettev1.ListTokensRequest) (*vedettev1.ListTokensResponse, error) {
	list, err := s.cfg.Store.ListTokens(ctx, "")
	if err != nil {
		return nil, err
	}
	resp := &vedettev1.ListTokensResponse{}
	for _, t := range list {
		a, err := parseAccess(t.Spec)
		if err != nil {
			return nil, err
		}
		resp.Tokens = append(resp.Tokens, tokenView(t, a))
	}
	return resp, nil
}

func (s *tokenService) RevokeToken(ctx context.Context, req *vedettev1.RevokeTokenRequest) (*vedettev1.RevokeTokenResponse, error) {
	id, ok := strings.CutPrefix(req.GetName(), "tokens/")
	if !ok || id == "" {
		return nil, invalid("name", "%q is not of the form tokens/{token}", req.GetName())
	}
	if err := s.cfg.Store.DeleteToken(ctx, id); err != nil {
		return nil, err
	}
	return &vedettev1.RevokeTokenResponse{}, nil
}

func tokenView(t store.Token, a access) *vedettev1.Token {
	v := &vedettev1.Token{Name: "tokens/" + t.ID, User: t.User, Role: string(a.Role), CreateTime: timestamppb.New(t.CreateTime)}
	for _, id := range a.Cameras {
		v.Cameras = append(v.Cameras, cameras.Name(id))
	}
	if !t.ExpireTime.IsZero() {
		v.ExpireTime = timestamppb.New(t.ExpireTime)
	}
	return v
}
