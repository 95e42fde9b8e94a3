package api

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

type tokenService struct {
	vedettev1.UnimplementedTokenServiceServer
	cfg  *Config
	gate *gate
}

func (s *tokenService) CreateToken(ctx context.Context, req *vedettev1.CreateTokenRequest) (*vedettev1.CreateTokenResponse, error) {
	want := req.GetToken()
	a, err := accessOf("token", want.GetRole(), want.GetCameras())
	if err != nil {
		return nil, err
	}
	if want.GetUser() == "" || len(want.GetUser()) > 128 || strings.HasPrefix(want.GetUser(), "users/") {
		return nil, invalid("token.user", "it must have between 1 and 128 bytes, and not begin with users/")
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
	t, err = s.cfg.Store.CreateToken(ctx, t)
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
		if strings.HasPrefix(t.User, "users/") {
			continue // a session
		}
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
	s.gate.calls.endToken(id)
	return &vedettev1.RevokeTokenResponse{}, nil
}

func tokenView(t store.Token, a access) *vedettev1.Token {
	v := &vedettev1.Token{Name: "tokens/" + t.ID, User: t.User, Role: string(a.Role), Cameras: a.names(), CreateTime: timestamppb.New(t.CreateTime)}
	if !t.UsedTime.IsZero() {
		v.UseTime = timestamppb.New(t.UsedTime)
	}
	if !t.ExpireTime.IsZero() {
		v.ExpireTime = timestamppb.New(t.ExpireTime)
	}
	return v
}
