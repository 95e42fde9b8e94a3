package tensor

import "math"

// FP16ToFloat32 widens an IEEE 754 half; every half has an exact float32.
func FP16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0:
		// Zero or subnormal: frac * 2^-24 is exact in float32.
		v := float32(frac) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Float32ToFP16 narrows to the nearest half, ties to even; what is too large
// becomes infinity and NaN stays NaN.
func Float32ToFP16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x1ff
	case b >= 0x477ff000: // rounds to 65536 or is infinite
		return sign | 0x7c00
	case b < 0x38800000: // below the smallest normal half, 2^-14
		// Adding 0.5 aligns the last kept bit with the float's own last bit,
		// so that the hardware rounds to nearest even for us.
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

// BF16ToFloat32 widens a bfloat16, which is the upper half of a float32.
func BF16ToFloat32(h uint16) float32 {
	return math.Float32frombits(uint32(h) << 16)
}

// Float32ToBF16 narrows to the nearest bfloat16, ties to even; NaN stays NaN.
func Float32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
