package rulebook

import (
	"context"
	"encoding/base64"
	"strings"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

// as gives a rule its own type back.
func as[R rule](r rule, err error) (R, error) {
	v, _ := r.(R) // nil with an error
	return v, err
}

// CreateZone implements vedettev1.RuleServiceServer.
func (b *Book) CreateZone(ctx context.Context, req *vedettev1.CreateZoneRequest) (*vedettev1.Zone, error) {
	if req.GetZone() == nil {
		return nil, invalid("zone", "missing")
	}
	return as[*vedettev1.Zone](b.create(ctx, req.GetParent(), req.GetZoneId(), req.GetZone(), req.GetValidateOnly()))
}

// GetZone implements vedettev1.RuleServiceServer.
func (b *Book) GetZone(_ context.Context, req *vedettev1.GetZoneRequest) (*vedettev1.Zone, error) {
	return as[*vedettev1.Zone](b.read(zone, req.GetName()))
}

// ListZones implements vedettev1.RuleServiceServer.
func (b *Book) ListZones(ctx context.Context, req *vedettev1.ListZonesRequest) (*vedettev1.ListZonesResponse, error) {
	list, next, err := page[*vedettev1.Zone](ctx, b, zone, req.GetParent(), req.GetPageSize(), req.GetPageToken())
	return &vedettev1.ListZonesResponse{Zones: list, NextPageToken: next}, err
}

// UpdateZone implements vedettev1.RuleServiceServer.
func (b *Book) UpdateZone(ctx context.Context, req *vedettev1.UpdateZoneRequest) (*vedettev1.Zone, error) {
	if req.GetZone() == nil {
		return nil, invalid("zone", "missing")
	}
	return as[*vedettev1.Zone](b.update(ctx, req.GetZone(), req.GetUpdateMask().GetPaths(), req.GetValidateOnly(), req.GetAllowMissing()))
}

// DeleteZone implements vedettev1.RuleServiceServer.
func (b *Book) DeleteZone(ctx context.Context, req *vedettev1.DeleteZoneRequest) (*vedettev1.DeleteZoneResponse, error) {
	return &vedettev1.DeleteZoneResponse{}, b.remove(ctx, zone, req.GetName(), req.GetEtag(), req.GetValidateOnly())
}

// CreateLine implements vedettev1.RuleServiceServer.
func (b *Book) CreateLine(ctx context.Context, req *vedettev1.CreateLineRequest) (*vedettev1.Line, error) {
	if req.GetLine() == nil {
		return nil, invalid("line", "missing")
	}
	return as[*vedettev1.Line](b.create(ctx, req.GetParent(), req.GetLineId(), req.GetLine(), req.GetValidateOnly()))
}

// GetLine implements vedettev1.RuleServiceServer.
func (b *Book) GetLine(_ context.Context, req *vedettev1.GetLineRequest) (*vedettev1.Line, error) {
	return as[*vedettev1.Line](b.read(line, req.GetName()))
}

// ListLines implements vedettev1.RuleServiceServer.
func (b *Book) ListLines(ctx context.Context, req *vedettev1.ListLinesRequest) (*vedettev1.ListLinesResponse, error) {
	list, next, err := page[*vedettev1.Line](ctx, b, line, req.GetParent(), req.GetPageSize(), req.GetPageToken())
	return &vedettev1.ListLinesResponse{Lines: list, NextPageToken: next}, err
}

// UpdateLine implements vedettev1.RuleServiceServer.
func (b *Book) UpdateLine(ctx context.Context, req *vedettev1.UpdateLineRequest) (*vedettev1.Line, error) {
	if req.GetLine() == nil {
		return nil, invalid("line", "missing")
	}
	return as[*vedettev1.Line](b.update(ctx, req.GetLine(), req.GetUpdateMask().GetPaths(), req.GetValidateOnly(), req.GetAllowMissing()))
}

// DeleteLine implements vedettev1.RuleServiceServer.
func (b *Book) DeleteLine(ctx context.Context, req *vedettev1.DeleteLineRequest) (*vedettev1.DeleteLineResponse, error) {
	return &vedettev1.DeleteLineResponse{}, b.remove(ctx, line, req.GetName(), req.GetEtag(), req.GetValidateOnly())
}

func page[R rule](ctx context.Context, b *Book, kind, parent string, asked int32, token string) (list []R, next string, err error) {
	size := 50
	switch {
	case asked < 0:
		return nil, "", invalid("page_size", "%d is negative", asked)
	case asked > 0:
		size = min(int(asked), 1000)
	}
	prefix := kind + " " + parent + " after:" // a token belongs to its list
	after := ""
	if token != "" {
		text, err := base64.RawURLEncoding.DecodeString(token)
		rest, ok := strings.CutPrefix(string(text), prefix)
		if err != nil || !ok {
			return nil, "", store.ErrPageToken
		}
		after = rest
	}
	found, more, err := b.list(ctx, kind, parent, after, size)
	for _, r := range found {
		v, err := as[R](r, nil)
		if err != nil {
			return nil, "", err
		}
		list = append(list, v)
	}
	if more {
		next = base64.RawURLEncoding.EncodeToString([]byte(prefix + found[len(found)-1].GetName()))
	}
	return list, next, err
}
