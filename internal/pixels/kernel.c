#include "kernel.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Two source rows of one plane and the packed weights between them.
typedef struct {
	const uint8_t *a, *b;
	int32_t w;
} rows_of;

static inline int32_t weigh(int32_t first, int32_t second, int32_t w) {
	return first * (w & 0xffff) + second * (w >> 16);
}

// The weighted mean of four neighbours: bytes at `at` and `at + step` of both rows. The four low
// bits of the horizontal sum go, so that both sums fit the sixteen-bit products of the wide path;
// 18 bits of fraction stay.
static inline float mean(rows_of r, int32_t at, int step, int32_t xw) {
	int32_t a = weigh(r.a[at], r.a[at + (xw >> 16 ? step : 0)], xw) >> 4;
	int32_t b = weigh(r.b[at], r.b[at + (xw >> 16 ? step : 0)], xw) >> 4;
	return (float)weigh(a, b, r.w) * (1.0f / (1 << 18));
}

// The same as a whole grey level, digit for digit what OpenCV's resize gives: each row's product loses
// its low bits before they are added.
static inline float level(rows_of r, int32_t at, int step, int32_t xw) {
	int32_t a = weigh(r.a[at], r.a[at + (xw >> 16 ? step : 0)], xw) >> 4;
	int32_t b = weigh(r.b[at], r.b[at + (xw >> 16 ? step : 0)], xw) >> 4;
	return (float)(((a * (r.w & 0xffff) >> 16) + (b * (r.w >> 16) >> 16) + 2) >> 2);
}

static inline float grey(float v) {
	v = v < 0 ? 0 : v > 255 ? 255 : v;
	return nearbyintf(v);
}

static inline void from_yuv(float y, float u, float v, const float *k, float *r, float *g, float *b) {
	y = (y - k[0]) * k[1];
	u -= 128;
	v -= 128;
	*r = grey(y + k[2] * v);
	*g = grey((y + k[3] * u) + k[4] * v);
	*b = grey(y + k[5] * u);
}

#if defined(__x86_64__)

#define WIDE __attribute__((target("avx2")))

// The same mean for eight columns: v holds the two bytes of each column in its low half.
WIDE static inline __m256 mean8(__m256i va, __m256i vb, __m256i pick, __m256i xw, __m256i yw) {
	__m256i a = _mm256_madd_epi16(_mm256_shuffle_epi8(va, pick), xw);
	__m256i b = _mm256_madd_epi16(_mm256_shuffle_epi8(vb, pick), xw);
	a = _mm256_srli_epi32(a, 4);
	b = _mm256_and_si256(_mm256_slli_epi32(b, 12), _mm256_set1_epi32((int)0xffff0000));
	return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_or_si256(a, b), yw)),
		_mm256_set1_ps(1.0f / (1 << 18)));
}

WIDE static inline __m256 level8(__m256i va, __m256i vb, __m256i pick, __m256i xw, __m256i yw) {
	__m256i a = _mm256_madd_epi16(_mm256_shuffle_epi8(va, pick), xw);
	__m256i b = _mm256_madd_epi16(_mm256_shuffle_epi8(vb, pick), xw);
	a = _mm256_srli_epi32(a, 4);
	b = _mm256_and_si256(_mm256_slli_epi32(b, 12), _mm256_set1_epi32((int)0xffff0000));
	// High halves of the products, added in pairs.
	__m256i v = _mm256_madd_epi16(_mm256_mulhi_epi16(_mm256_or_si256(a, b), yw), _mm256_set1_epi16(1));
	return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_add_epi32(v, _mm256_set1_epi32(2)), 2));
}

WIDE static inline __m256i gather(const uint8_t *row, __m256i at) {
	return _mm256_i32gather_epi32((const int *)row, at, 1);
}

WIDE static inline __m256 grey8(__m256 v) {
	v = _mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255));
	return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Shuffles that bring bytes i and j of every four into sixteen-bit halves.
#define PICK(i, j) _mm256_setr_epi8(i, -1, j, -1, i + 4, -1, j + 4, -1, i + 8, -1, j + 8, -1, i + 12, -1, j + 12, -1, \
	i, -1, j, -1, i + 4, -1, j + 4, -1, i + 8, -1, j + 8, -1, i + 12, -1, j + 12, -1)

WIDE static inline void yuv8(__m256 y, __m256 u, __m256 v, const float *k, float *r, float *g, float *b) {
	y = _mm256_mul_ps(_mm256_sub_ps(y, _mm256_set1_ps(k[0])), _mm256_set1_ps(k[1]));
	u = _mm256_sub_ps(u, _mm256_set1_ps(128));
	v = _mm256_sub_ps(v, _mm256_set1_ps(128));
	_mm256_storeu_ps(r, grey8(_mm256_add_ps(y, _mm256_mul_ps(_mm256_set1_ps(k[2]), v))));
	_mm256_storeu_ps(g, grey8(_mm256_add_ps(_mm256_add_ps(y, _mm256_mul_ps(_mm256_set1_ps(k[3]), u)),
		_mm256_mul_ps(_mm256_set1_ps(k[4]), v))));
	_mm256_storeu_ps(b, grey8(_mm256_add_ps(y, _mm256_mul_ps(_mm256_set1_ps(k[5]), u))));
}

WIDE static void i420_wide(rows_of py, rows_of pu, rows_of pv, const int32_t *xat, const int32_t *xw,
	const int32_t *xcat, const int32_t *xcw, int n, const float *k, float *r, float *g, float *b) {
	const __m256i pick = PICK(0, 1), yw = _mm256_set1_epi32(py.w);
	for (int i = 0; i < n; i += 8) {
		__m256i at = _mm256_loadu_si256((const __m256i *)(xat + i)), w = _mm256_loadu_si256((const __m256i *)(xw + i));
		__m256i cat = _mm256_loadu_si256((const __m256i *)(xcat + i)), cw = _mm256_loadu_si256((const __m256i *)(xcw + i));
		__m256 y = mean8(gather(py.a, at), gather(py.b, at), pick, w, yw);
		__m256 u = mean8(gather(pu.a, cat), gather(pu.b, cat), pick, cw, yw);
		__m256 v = mean8(gather(pv.a, cat), gather(pv.b, cat), pick, cw, yw);
		yuv8(y, u, v, k, r + i, g + i, b + i);
	}
}

WIDE static void nv12_wide(rows_of py, rows_of pc, const int32_t *xat, const int32_t *xw, const int32_t *xcat,
	const int32_t *xcw, int n, const float *k, float *r, float *g, float *b) {
	const __m256i pick = PICK(0, 1), picku = PICK(0, 2), pickv = PICK(1, 3), yw = _mm256_set1_epi32(py.w);
	for (int i = 0; i < n; i += 8) {
		__m256i at = _mm256_loadu_si256((const __m256i *)(xat + i)), w = _mm256_loadu_si256((const __m256i *)(xw + i));
		__m256i cat = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(xcat + i)), 1);
		__m256i cw = _mm256_loadu_si256((const __m256i *)(xcw + i));
		__m256i ca = gather(pc.a, cat), cb = gather(pc.b, cat);
		__m256 y = mean8(gather(py.a, at), gather(py.b, at), pick, w, yw);
		yuv8(y, mean8(ca, cb, picku, cw, yw), mean8(ca, cb, pickv, cw, yw), k, r + i, g + i, b + i);
	}
}

WIDE static void packed_wide(rows_of p, const int32_t *xat, const int32_t *xw, int n, float *c0, float *c1, float *c2) {
	const __m256i yw = _mm256_set1_epi32(p.w), pick0 = PICK(0, 3), pick1 = PICK(0, 2), pick2 = PICK(1, 3);
	for (int i = 0; i < n; i += 8) {
		__m256i at = _mm256_loadu_si256((const __m256i *)(xat + i)), w = _mm256_loadu_si256((const __m256i *)(xw + i));
		at = _mm256_add_epi32(at, _mm256_slli_epi32(at, 1));
		__m256i a = gather(p.a, at), b = gather(p.b, at);
		// Bytes 1, 2 and 4, 5 of the pair, put side by side as 1 2 4 5.
		__m256i a2 = gather(p.a + 2, at), b2 = gather(p.b + 2, at);
		const __m256i low = _mm256_set1_epi32(0xffff), high = _mm256_set1_epi32((int)0xffff0000);
		__m256i am = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(a, 8), low), _mm256_and_si256(a2, high));
		__m256i bm = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(b, 8), low), _mm256_and_si256(b2, high));
		_mm256_storeu_ps(c0 + i, level8(a, b, pick0, w, yw));
		_mm256_storeu_ps(c1 + i, level8(am, bm, pick1, w, yw));
		_mm256_storeu_ps(c2 + i, level8(am, bm, pick2, w, yw));
	}
}

WIDE static void scale_wide(const float *from, float *to, int n, float scale, float bias) {
	const __m256 s = _mm256_set1_ps(scale), o = _mm256_set1_ps(bias);
	int i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(to + i, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(from + i), s), o));
	for (; i < n; i++)
		to[i] = from[i] * scale + bias;
}

#endif

static void scale_row(const float *from, float *to, int n, float scale, float bias, int portable) {
#if defined(__x86_64__)
	if (!portable) {
		scale_wide(from, to, n, scale, bias);
		return;
	}
#endif
	for (int i = 0; i < n; i++)
		to[i] = from[i] * scale + bias;
}

static void fill_float(float *to, int n, float v) {
	for (int i = 0; i < n; i++)
		to[i] = v;
}

// Stores one finished row (or a row of padding, when row is NULL) with its padding left and right.
static void store(const vp_output *o, void *dst, int y, float *const row[3], int columns, int portable) {
	int left = row ? o->left : o->width, right = row ? o->width - o->left - columns : 0;
	size_t plane = (size_t)o->width * o->height;
	if (o->depth == VP_FLOAT32 && o->order == VP_PLANAR) {
		for (int c = 0; c < 3; c++) {
			float *to = (float *)dst + c * plane + (size_t)y * o->width;
			fill_float(to, left, o->pad[c]);
			if (row)
				scale_row(row[c], to + left, columns, o->scale[c], o->bias[c], portable);
			fill_float(to + o->width - right, right, o->pad[c]);
		}
		return;
	}
	for (int c = 0; c < 3; c++) {
		size_t step = o->order == VP_PLANAR ? 1 : 3;
		size_t at = o->order == VP_PLANAR ? c * plane + (size_t)y * o->width : (size_t)y * o->width * 3 + c;
		for (int x = 0; x < o->width; x++, at += step) {
			int in = x >= left && x < o->width - right;
			float v = in ? row[c][x - left] * o->scale[c] + o->bias[c] : o->pad[c];
			if (o->depth == VP_FLOAT32)
				((float *)dst)[at] = v;
			else
				((uint8_t *)dst)[at] = (uint8_t)grey(v);
		}
	}
}

static int cannot(int portable) {
#if defined(__x86_64__)
	return portable || !__builtin_cpu_supports("avx2");
#else
	(void)portable;
	return 1;
#endif
}

void vp_resample(int format, const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, int stride0, int stride1,
	const int32_t *xat, const int32_t *xw, const int32_t *xcat, const int32_t *xcw, int columns, int wide,
	const int32_t *yat, const int32_t *yw, int rows, int bottom, const vp_output *out, void *dst, float *scratch,
	int portable) {
	portable = cannot(portable);
	if (portable)
		wide = 0;
	// r, g, b name the rows by meaning, row[] by the order they come out.
	float *r = scratch, *g = scratch + columns, *b = scratch + 2 * columns;
	float *row[3] = {out->rgb ? r : b, g, out->rgb ? b : r};
	for (int y = 0; y < out->top; y++)
		store(out, dst, y, NULL, columns, portable);
	for (int i = 0; i < rows; i++) {
		int ya = yat[i], yb = ya < bottom ? ya + 1 : bottom;
		rows_of l = {p0 + (size_t)ya * stride0, p0 + (size_t)yb * stride0, yw[i]};
		rows_of u = {p1 + (size_t)(ya / 2) * stride1, p1 + (size_t)(yb / 2) * stride1, yw[i]};
		rows_of v = {p2 + (size_t)(ya / 2) * stride1, p2 + (size_t)(yb / 2) * stride1, yw[i]};
		float *c0 = format == VP_RGB ? r : b, *c2 = format == VP_RGB ? b : r;
		int x = 0;
#if defined(__x86_64__)
		if (wide > 0 && format != VP_GRAY) {
			x = wide;
			if (format == VP_I420)
				i420_wide(l, u, v, xat, xw, xcat, xcw, wide, out->coef, r, g, b);
			else if (format == VP_NV12)
				nv12_wide(l, u, xat, xw, xcat, xcw, wide, out->coef, r, g, b);
			else
				packed_wide(l, xat, xw, wide, c0, g, c2);
		}
#endif
		for (; x < columns; x++) {
			switch (format) {
			case VP_I420:
				from_yuv(mean(l, xat[x], 1, xw[x]), mean(u, xcat[x], 1, xcw[x]), mean(v, xcat[x], 1, xcw[x]),
					out->coef, r + x, g + x, b + x);
				break;
			case VP_NV12:
				from_yuv(mean(l, xat[x], 1, xw[x]), mean(u, 2 * xcat[x], 2, xcw[x]),
					mean(u, 2 * xcat[x] + 1, 2, xcw[x]), out->coef, r + x, g + x, b + x);
				break;
			case VP_GRAY:
				r[x] = g[x] = b[x] = level(l, xat[x], 1, xw[x]);
				break;
			default:
				c0[x] = level(l, 3 * xat[x], 3, xw[x]);
				g[x] = level(l, 3 * xat[x] + 1, 3, xw[x]);
				c2[x] = level(l, 3 * xat[x] + 2, 3, xw[x]);
			}
		}
		store(out, dst, out->top + i, row, columns, portable);
	}
	for (int y = out->top + rows; y < out->height; y++)
		store(out, dst, y, NULL, columns, portable);
}

static void add_row(float *sum, const uint8_t *from, int n, float w) {
	for (int i = 0; i < n; i++)
		sum[i] += w * from[i];
}

// The weighted sum of every step-th value.
static inline float dot(const float *sum, int step, const float *w, int n) {
	float v = 0;
	for (int i = 0; i < n; i++)
		v += w[i] * sum[(size_t)i * step];
	return v;
}

// The same of chroma, where two columns share a value.
static inline float dot_half(const float *sum, int step, int at, const float *w, int n) {
	float v = 0;
	for (int i = 0; i < n; i++)
		v += w[i] * sum[(size_t)((at + i) / 2) * step];
	return v;
}

void vp_area(int format, const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, int stride0, int stride1,
	const int32_t *xat, const int32_t *xn, const float *xw, int columns, int left, int span,
	const int32_t *yat, const int32_t *yn, const float *yw, int rows, const vp_output *out, void *dst, float *scratch) {
	float *r = scratch, *g = scratch + columns, *b = scratch + 2 * columns;
	float *row[3] = {out->rgb ? r : b, g, out->rgb ? b : r};
	float *c0 = format == VP_RGB ? r : b, *c2 = format == VP_RGB ? b : r;
	// Sums of the rows of an output row; chroma follows luma.
	float *sum = scratch + 3 * columns;
	int portable = cannot(0);
	int yuv = format == VP_I420 || format == VP_NV12;
	int width = format == VP_BGR || format == VP_RGB ? 3 * span : span;
	int cleft = left / 2, half = (left + span + 1) / 2 - cleft;
	float *usum = sum + span, *vsum = usum + half;
	int cstep = format == VP_NV12 ? 2 : 1;
	if (format == VP_NV12)
		vsum = usum + 1;
	for (int y = 0; y < out->top; y++)
		store(out, dst, y, NULL, columns, portable);
	for (int i = 0; i < rows; i++) {
		memset(sum, 0, sizeof(float) * (yuv ? span + 2 * half : width));
		for (int k = 0; k < yn[i]; k++, yw++) {
			int y = yat[i] + k;
			add_row(sum, p0 + (size_t)y * stride0 + (size_t)left * (width / span), width, *yw);
			if (yuv)
				add_row(usum, p1 + (size_t)(y / 2) * stride1 + cleft * cstep, half * cstep, *yw);
			if (format == VP_I420)
				add_row(vsum, p2 + (size_t)(y / 2) * stride1 + cleft, half, *yw);
		}
		const float *w = xw;
		for (int x = 0; x < columns; w += xn[x], x++) {
			int at = xat[x] - left, n = xn[x];
			switch (format) {
			case VP_I420:
			case VP_NV12:
				from_yuv(dot(sum + at, 1, w, n), dot_half(usum, cstep, xat[x] - 2 * cleft, w, n),
					dot_half(vsum, cstep, xat[x] - 2 * cleft, w, n), out->coef, r + x, g + x, b + x);
				break;
			case VP_GRAY:
				r[x] = g[x] = b[x] = grey(dot(sum + at, 1, w, n));
				break;
			default:
				c0[x] = grey(dot(sum + 3 * at, 3, w, n));
				g[x] = grey(dot(sum + 3 * at + 1, 3, w, n));
				c2[x] = grey(dot(sum + 3 * at + 2, 3, w, n));
			}
		}
		store(out, dst, out->top + i, row, columns, portable);
	}
	for (int y = out->top + rows; y < out->height; y++)
		store(out, dst, y, NULL, columns, portable);
}
