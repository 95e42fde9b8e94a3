package v2grpc

import (
	"compress/zlib"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
)

// deflate is the encoding "deflate" of gRPC's messages, the zlib format of RFC 1950, which grpc-go leaves out and clients
// in other languages have beside gzip.
type deflate struct{ writers sync.Pool }

func init() { //nolint:gochecknoinits // grpc-go takes encodings at no other time
	encoding.RegisterCompressor(&deflate{writers: sync.Pool{New: func() any { return zlib.NewWriter(nil) }}})
}

// Name is what calls ask for.
func (*deflate) Name() string { return "deflate" }

// Compress returns a writer that compresses into w until it is closed.
func (d *deflate) Compress(w io.Writer) (io.WriteCloser, error) {
	z, _ := d.writers.Get().(*zlib.Writer)
	z.Reset(w)
	return &deflater{z, d}, nil
}

// Decompress returns a reader of what r holds.
func (*deflate) Decompress(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }

// deflater lends its writer.
type deflater struct {
	*zlib.Writer

	of *deflate
}

// Close ends the message and gives the writer back.
func (d *deflater) Close() error {
	defer d.of.writers.Put(d.Writer)
	return d.Writer.Close()
}
