package repository

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer"
)

// With Config.Namespaces the same name may stand in several repositories: a
// model is told from others by its identifier, which is the repository and the
// name. Without, the name is the identifier. Clients know names only; one that
// several models have is of use to ensembles alone, whose steps say which
// repository they mean or find the model in their own.

const separator = "::"

// identify makes an identifier.
func (r *Repository) identify(namespace, name string) string {
	if !r.cfg.Namespaces {
		return name
	}
	return namespace + separator + name
}

// base is the name in an identifier.
func (r *Repository) base(id string) string {
	if r.cfg.Namespaces {
		if i := strings.LastIndex(id, separator); i >= 0 {
			return id[i+len(separator):]
		}
	}
	return id
}

// namespace is the repository in an identifier; empty without namespaces.
func (r *Repository) namespace(id string) string {
	return strings.TrimSuffix(strings.TrimSuffix(id, r.base(id)), separator)
}

// resolve finds the model that a client means by a name.
func (r *Repository) resolve(ctx context.Context, name string) (id string, err error) {
	if !r.cfg.Namespaces {
		return name, nil
	}
	ids := r.known(ctx, name)
	switch len(ids) {
	case 0:
		return name, nil // whoever looks for it says that it is not there
	case 1:
		return ids[0], nil
	}
	return "", ambiguous(name, len(ids))
}

// known are the identifiers of a name, loaded or in a repository.
func (r *Repository) known(ctx context.Context, name string) []string {
	var ids []string
	for _, m := range r.sorted() {
		if r.base(m.name) == name {
			ids = append(ids, m.name)
		}
	}
	for _, root := range r.roots {
		if _, err := root.print(ctx, name); err == nil {
			ids = append(ids, r.identify(root.String(), name))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func ambiguous(name string, n int) error {
	return infer.Errorf(infer.InvalidArgument,
		"There are %d identifiers of model '%s' in global map, model namespace must be provided to resolve ambiguity.", n, name)
}

// part is the model a step of an ensemble means: the one in the namespace it
// gives, else in the ensemble's own, else the only one there is.
func (r *Repository) part(ctx context.Context, ensemble string, s *inference.ModelEnsembling_Step) string {
	name := s.GetModelName()
	if !r.cfg.Namespaces {
		return name
	}
	if ns := s.GetModelNamespace(); ns != "" {
		return r.identify(ns, name)
	}
	own := r.identify(r.namespace(ensemble), name)
	if ids := r.known(ctx, name); len(ids) == 1 && !slices.Contains(ids, own) {
		return ids[0]
	}
	return own
}

// parts are the models an ensemble is made of.
func (r *Repository) parts(ctx context.Context, ensemble string, cfg *inference.ModelConfig) []string {
	var out []string
	for _, s := range cfg.GetEnsembleScheduling().GetStep() {
		out = append(out, r.part(ctx, ensemble, s))
	}
	return out
}

// spelled is an ensemble's configuration with identifiers for names.
func (r *Repository) spelled(ctx context.Context, ensemble string, cfg *inference.ModelConfig) *inference.ModelConfig {
	if !r.cfg.Namespaces {
		return cfg
	}
	out, _ := proto.Clone(cfg).(*inference.ModelConfig)
	for _, s := range out.GetEnsembleScheduling().GetStep() {
		s.ModelName = r.part(ctx, ensemble, s)
	}
	return out
}
