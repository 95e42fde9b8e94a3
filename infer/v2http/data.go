package v2http

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/vedette/vedette/infer/tensor"
)

// elements calls f before each scalar of a value that is flat or nested, and consumes nothing itself.
func (s *scanner) elements(f func() error) error {
	if s.peek() == '[' {
		return s.array(func() error { return s.elements(f) })
	}
	return f()
}

func misshapen() error {
	// Triton answers 500 here; the fault is the client's.
	return invalid("Unable to parse 'data': Shape does not match true shape of 'data' field")
}

// parseData reads the data of a tensor of n elements into dst, which has their size; for BYTES dst is room
// enough for any strings of this text, and the result is what was used of it.
func parseData(text []byte, t tensor.DataType, n int64, dst []byte) ([]byte, error) {
	s := &scanner{b: text}
	seen := int64(0)
	used := dst[:0]
	size := t.Size()
	err := s.elements(func() error {
		if seen++; seen > n {
			return misshapen()
		}
		if t == tensor.Bytes {
			var err error
			used, err = s.appendString(used)
			return err
		}
		if err := s.element(dst, t); err != nil {
			return err
		}
		dst = dst[size:]
		return nil
	})
	if err != nil {
		return nil, err
	}
	if seen != n {
		return nil, misshapen()
	}
	return used, nil
}

func (s *scanner) appendString(dst []byte) ([]byte, error) {
	if s.peek() != '"' {
		return nil, invalid("Unable to parse 'data': attempt to access JSON non-string as string")
	}
	raw, _, err := s.rawString()
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = unescape(append(dst, 0, 0, 0, 0), raw)
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

// element reads one scalar into the beginning of dst.
func (s *scanner) element(dst []byte, t tensor.DataType) error {
	le := binary.LittleEndian
	if t == tensor.Bool {
		v, ok, err := s.boolean()
		if err != nil {
			return err
		}
		if !ok {
			return invalid("Unable to parse 'data': attempt to access JSON non-boolean as boolean")
		}
		dst[0] = 0
		if v {
			dst[0] = 1
		}
		return nil
	}
	if c := s.peek(); c == '"' || c == 't' || c == 'f' || c == 'n' || c == '{' {
		return invalid("Unable to parse 'data': attempt to access JSON non-number as number")
	}
	n, err := s.number()
	if err != nil {
		return err
	}
	switch t {
	case tensor.FP32:
		le.PutUint32(dst, math.Float32bits(float32(n.float)))
		return nil
	case tensor.FP64:
		le.PutUint64(dst, math.Float64bits(n.float))
		return nil
	default:
	}
	if !n.isInt && math.Abs(n.float) < 1<<63 { // written with a fraction or an exponent
		return invalid("Unable to parse 'data': attempt to access JSON non-integer as integer")
	}
	if !n.isInt || !fits(n, t) {
		return invalid("Unable to parse 'data': a value is not within the range of %s", t)
	}
	switch t.Size() {
	case 1:
		dst[0] = byte(n.integer)
	case 2:
		le.PutUint16(dst, uint16(n.integer))
	case 4:
		le.PutUint32(dst, uint32(n.integer))
	default:
		le.PutUint64(dst, n.integer)
	}
	return nil
}

func fits(n number, t tensor.DataType) bool {
	bits := uint(8 * t.Size())
	switch t {
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return (!n.negative || n.integer == 0) && (bits == 64 || n.integer < 1<<bits)
	default:
		if n.negative {
			return int64(n.integer) >= -1<<(bits-1)
		}
		return n.integer < 1<<(bits-1)
	}
}

// appendData prints the data of a tensor as a flat array.
func appendData(b []byte, t *tensor.Tensor) ([]byte, error) {
	le, d := binary.LittleEndian, t.Data
	b = append(b, '[')
	first := len(b)
	if t.DataType == tensor.Bytes {
		for e, err := range tensor.Elements(d) {
			if err != nil {
				return nil, err
			}
			b = append(appendQuoted(b, e), ',')
		}
		return closeList(b, first), nil
	}
	size := t.DataType.Size()
	for ; len(d) >= size && size > 0; d = d[size:] {
		switch t.DataType {
		case tensor.Bool:
			b = strconv.AppendBool(b, d[0] != 0)
		case tensor.Uint8:
			b = strconv.AppendUint(b, uint64(d[0]), 10)
		case tensor.Uint16:
			b = strconv.AppendUint(b, uint64(le.Uint16(d)), 10)
		case tensor.Uint32:
			b = strconv.AppendUint(b, uint64(le.Uint32(d)), 10)
		case tensor.Uint64:
			b = strconv.AppendUint(b, le.Uint64(d), 10)
		case tensor.Int8:
			b = strconv.AppendInt(b, int64(int8(d[0])), 10)
		case tensor.Int16:
			b = strconv.AppendInt(b, int64(int16(le.Uint16(d))), 10)
		case tensor.Int32:
			b = strconv.AppendInt(b, int64(int32(le.Uint32(d))), 10)
		case tensor.Int64:
			b = strconv.AppendInt(b, int64(le.Uint64(d)), 10)
		case tensor.FP32:
			b = appendFloat(b, float64(math.Float32frombits(le.Uint32(d))))
		case tensor.FP64:
			b = appendFloat(b, math.Float64frombits(le.Uint64(d)))
		default: // halves are refused before, strings are above
		}
		b = append(b, ',')
	}
	return closeList(b, first), nil
}

func closeList(b []byte, first int) []byte {
	if len(b) > first {
		b = b[:len(b)-1]
	}
	return append(b, ']')
}

// appendFloat prints the shortest text that reads back the same, with a point where it is no integer's.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	at := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if slices.Contains(b[at:], '.') {
		return b
	}
	return append(b, '.', '0')
}

const hexDigits = "0123456789ABCDEF"

// appendQuoted prints bytes as a JSON string. What is not UTF-8 goes out as it is, as Triton does.
func appendQuoted[T string | []byte](b []byte, v T) []byte {
	b = append(b, '"')
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// validText tells whether a string may become a name.
func validText(s string) bool { return utf8.ValidString(s) }
