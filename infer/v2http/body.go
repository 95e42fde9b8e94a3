package v2http

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/vedette/vedette/infer"
	"github.com/vedette/vedette/infer/tensor"
)

// alignment is what models like best for their inputs.
const alignment = 64

// grow is the largest body that is given memory on the strength of its announcement alone.
const grow = 64 << 20

// readBody reads the whole body into lent memory, laid so that the byte at boundary is aligned.
func (s *Server) readBody(req *http.Request, boundary int) (*tensor.Buffer, []byte, error) {
	length := req.ContentLength
	if length > s.cfg.MaxBodySize {
		return nil, nil, tooLarge(s.cfg.MaxBodySize)
	}
	src, encoded, err := decoder(req)
	if err != nil {
		return nil, nil, err
	}
	limit := s.cfg.MaxBodySize
	if encoded {
		length, limit = -1, s.cfg.MaxInputSize
	}
	pad := -boundary & (alignment - 1)
	if length >= 0 && length <= grow {
		b := s.cfg.Pool.Get(pad + int(length))
		if _, err := io.ReadFull(src, b.Bytes[pad:]); err != nil {
			b.Release()
			return nil, nil, invalid("the body ended before its announced %d bytes: %v", length, err)
		}
		return b, b.Bytes[pad:], nil
	}
	b, data, err := s.readUnknown(src, pad, limit)
	if errors.Is(err, errLimit) && encoded {
		return nil, nil, invalid("Decompressed data size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", limit)
	}
	if errors.Is(err, errLimit) {
		return nil, nil, tooLarge(limit)
	}
	if err != nil {
		return nil, nil, invalid("the body cannot be read: %v", err)
	}
	if length >= 0 && int64(len(data)) != length {
		b.Release()
		return nil, nil, invalid("the body ended after %d of its announced %d bytes", len(data), length)
	}
	return b, data, nil
}

var errLimit = errors.New("limit exceeded")

func tooLarge(limit int64) error {
	return invalid("request size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", limit)
}

// readUnknown reads a body of unknown length into memory that doubles as it comes.
func (s *Server) readUnknown(src io.Reader, pad int, limit int64) (*tensor.Buffer, []byte, error) {
	b := s.cfg.Pool.Get(pad + 64<<10)
	n := pad
	for {
		if n == len(b.Bytes) {
			next := s.cfg.Pool.Get(2 * n)
			copy(next.Bytes, b.Bytes)
			b.Release()
			b = next
		}
		m, err := src.Read(b.Bytes[n:])
		n += m
		if int64(n-pad) > limit {
			b.Release()
			return nil, nil, errLimit
		}
		if errors.Is(err, io.EOF) {
			return b, b.Bytes[pad:n], nil
		}
		if err != nil {
			b.Release()
			return nil, nil, err
		}
	}
}

// decoder undoes the body's encoding.
func decoder(req *http.Request) (r io.Reader, encoded bool, err error) {
	given := req.Header["Content-Encoding"]
	if len(given) == 0 {
		return req.Body, false, nil
	}
	switch strings.ToLower(strings.TrimSpace(given[0])) {
	case "", "identity":
		return req.Body, false, nil
	case "gzip":
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			return nil, false, invalid("the body is not gzip: %v", err)
		}
		return z, true, nil
	case "deflate":
		z, err := inflate(req.Body)
		if err != nil {
			return nil, false, invalid("the body is not deflate: %v", err)
		}
		return z, true, nil
	default:
		return nil, false, infer.Errorf(infer.Unsupported, "Unsupported compression type")
	}
}

// inflate reads deflate with the zlib header that RFC 9110 wants, and without it as some clients send it.
func inflate(body io.Reader) (io.Reader, error) {
	r := bufio.NewReader(body)
	head, err := r.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// readJSON reads the body of a small call; encoded ones are refused.
func (s *Server) readJSON(req *http.Request, limit int64) ([]byte, error) {
	if e := strings.ToLower(strings.TrimSpace(req.Header.Get("Content-Encoding"))); e != "" && e != "identity" {
		return nil, invalid("Unsupported content-encoding, only 'identity' is supported.")
	}
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(req.Body, limit+1))
	if err != nil {
		return nil, invalid("the body cannot be read: %v", err)
	}
	if n > limit {
		return nil, tooLarge(limit)
	}
	return buf.Bytes(), nil
}

// accepted chooses the encoding of a response: the strictly highest weight wins, the first of equals.
func accepted(header []string) string {
	if len(header) == 0 {
		return ""
	}
	best, chosen := 0.0, ""
	for item := range strings.SplitSeq(header[0], ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "deflate" && name != "identity" {
			continue
		}
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			w, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			if err != nil {
				continue
			}
			weight = w
		}
		if weight > best {
			best, chosen = weight, name
		}
	}
	if chosen == "identity" {
		return ""
	}
	return chosen
}

// compress encodes a whole response.
func compress(encoding string, pieces [][]byte) ([]byte, error) {
	var buf bytes.Buffer
	var z io.WriteCloser
	if encoding == "gzip" {
		z = gzip.NewWriter(&buf)
	} else {
		z = zlib.NewWriter(&buf)
	}
	for _, p := range pieces {
		if _, err := z.Write(p); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
