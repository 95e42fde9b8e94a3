package fleet

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

// StateMediaType is the type of the layer of an OCI artifact that holds a state.
const StateMediaType = "application/vnd.vedette.state.v1+yaml"

// SignatureAnnotation of that layer is the signature of its content by Ed25519, in base64.
const SignatureAnnotation = "io.vedette.signature"

// source is where states come from.
type source interface {
	// newest names what is newest; another name means that something else is.
	newest(ctx context.Context) (digest string, err error)
	// fetch returns what newest named, whole, with its signature.
	fetch(ctx context.Context, digest string) (text, signature []byte, err error)
}

func newSource(address string) (source, error) {
	rest, ok := strings.CutPrefix(address, "oci://")
	if !ok {
		return stateFile(strings.TrimPrefix(address, "file://")), nil
	}
	repo, err := repository(rest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &artifact{repo: repo, tag: repo.Reference.ReferenceOrDefault()}, nil
}

// repository is a repository of a registry; credentials are those of docker login and its like.
func repository(reference string) (*remote.Repository, error) {
	repo, err := remote.NewRepository(reference)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(repo.Reference.Registry)
	if err != nil {
		host = repo.Reference.Registry
	}
	ip := net.ParseIP(host)
	repo.PlainHTTP = host == "localhost" || (ip != nil && ip.IsLoopback())
	client := &auth.Client{Client: http.DefaultClient, Cache: auth.NewCache()}
	if store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil {
		client.Credential = credentials.Credential(store)
	}
	repo.Client = client
	return repo, nil
}

// stateFile is a file that somebody replaces; its signature is in FILE.sig, in base64.
type stateFile string

func (f stateFile) newest(context.Context) (string, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return "", err
	}
	return digestOf(text), nil
}

func (f stateFile) fetch(_ context.Context, digest string) (text, signature []byte, err error) {
	if text, err = os.ReadFile(string(f)); err != nil {
		return nil, nil, err
	}
	if digestOf(text) != digest {
		return nil, nil, errors.New("the file was replaced while it was read; it is looked at again")
	}
	encoded, err := os.ReadFile(string(f) + ".sig")
	if errors.Is(err, fs.ErrNotExist) {
		return text, nil, nil
	}
	if err == nil {
		signature, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	}
	return text, signature, err
}

// artifact is a tag in a registry.
type artifact struct {
	repo *remote.Repository
	tag  string
}

func (a *artifact) newest(ctx context.Context) (string, error) {
	d, err := a.repo.Resolve(ctx, a.tag)
	return d.Digest.String(), err
}

func (a *artifact) fetch(ctx context.Context, digest string) (text, signature []byte, err error) {
	_, raw, err := oras.FetchBytes(ctx, a.repo, digest, oras.FetchBytesOptions{MaxBytes: 4 << 20})
	if err != nil {
		return nil, nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, nil, fmt.Errorf("its manifest is none: %w", err)
	}
	for _, layer := range m.Layers {
		if layer.MediaType != StateMediaType {
			continue
		}
		if layer.Size > maxState {
			return nil, nil, fmt.Errorf("it has %d bytes, at most %d", layer.Size, maxState)
		}
		// What does not have the digest of the manifest is an error here.
		if text, err = content.FetchAll(ctx, a.repo, layer); err != nil {
			return nil, nil, err
		}
		signature, err = base64.StdEncoding.DecodeString(layer.Annotations[SignatureAnnotation])
		return text, signature, err
	}
	return nil, nil, fmt.Errorf("it has no layer of type %s", StateMediaType)
}

// Push puts a state into a registry under oci://HOST/REPOSITORY:TAG and returns its digest; key, when it is not nil,
// signs it. A state that cannot be read is refused.
func Push(ctx context.Context, address string, text []byte, key ed25519.PrivateKey) (digest string, err error) {
	if _, err := Read(bytes.NewReader(text)); err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(address, "oci://")
	if !ok {
		return "", fmt.Errorf("%s is not of the form oci://HOST/REPOSITORY:TAG", address)
	}
	repo, err := repository(rest)
	if err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	layer := content.NewDescriptorFromBytes(StateMediaType, text)
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: inPlaceFile}
	if key != nil {
		layer.Annotations[SignatureAnnotation] = base64.StdEncoding.EncodeToString(ed25519.Sign(key, text))
	}
	if err := repo.Push(ctx, layer, bytes.NewReader(text)); err != nil {
		return "", fmt.Errorf("push %s: %w", address, err)
	}
	manifest, err := oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, "application/vnd.vedette.state.v1", oras.PackManifestOptions{
		Layers: []ocispec.Descriptor{layer}, ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: time.Now().UTC().Format(time.RFC3339)},
	})
	if err == nil {
		err = repo.Tag(ctx, manifest, repo.Reference.ReferenceOrDefault())
	}
	if err != nil {
		return "", fmt.Errorf("push %s: %w", address, err)
	}
	return manifest.Digest.String(), nil
}

// ReadPublicKey reads an Ed25519 key as openssl pkey -pubout writes it.
func ReadPublicKey(path string) (ed25519.PublicKey, error) {
	der, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if k, ok := key.(ed25519.PublicKey); ok && err == nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s holds no Ed25519 public key (openssl pkey -in KEY -pubout makes one)", path)
}

// ReadPrivateKey reads an Ed25519 key as openssl genpkey -algorithm ed25519 writes it.
func ReadPrivateKey(path string) (ed25519.PrivateKey, error) {
	der, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if k, ok := key.(ed25519.PrivateKey); ok && err == nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s holds no Ed25519 private key (openssl genpkey -algorithm ed25519 makes one)", path)
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM file", filepath.Base(path))
	}
	return block.Bytes, nil
}

// ReportTo returns a Report that posts the status as JSON to a hub: PUT URL/boxes/ID. The token, when there is one, goes
// as a bearer token.
func ReportTo(hub, token string) func(ctx context.Context, s Status) error {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context, s Status) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(hub, "/")+"/boxes/"+url.PathEscape(s.ID), strings.NewReader(s.String()))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s: %s", resp.Status, text)
		}
		return nil
	}
}
