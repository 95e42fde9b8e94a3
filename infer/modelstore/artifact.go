package modelstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// artifact is a model repository in an OCI registry: each layer is a file or a directory and carries its path in the
// annotation org.opencontainers.image.title, as "oras push HOST/REPOSITORY:TAG detector tracker" writes it.
type artifact struct {
	repo *remote.Repository
	ref  string
}

// artifactOf reads the URL behind the scheme.
func artifactOf(rest string) (func(context.Context) (source, error), error) {
	rest, query, _ := strings.Cut(rest, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	ref, err := registry.ParseReference(rest)
	if err != nil {
		return nil, err
	}
	if ref.Repository == "" {
		return nil, errors.New("it names no repository: write oci://HOST/REPOSITORY:TAG")
	}
	repo, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, err
	}
	repo.PlainHTTP = q.Get("plain-http") == "true" || loopback(ref.Registry)
	return func(context.Context) (source, error) {
		logins, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the logins of docker: %w", err)
		}
		repo.Client = &auth.Client{Client: auth.DefaultClient.Client, Cache: auth.NewCache(), Credential: credentials.Credential(logins)}
		return &artifact{repo, ref.ReferenceOrDefault()}, nil
	}, nil
}

// loopback tells registries on this machine, which are spoken to without TLS as docker does.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}

func (a *artifact) list(ctx context.Context, model string) ([]object, error) {
	desc, err := a.repo.Resolve(ctx, a.ref)
	if err != nil {
		return nil, err
	}
	if desc.MediaType != ocispec.MediaTypeImageManifest {
		return nil, fmt.Errorf("%s is of type %q: a model repository is one manifest (%s)", a.ref, desc.MediaType, ocispec.MediaTypeImageManifest)
	}
	text, err := content.FetchAll(ctx, a.repo, desc)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", desc.Digest, err)
	}
	var out []object
	for _, l := range m.Layers {
		title := l.Annotations[ocispec.AnnotationTitle]
		if title == "" {
			continue
		}
		e := object{path: path.Clean(title), size: l.Size, stamp: l.Digest.String(), tree: l.Annotations[file.AnnotationUnpack] == "true", key: l}
		if model == "" || e.model() == model {
			out = append(out, e)
		}
	}
	if len(out) == 0 && model == "" {
		return nil, fmt.Errorf("no layer of %s has a title: push models by their directories (oras push %s DIR...)", a.ref, a.repo.Reference.Registry+"/"+a.repo.Reference.Repository)
	}
	return out, nil
}

// fetch unpacks what was packed; the library compares every layer with its digest.
func (a *artifact) fetch(ctx context.Context, e object, dir string, watch func(io.Reader) io.Reader) error {
	desc, ok := e.key.(ocispec.Descriptor)
	if !ok {
		return errors.New("it was listed by another store")
	}
	to, err := file.New(dir)
	if err != nil {
		return err
	}
	r, err := a.repo.Fetch(ctx, desc)
	if err != nil {
		return errors.Join(err, to.Close())
	}
	if e.tree {
		err = pushTar(ctx, to, desc, watch(r), dir)
	} else {
		err = to.Push(ctx, desc, watch(r))
	}
	return errors.Join(err, r.Close(), to.Close())
}

func (a *artifact) close() error { return nil }
