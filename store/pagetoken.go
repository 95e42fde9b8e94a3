package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// key is where a row stands in its list: time first, then what makes it unique. Unused places are zero.
type key [4]int64

func (k key) compare(o key) int {
	for i := range k {
		switch {
		case k[i] < o[i]:
			return -1
		case k[i] > o[i]:
			return 1
		}
	}
	return 0
}

const tokenVersion = 1

// printToken prints a page token: version, hash of the query, last key, check sum.
func printToken(query [8]byte, last key) string {
	b := append([]byte{tokenVersion}, query[:]...)
	for _, v := range last {
		b = binary.AppendVarint(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads a page token of the query with that hash; the error is an ErrPageToken.
func parseToken(s string, query [8]byte) (key, error) {
	var k key
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 13 || b[0] != tokenVersion {
		return key{}, fmt.Errorf("%w: it is no page token of this version", ErrPageToken)
	}
	b, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(sum) {
		return key{}, fmt.Errorf("%w: it is damaged", ErrPageToken)
	}
	if !bytes.Equal(b[1:9], query[:]) {
		return key{}, fmt.Errorf("%w: it was made for another query; repeat the query without page_token", ErrPageToken)
	}
	b = b[9:]
	for i := range k {
		v, n := binary.Varint(b)
		if n <= 0 {
			return key{}, fmt.Errorf("%w: it is damaged", ErrPageToken)
		}
		k[i], b = v, b[n:]
	}
	if len(b) > 0 {
		return key{}, fmt.Errorf("%w: it is damaged", ErrPageToken)
	}
	return k, nil
}

// hash binds a token to what the query asks for; page size may change from page to page.
func (q *Query) hash(list string) [8]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s %q %q %q %q %d %d %v %d %d %d %v %v %v %q %q %q %q", list, q.Cameras, q.Classes, q.Types, q.Payload,
		micro(q.Start), micro(q.End), q.MinScore, q.MinDuration, q.State, q.Sequence, q.Track, q.Received, q.Ascending, q.Actor, q.Action, q.Resource, q.Outcome)
	return [8]byte(h.Sum(nil))
}

// printNameToken and parseNameToken are page tokens of lists ordered by name.
func printNameToken(last, list string) string {
	h := sha256.Sum256([]byte(list))
	b := append([]byte{tokenVersion}, h[:8]...)
	return base64.RawURLEncoding.EncodeToString(append(b, last...))
}

func parseNameToken(s, list string) (last string, err error) {
	if s == "" {
		return "", nil
	}
	h := sha256.Sum256([]byte(list))
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	switch {
	case err != nil || len(b) < 10 || len(b) > 9+maxName || b[0] != tokenVersion:
		return "", fmt.Errorf("%w: it is no page token of this version", ErrPageToken)
	case !bytes.Equal(b[1:9], h[:8]):
		return "", fmt.Errorf("%w: it was made for another list", ErrPageToken)
	}
	return string(b[9:]), nil
}
