package v2http

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON.
const maxDepth = 100

// scanner reads JSON where it lies. Besides JSON it knows NaN, Inf and Infinity, as Triton does. Its errors
// are those of the parser Triton uses, since clients see them.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// syntaxError is bad JSON.
type syntaxError struct {
	text string
	at   int
}

func (e *syntaxError) Error() string { return e.text + " at " + strconv.Itoa(e.at) }

func (s *scanner) fail(text string) error { return &syntaxError{text, s.i} }

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() == c && s.i < len(s.b) {
		s.i++
		return true
	}
	return false
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > maxDepth {
		return s.fail("JSON nesting depth exceeds maximum allowed limit (" + strconv.Itoa(maxDepth) + ")")
	}
	s.i++
	return nil
}

// object calls f for every member; f consumes the value. The key is valid until f returns.
func (s *scanner) object(f func(key []byte) error) error {
	if s.peek() != '{' {
		return s.fail("Invalid value.")
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	if s.take('}') {
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.fail("Missing a name for object member.")
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.fail("Missing a colon after a name of object member.")
		}
		if err := f(key); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.fail("Missing a comma or } after an object member.")
		}
	}
}

// array calls f for every element; f consumes it.
func (s *scanner) array(f func() error) error {
	if s.peek() != '[' {
		return s.fail("Invalid value.")
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	if s.take(']') {
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.fail("Missing a comma or ] after an array element.")
		}
	}
}

// skip checks a value and returns where it begins and ends.
func (s *scanner) skip() ([]byte, error) {
	s.space()
	start := s.i
	var err error
	switch s.peek() {
	case '{':
		err = s.object(func([]byte) error {
			_, err := s.skip()
			return err
		})
	case '[':
		err = s.array(func() error {
			_, err := s.skip()
			return err
		})
	case '"':
		_, _, err = s.rawString()
	case 't':
		err = s.literal("true")
	case 'f':
		err = s.literal("false")
	case 'n':
		err = s.literal("null")
	default:
		_, err = s.number()
	}
	return s.b[start:s.i], err
}

// expect refuses a value that begins otherwise; what is no JSON at all is told as that.
func (s *scanner) expect(first byte, key, kind string) error {
	if s.peek() == first {
		return nil
	}
	if _, err := s.skip(); err != nil {
		return err
	}
	return invalid("Unable to parse '%s': attempt to access JSON non-%s as %s", key, kind, kind)
}

// whole checks a document: one value and nothing after it.
func (s *scanner) whole() error {
	if _, err := s.skip(); err != nil {
		return err
	}
	return s.end()
}

// end fails unless only space is left.
func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return s.fail("The document root must not be followed by other values.")
	}
	return nil
}

func (s *scanner) literal(word string) error {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.fail("Invalid value.")
	}
	s.i += len(word)
	return nil
}

// boolean reads true or false.
func (s *scanner) boolean() (v, ok bool, err error) {
	switch s.peek() {
	case 't':
		return true, true, s.literal("true")
	case 'f':
		return false, true, s.literal("false")
	}
	return false, false, nil
}

// rawString reads a string as it stands between its quotes and tells whether it has escapes.
func (s *scanner) rawString() (raw []byte, escaped bool, err error) {
	s.i++
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			raw = s.b[start:s.i]
			s.i++
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			n, _ := escape(s.b[s.i:])
			if n == 0 {
				return nil, false, s.fail("Invalid escape character in string.")
			}
			s.i += n
		case c < 0x20:
			return nil, false, s.fail("Invalid encoding in string.")
		default:
			s.i++
		}
	}
	return nil, false, s.fail("Missing a closing quotation mark in string.")
}

// text reads a string as bytes of the message, or a copy where it has escapes.
func (s *scanner) text() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("Invalid value.")
	}
	raw, escaped, err := s.rawString()
	if err != nil || !escaped {
		return raw, err
	}
	return unescape(make([]byte, 0, len(raw)), raw), nil
}

// str reads a string.
func (s *scanner) str() (string, error) {
	b, err := s.text()
	return string(b), err
}

// escape reads one escape sequence: its length and meaning. Length 0 is none.
func escape(b []byte) (n int, r rune) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return 2, rune(b[1])
	case 'b':
		return 2, '\b'
	case 'f':
		return 2, '\f'
	case 'n':
		return 2, '\n'
	case 'r':
		return 2, '\r'
	case 't':
		return 2, '\t'
	case 'u':
		u, ok := hex4(b[2:])
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(u) {
			return 6, u
		}
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return 0, 0
		}
		low, ok := hex4(b[8:])
		r := utf16.DecodeRune(u, low)
		if !ok || r == utf8.RuneError {
			return 0, 0
		}
		return 12, r
	}
	return 0, 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var u rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			u = u<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return u, true
}

// unescape appends the meaning of a string that rawString has read.
func unescape(dst, raw []byte) []byte {
	for len(raw) > 0 {
		if raw[0] != '\\' {
			dst, raw = append(dst, raw[0]), raw[1:]
			continue
		}
		n, r := escape(raw)
		if n == 0 {
			return dst
		}
		dst, raw = utf8.AppendRune(dst, r), raw[n:]
	}
	return dst
}
