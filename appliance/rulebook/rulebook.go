// Package rulebook keeps the zones and lines that operators draw, and has them watched: it is the RuleService, and it
// turns what the pipeline sees into events.
package rulebook

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
	"github.com/vedette/vedette/appliance/rules"
	"github.com/vedette/vedette/store"
)

// Config is how a Book is made. Store and Cameras are required.
type Config struct {
	Store   *store.Store
	Cameras *cameras.Registry
	// Logger, nil: discarded.
	Logger *slog.Logger
	// Now, nil: time.Now.
	Now func() time.Time
}

// Book knows every zone and line. Safe for concurrent use once Load has returned.
type Book struct {
	vedettev1.UnimplementedRuleServiceServer
	cfg Config

	changing sync.Mutex // one change at a time

	mu       sync.Mutex // guards what follows
	entries  map[string]*entry
	revision map[string]uint64 // of a camera's rules; grows with every change of them

	watchers watchers
}

// rule is a Zone or a Line.
type rule interface {
	proto.Message
	GetName() string
	GetUid() string
	GetEtag() string
	GetDisplayName() string
	GetAnchor() vedettev1.Anchor
	GetClasses() []string
	GetMinScore() float32
	GetSchedule() *vedettev1.Schedule
	GetDisabled() bool
	GetCreateTime() *timestamppb.Timestamp
}

// entry is one rule; its proto is never changed once it is here.
type entry struct {
	rule rule
	zone *rules.Zone // one of them
	line *rules.Line
}

// New returns an empty book.
func New(cfg Config) *Book {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Book{cfg: cfg, entries: map[string]*entry{}, revision: map[string]uint64{}, watchers: watchers{of: map[string]*watcher{}}}
}

// Load reads the rules from the store; call it once, before anything else. A rule that cannot be read is left out, and
// logged.
func (b *Book) Load(ctx context.Context) error {
	for token := ""; ; {
		page, next, err := b.cfg.Store.List(ctx, store.Rules, "", 1000, token)
		if err != nil {
			return fmt.Errorf("load the rules: %w", err)
		}
		for i := range page {
			e, err := fromResource(&page[i])
			if err != nil {
				b.cfg.Logger.Error("rule cannot be loaded as it was saved", slog.String("rule", page[i].Name), slog.Any("err", err))
				continue
			}
			b.put(e)
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// Forget removes the rules of cameras that are no longer registered.
func (b *Book) Forget(ctx context.Context) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	names := slices.Sorted(maps.Keys(b.entries))
	b.mu.Unlock()
	for _, name := range names {
		camera, _, _, err := parseName(name)
		if err != nil {
			return err
		}
		if _, err := b.cfg.Cameras.Get(cameras.Name(camera)); err == nil {
			continue
		}
		if err := b.cfg.Store.Delete(ctx, store.Rules, resourceName(name), ""); err != nil {
			return fmt.Errorf("remove %s with its camera: %w", name, err)
		}
		b.drop(name)
	}
	return nil
}

func (b *Book) create(ctx context.Context, parent, id string, r rule, validateOnly bool) (rule, error) {
	kind := kindOf(r)
	camera, err := cameras.ID(parent)
	if err != nil {
		return nil, invalid("parent", "%q is not of the form cameras/{camera}", parent)
	}
	if id == "" {
		id = kind + "-" + randomID()
	}
	name := parent + "/" + kind + "s/" + id
	r = clean(r)
	setName(r, name)
	if err := validate(kind, id, r); err != nil {
		return nil, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	if _, err := b.cfg.Cameras.Get(parent); err != nil {
		return nil, err
	}
	if b.get(name) != nil {
		return nil, fmt.Errorf("%s: %w", name, store.ErrExists)
	}
	if n := b.count(camera); n >= maxRules {
		return nil, invalid("parent", "%s has %d zones and lines already, and may have no more", parent, n)
	}
	if validateOnly {
		return r, nil
	}
	res, err := toResource(r)
	if err != nil {
		return nil, err
	}
	if res, err = b.cfg.Store.Create(ctx, store.Rules, res); err != nil {
		return nil, fmt.Errorf("add %s: %w", name, err)
	}
	return b.commit(&res)
}

func (b *Book) read(kind, name string) (rule, error) {
	if _, k, _, err := parseName(name); err != nil || k != kind {
		return nil, invalid("name", "%q is not of the form cameras/{camera}/%ss/{%s}", name, kind, kind)
	}
	e := b.get(name)
	if e == nil {
		return nil, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	return proto.CloneOf(e.rule), nil
}

func (b *Book) update(ctx context.Context, r rule, paths []string, validateOnly, allowMissing bool) (rule, error) {
	kind, name := kindOf(r), r.GetName()
	camera, k, id, err := parseName(name)
	if err != nil || k != kind {
		return nil, invalid(kind+".name", "%q is not of the form cameras/{camera}/%ss/{%s}", name, kind, kind)
	}
	b.changing.Lock()
	old := b.get(name)
	if old == nil && allowMissing {
		b.changing.Unlock()
		return b.create(ctx, cameras.Name(camera), id, r, validateOnly)
	}
	defer b.changing.Unlock()
	if old == nil {
		return nil, fmt.Errorf("%s: %w", name, store.ErrNotFound)
	}
	if r.GetEtag() != "" && r.GetEtag() != old.rule.GetEtag() {
		return nil, &store.ConflictError{Resource: name, Etag: old.rule.GetEtag()}
	}
	want := proto.CloneOf(old.rule)
	if err := merge(want, r, paths); err != nil {
		return nil, err
	}
	if err := validate(kind, id, want); err != nil {
		return nil, err
	}
	if validateOnly {
		return want, nil
	}
	res, err := toResource(want)
	if err != nil {
		return nil, err
	}
	res.Etag = old.rule.GetEtag()
	if res, err = b.cfg.Store.Update(ctx, store.Rules, res); err != nil {
		return nil, fmt.Errorf("change %s: %w", name, err)
	}
	return b.commit(&res)
}

func (b *Book) remove(ctx context.Context, kind, name, etag string, validateOnly bool) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	r, err := b.read(kind, name)
	if err != nil {
		return err
	}
	if etag != "" && etag != r.GetEtag() {
		return &store.ConflictError{Resource: name, Etag: r.GetEtag()}
	}
	if validateOnly {
		return nil
	}
	if err := b.cfg.Store.Delete(ctx, store.Rules, resourceName(name), etag); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	b.drop(name)
	return nil
}

// list returns rules of one kind by name, from the first after the name given.
func (b *Book) list(ctx context.Context, kind, parent, after string, n int) (list []rule, more bool, err error) {
	camera, err := cameras.ID(parent)
	if err != nil {
		return nil, false, invalid("parent", "%q is not of the form cameras/{camera}", parent)
	}
	if camera != "-" {
		if _, err := b.cfg.Cameras.Get(parent); err != nil {
			return nil, false, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.entries)) {
		c, k, _, err := parseName(name)
		if err != nil || k != kind || name <= after || (camera != "-" && c != camera) || !cameras.InScope(ctx, c) {
			continue
		}
		if len(list) == n {
			return list, true, nil
		}
		list = append(list, proto.CloneOf(b.entries[name].rule))
	}
	return list, false, nil
}

// set is what is watched of a camera, and its revision.
func (b *Book) set(camera string) (rules.Set, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var set rules.Set
	prefix := cameras.Name(camera) + "/"
	for _, name := range slices.Sorted(maps.Keys(b.entries)) {
		e := b.entries[name]
		switch {
		case !strings.HasPrefix(name, prefix) || e.rule.GetDisabled():
		case e.zone != nil:
			set.Zones = append(set.Zones, *e.zone)
		default:
			set.Lines = append(set.Lines, *e.line)
		}
	}
	return set, b.revision[camera]
}

func (b *Book) revisionOf(camera string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revision[camera]
}

func (b *Book) get(name string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[name]
}

func (b *Book) count(camera string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.entries {
		if strings.HasPrefix(name, cameras.Name(camera)+"/") {
			n++
		}
	}
	return n
}

func (b *Book) commit(res *store.Resource) (rule, error) {
	e, err := fromResource(res)
	if err != nil {
		return nil, err
	}
	b.put(e)
	return proto.CloneOf(e.rule), nil
}

func (b *Book) put(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.rule.GetName()] = e
	b.changedLocked(e.rule.GetName())
}

func (b *Book) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, name)
	b.changedLocked(name)
}

func (b *Book) changedLocked(name string) {
	if camera, _, _, err := parseName(name); err == nil {
		b.revision[camera]++
	}
}
