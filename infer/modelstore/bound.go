package modelstore

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"oras.land/oras-go/v2/content/file"
)

// What a packed directory may become. Weights hardly shrink when they are packed, so that nobody's model comes near.
const (
	packedEntries = 10_000
	packedRatio   = 100
	packedFree    = 1 << 30 // bytes that no ratio is asked of
)

// packedError says that a packed directory is not unpacked.
type packedError string

func (e packedError) Error() string { return string(e) }

// pushTar has a packed directory unpacked below dir unless there is too much in it. The library unpacks what it has read to
// its end, so it is enough that reading fails before.
func pushTar(ctx context.Context, to *file.Store, desc ocispec.Descriptor, packed io.Reader, dir string) error {
	limit := int64(packedFree)
	if desc.Size < (1<<62)/packedRatio {
		limit += desc.Size * packedRatio
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	limit = min(limit, int64(min(fs.Bavail*uint64(fs.Bsize), 1<<62)))
	from, pipe := io.Pipe()
	found := make(chan error, 1)
	go func() {
		err := scanTar(from, limit)
		if err == nil {
			_, err = io.Copy(io.Discard, from) // padding
		}
		_ = from.CloseWithError(err) // what is read next fails with it
		found <- err
	}()
	err := to.Push(ctx, desc, &endReader{io.TeeReader(packed, pipe), func() error {
		_ = pipe.Close() // cannot fail
		err := <-found
		found <- err
		return err
	}})
	_ = pipe.Close() // cannot fail
	if bad := <-found; errors.As(bad, new(packedError)) {
		return bad
	}
	return err
}

// endReader asks at the end whether it is one.
type endReader struct {
	r   io.Reader
	end func() error
}

// Read implements io.Reader.
func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if errors.Is(err, io.EOF) {
		if bad := e.end(); bad != nil {
			err = bad
		}
	}
	return n, err
}

func scanTar(packed io.Reader, limit int64) error {
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	total := int64(0)
	files := tar.NewReader(plain)
	for n := 1; ; n++ {
		h, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > packedEntries:
			return packedError(fmt.Sprintf("more than %d files are packed in it", packedEntries))
		case h.Size > limit-total:
			return packedError(fmt.Sprintf("it unpacks to more than the %d bytes that there may be", limit))
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeLink, tar.TypeSymlink:
		default:
			return packedError(fmt.Sprintf("%q in it is no file and no directory (type %q)", h.Name, h.Typeflag))
		}
		total += h.Size
	}
}
