package modelstore

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the checksum that object stores keep
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/blob"
)

// bucket is an object store: what lies between slashes of a key is a directory.
type bucket struct{ b *blob.Bucket }

// bucketOf reads the URL behind the scheme.
func bucketOf(scheme, rest string) (func(context.Context) (source, error), error) {
	rest, query, _ := strings.Cut(rest, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	switch scheme {
	case "s3":
		rest = s3Endpoint(rest, q)
	case "as":
		var account string
		account, rest, _ = strings.Cut(rest, "/")
		q.Set("storage_account", strings.TrimSuffix(account, ".blob.core.windows.net"))
		scheme = "azblob"
	}
	name, prefix, _ := strings.Cut(rest, "/")
	if name == "" {
		return nil, errors.New("it names no bucket: write " + scheme + "://BUCKET/PREFIX")
	}
	u := url.URL{Scheme: scheme, Host: name, RawQuery: q.Encode()}
	prefix = strings.Trim(prefix, "/")
	if !blob.DefaultURLMux().ValidBucketScheme(scheme) {
		return nil, errors.New("this program was built without object stores: install the package vedette-stores")
	}
	return func(ctx context.Context) (source, error) {
		b, err := blob.OpenBucket(ctx, u.String())
		if err != nil {
			return nil, err
		}
		if prefix != "" {
			b = blob.PrefixedBucket(b, prefix+"/")
		}
		return &bucket{b}, nil
	}, nil
}

// s3Endpoint takes the server out of an address like https://host:port/bucket/prefix, which is how Triton writes S3
// servers that are not Amazon's, and puts it where the driver looks.
func s3Endpoint(rest string, q url.Values) string {
	scheme, behind, found := strings.Cut(rest, "://")
	if !found {
		host, _, _ := strings.Cut(rest, "/")
		if !strings.Contains(host, ":") {
			return rest
		}
		scheme, behind = "http", rest
	}
	host, behind, _ := strings.Cut(behind, "/")
	q.Set("endpoint", scheme+"://"+host)
	q.Set("use_path_style", "true")
	if !q.Has("response_checksum_validation") {
		// Others than Amazon send no such checksum, of which the driver would warn with every file. The MD5 of the
		// listing is compared in any case.
		q.Set("response_checksum_validation", "when_required")
	}
	return behind
}

func (b *bucket) list(ctx context.Context, model string) ([]object, error) {
	var prefix string
	if model != "" {
		prefix = model + "/"
	}
	var out []object
	for it := b.b.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			if model == "" && len(out) == 0 {
				return nil, b.isStore(ctx)
			}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		stamp := "md5:" + hex.EncodeToString(o.MD5)
		if len(o.MD5) == 0 {
			stamp = o.ModTime.UTC().String()
		}
		out = append(out, object{path: o.Key, size: o.Size, stamp: stamp, key: o})
	}
}

// isStore looks behind a listing of nothing: something that answers whatever it is asked, as the login page of a network
// does, is read as an empty bucket by some drivers.
func (b *bucket) isStore(ctx context.Context) error {
	const key = ".no-such-file"
	found, err := b.b.Exists(ctx, key)
	if err == nil && found {
		err = fmt.Errorf("it lists nothing and has a file %q: it is no object store, or something answers in its place", key)
	}
	return err
}

func (b *bucket) fetch(ctx context.Context, f object, dir string, watch func(io.Reader) io.Reader) error {
	to := filepath.Join(dir, filepath.FromSlash(f.path))
	if strings.HasSuffix(f.path, "/") { // some tools write an empty object for a directory
		return os.MkdirAll(to, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	var err error
	for range 3 { // a connection may break in a long download
		if err = b.download(ctx, f, to, watch); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (b *bucket) download(ctx context.Context, f object, to string, watch func(io.Reader) io.Reader) error {
	o, ok := f.key.(*blob.ListObject)
	if !ok {
		return errors.New("it was listed by another store")
	}
	r, err := b.b.NewReader(ctx, o.Key, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	sum := md5.New() //nolint:gosec // as above
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(watch(r), o.Size+1))
	switch err = errors.Join(err, w.Close()); {
	case err != nil:
		return err
	case n != o.Size:
		return fmt.Errorf("%d bytes came, the store listed %d", n, o.Size)
	case len(o.MD5) > 0 && !bytes.Equal(sum.Sum(nil), o.MD5):
		return fmt.Errorf("its checksum is %x, the store's is %x", sum.Sum(nil), o.MD5)
	}
	return nil
}

func (b *bucket) close() error { return b.b.Close() }
