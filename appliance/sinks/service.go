package sinks

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/store"
)

const prefix = "sinks/"

// CreateSink implements vedettev1.SinkServiceServer.
func (s *Sinks) CreateSink(ctx context.Context, req *vedettev1.CreateSinkRequest) (*vedettev1.Sink, error) {
	if req.GetSink() == nil {
		return nil, invalid("sink", "missing")
	}
	name := req.GetSinkId()
	if name == "" {
		b := make([]byte, 5)
		_, _ = rand.Read(b) // never fails
		name = "sink-" + strings.ToLower(base32.HexEncoding.EncodeToString(b))
	}
	want := clean(req.GetSink())
	want.Name = prefix + name
	if err := validate(name, want, req.GetSink().GetSecret()); err != nil {
		return nil, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.get(name) != nil {
		return nil, fmt.Errorf("%s: %w", want.GetName(), store.ErrExists)
	}
	res, err := s.toResource(want, req.GetSink().GetSecret())
	if err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		want.SecretSet = req.GetSink().GetSecret() != ""
		return want, nil
	}
	start := int64(0)
	if !req.GetFromBeginning() {
		if start, err = s.newest(ctx); err != nil {
			return nil, err
		}
	}
	// The cursor comes first: retention must wait for the sink from its first moment on.
	if err := s.cfg.Store.DeleteSinkCursor(ctx, name); err != nil {
		return nil, err
	}
	if err := s.cfg.Store.SetSinkCursor(ctx, name, start); err != nil {
		return nil, err
	}
	if res, err = s.cfg.Store.Create(ctx, store.Sinks, res); err != nil {
		return nil, fmt.Errorf("add %s: %w", want.GetName(), err)
	}
	return s.commit(&res)
}

// newest is the number of the newest event.
func (s *Sinks) newest(ctx context.Context) (seq int64, err error) {
	late, _, err := s.cfg.Store.ListEvents(ctx, store.Query{PageSize: 1})
	for err == nil && len(late) > 0 {
		seq = late[len(late)-1].Seq
		late, err = s.cfg.Store.EventsAfter(ctx, seq, 1000)
	}
	return seq, err
}

// GetSink implements vedettev1.SinkServiceServer.
func (s *Sinks) GetSink(_ context.Context, req *vedettev1.GetSinkRequest) (*vedettev1.Sink, error) {
	e, err := s.find("name", req.GetName())
	if err != nil {
		return nil, err
	}
	return e.view(), nil
}

// ListSinks implements vedettev1.SinkServiceServer.
func (s *Sinks) ListSinks(_ context.Context, req *vedettev1.ListSinksRequest) (*vedettev1.ListSinksResponse, error) {
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	after := ""
	if t := req.GetPageToken(); t != "" {
		text, err := base64.RawURLEncoding.DecodeString(t)
		rest, ok := strings.CutPrefix(string(text), "sinks after:")
		if err != nil || !ok {
			return nil, store.ErrPageToken
		}
		after = rest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &vedettev1.ListSinksResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		if name <= after {
			continue
		}
		if len(resp.GetSinks()) == size {
			resp.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte("sinks after:" + id(resp.GetSinks()[size-1])))
			break
		}
		resp.Sinks = append(resp.Sinks, s.entries[name].view())
	}
	return resp, nil
}

func pageSize(n int32) (int, error) {
	switch {
	case n < 0:
		return 0, invalid("page_size", "%d is negative", n)
	case n == 0:
		return 50, nil
	}
	return min(int(n), 1000), nil
}

// UpdateSink implements vedettev1.SinkServiceServer.
func (s *Sinks) UpdateSink(ctx context.Context, req *vedettev1.UpdateSinkRequest) (*vedettev1.Sink, error) {
	if req.GetSink() == nil {
		return nil, invalid("sink", "missing")
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	old, err := s.find("sink.name", req.GetSink().GetName())
	if err != nil {
		return nil, err
	}
	if etag := req.GetSink().GetEtag(); etag != "" && etag != old.sink.GetEtag() {
		return nil, &store.ConflictError{Resource: old.sink.GetName(), Etag: old.sink.GetEtag()}
	}
	want, secret := proto.CloneOf(old.sink), old.secret
	if err := merge(want, &secret, req.GetSink(), req.GetUpdateMask().GetPaths()); err != nil {
		return nil, err
	}
	if err := validate(id(want), want, secret); err != nil {
		return nil, err
	}
	res, err := s.toResource(want, secret)
	if err != nil {
		return nil, err
	}
	if req.GetValidateOnly() {
		want.SecretSet = secret != ""
		return want, nil
	}
	res.Etag = old.sink.GetEtag()
	if res, err = s.cfg.Store.Update(ctx, store.Sinks, res); err != nil {
		return nil, fmt.Errorf("change %s: %w", want.GetName(), err)
	}
	return s.commit(&res)
}

// DeleteSink implements vedettev1.SinkServiceServer.
func (s *Sinks) DeleteSink(ctx context.Context, req *vedettev1.DeleteSinkRequest) (*vedettev1.DeleteSinkResponse, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	e, err := s.find("name", req.GetName())
	if err != nil {
		return nil, err
	}
	if etag := req.GetEtag(); etag != "" && etag != e.sink.GetEtag() {
		return nil, &store.ConflictError{Resource: req.GetName(), Etag: e.sink.GetEtag()}
	}
	if req.GetValidateOnly() {
		return &vedettev1.DeleteSinkResponse{}, nil
	}
	if err := s.cfg.Store.Delete(ctx, store.Sinks, id(e.sink), req.GetEtag()); err != nil {
		return nil, fmt.Errorf("remove %s: %w", req.GetName(), err)
	}
	s.mu.Lock()
	delete(s.entries, id(e.sink))
	s.mu.Unlock()
	s.halt(e) // else it might write its cursor again
	if err := s.cfg.Store.DeleteSinkCursor(ctx, id(e.sink)); err != nil {
		return nil, err
	}
	return &vedettev1.DeleteSinkResponse{}, nil
}

func (s *Sinks) find(field, name string) (*entry, error) {
	sink, ok := strings.CutPrefix(name, prefix)
	if !ok || sink == "" || strings.Contains(sink, "/") {
		return nil, invalid(field, "%q is not of the form sinks/{sink}", name)
	}
	e := s.get(sink)
	if e == nil {
		return nil, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return e, nil
}

func (s *Sinks) commit(res *store.Resource) (*vedettev1.Sink, error) {
	e, err := s.fromResource(res)
	if err != nil {
		return nil, err
	}
	s.put(e)
	return e.view(), nil
}

// clean copies what an operator decides of a sink, the secret aside.
func clean(sink *vedettev1.Sink) *vedettev1.Sink {
	c := proto.CloneOf(sink)
	c.Uid, c.Etag, c.Secret, c.SecretSet, c.CreateTime, c.UpdateTime, c.Status = "", "", "", false, nil, nil, nil
	return c
}

// merge puts the fields of from that paths names into want and secret; no paths: every field that is set.
func merge(want *vedettev1.Sink, secret *string, from *vedettev1.Sink, paths []string) error {
	to, src := want.ProtoReflect(), from.ProtoReflect()
	fixed := []string{"name", "uid", "etag", "secret", "secret_set", "create_time", "update_time", "status"}
	if slices.Equal(paths, []string{"*"}) { // the whole sink; its secret stays unless there is another
		fields := to.Descriptor().Fields()
		for i := range fields.Len() {
			if fd := fields.Get(i); !slices.Contains(fixed, string(fd.Name())) {
				to.Clear(fd)
			}
		}
		paths = nil
	}
	if len(paths) == 0 {
		src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if !slices.Contains(fixed, string(fd.Name())) {
				to.Set(fd, v)
			}
			return true
		})
		if from.GetSecret() != "" {
			*secret = from.GetSecret()
		}
		return nil
	}
	for _, p := range paths {
		if p == "secret" {
			*secret = from.GetSecret()
			continue
		}
		fd := to.Descriptor().Fields().ByName(protoreflect.Name(p))
		if fd == nil || slices.Contains(fixed, p) {
			return invalid("update_mask", "%q is no field of a sink that can be changed", p)
		}
		if src.Has(fd) {
			to.Set(fd, src.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
	return nil
}

func (s *Sinks) toResource(sink *vedettev1.Sink, secret string) (store.Resource, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(clean(sink))
	if err != nil {
		return store.Resource{}, fmt.Errorf("encode %s: %w", sink.GetName(), err)
	}
	res := store.Resource{Name: id(sink), DisplayName: sink.GetDisplayName(), Spec: spec, Secret: []byte{}, Enabled: !sink.GetDisabled()}
	if secret != "" {
		if res.Secret, err = s.cfg.Secrets.Seal(secret); err != nil {
			return store.Resource{}, fmt.Errorf("%s: %w", sink.GetName(), err)
		}
	}
	return res, nil
}

// fromResource reads a row. With an error, the entry may still be usable.
func (s *Sinks) fromResource(res *store.Resource) (*entry, error) {
	sink := &vedettev1.Sink{}
	if err := proto.Unmarshal(res.Spec, sink); err != nil {
		return nil, fmt.Errorf("decode sink %q: %w", res.Name, err)
	}
	sink.Name, sink.Uid, sink.Etag = prefix+res.Name, res.UID, res.Etag
	sink.CreateTime, sink.UpdateTime = timestamppb.New(res.CreateTime), timestamppb.New(res.UpdateTime)
	e := &entry{sink: sink, status: newStatus()}
	if len(res.Secret) == 0 {
		return e, nil
	}
	sink.SecretSet = true
	var err error
	if e.secret, err = s.cfg.Secrets.Unseal(res.Secret); err != nil {
		return e, fmt.Errorf("secret of sink %q: %w", res.Name, err)
	}
	return e, nil
}
