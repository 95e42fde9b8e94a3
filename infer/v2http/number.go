package v2http

import (
	"math"
	"strconv"
)

// number is a JSON number: integer when it has neither point nor exponent and fits 64 bits.
type number struct {
	float    float64
	integer  uint64 // two's complement
	isInt    bool
	negative bool
}

// number reads a number, fast where the digits fit a float64 exactly.
func (s *scanner) number() (number, error) {
	s.space()
	start := s.i
	var n number
	if s.i < len(s.b) && s.b[s.i] == '-' {
		n.negative = true
		s.i++
	}
	if s.i < len(s.b) && (s.b[s.i] == 'N' || s.b[s.i] == 'I') {
		return s.notFinite(n)
	}
	first := s.i
	mantissa, digits, overflow := uint64(0), 0, false
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		d := uint64(s.b[s.i] - '0')
		if mantissa > (math.MaxUint64-d)/10 {
			overflow = true
		}
		mantissa = mantissa*10 + d
		digits++
		s.i++
	}
	if digits == 0 || (digits > 1 && s.b[first] == '0') {
		if digits > 1 {
			s.i = first + 1
		}
		return n, s.fail("Invalid value.")
	}
	exponent, integer := 0, true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		integer = false
		s.i++
		fraction := s.i
		for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
			if !overflow && mantissa < 1<<53/10 {
				mantissa = mantissa*10 + uint64(s.b[s.i]-'0')
				exponent--
			} else {
				overflow = true
			}
			s.i++
		}
		if s.i == fraction {
			return n, s.fail("Miss fraction part in number.")
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		integer = false
		e, err := s.exponent()
		if err != nil {
			return n, err
		}
		exponent += e
	}
	if integer && !overflow && (!n.negative || mantissa <= 1<<63) {
		n.isInt, n.integer = true, mantissa
		n.float = float64(mantissa)
		if n.negative {
			n.integer, n.float = -mantissa, -n.float
		}
		return n, nil
	}
	if overflow || mantissa >= 1<<53 || exponent < -22 || exponent > 22 {
		f, err := strconv.ParseFloat(string(s.b[start:s.i]), 64)
		if err != nil && math.IsInf(f, 0) {
			return n, s.fail("Number too big to be stored in double.")
		}
		n.float = f
		return n, nil
	}
	n.float = scale(mantissa, exponent)
	if n.negative {
		n.float = -n.float
	}
	return n, nil
}

// scale is exact: both operands are, and one operation rounds once.
func scale(mantissa uint64, exponent int) float64 {
	if exponent < 0 {
		return float64(mantissa) / pow10[-exponent]
	}
	return float64(mantissa) * pow10[exponent]
}

// pow10 are the powers of ten a float64 holds exactly.
//
//nolint:gochecknoglobals // a constant table; Go has no constant arrays
var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

func (s *scanner) exponent() (int, error) {
	s.i++
	negative := false
	if s.i < len(s.b) && (s.b[s.i] == '-' || s.b[s.i] == '+') {
		negative = s.b[s.i] == '-'
		s.i++
	}
	first, e := s.i, 0
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		e = min(e*10+int(s.b[s.i]-'0'), 100000)
		s.i++
	}
	if s.i == first {
		return 0, s.fail("Miss exponent in number.")
	}
	if negative {
		e = -e
	}
	return e, nil
}

func (s *scanner) notFinite(n number) (number, error) {
	rest := s.b[s.i:]
	for _, word := range []string{"NaN", "Infinity", "Inf"} {
		if len(rest) >= len(word) && string(rest[:len(word)]) == word {
			s.i += len(word)
			n.float = math.NaN()
			if word != "NaN" {
				n.float = math.Inf(1)
				if n.negative {
					n.float = math.Inf(-1)
				}
			}
			return n, nil
		}
	}
	return n, s.fail("Invalid value.")
}
