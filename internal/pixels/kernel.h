// The pixel kernel: one pass over a source picture that crops, scales and converts it into the
// input of a network. pixels.go says what each value means.
#ifndef VEDETTE_PIXELS_KERNEL_H
#define VEDETTE_PIXELS_KERNEL_H

#include <stdint.h>

enum { VP_I420 = 0, VP_NV12 = 1, VP_BGR = 2, VP_RGB = 3, VP_GRAY = 4 };
enum { VP_FLOAT32 = 0, VP_UINT8 = 1 };
enum { VP_PLANAR = 0, VP_INTERLEAVED = 1 };

// What comes out.
typedef struct {
	int32_t width, height; // of the whole output
	int32_t left, top;     // where the picture lies in it
	int32_t depth, order;  // VP_FLOAT32 or VP_UINT8, VP_PLANAR or VP_INTERLEAVED
	int32_t rgb;           // 0: channels come out B, G, R; 1: R, G, B
	float scale[3];        // out = grey * scale + bias, in the order the channels come out
	float bias[3];
	float pad[3];          // what the picture does not cover, as stored
	float coef[6];         // luma offset, luma gain, V to R, U to G, V to G, U to B
} vp_output;

// vp_resample reads the picture and fills dst. xat, yat: the first of two neighbouring source
// positions for every output column and row of the picture; xw, yw: the weights of both in 1/2048,
// packed as first | second << 16; xcat, xcw: the same for the chroma columns. For the first `wide`
// columns, a multiple of eight, four-byte loads at every position stay within their row.
// scratch has room for 3 * columns floats. portable: leave wide instructions unused.
void vp_resample(int format, const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, int stride0, int stride1,
	const int32_t *xat, const int32_t *xw, const int32_t *xcat, const int32_t *xcw, int columns, int wide,
	const int32_t *yat, const int32_t *yw, int rows, int bottom, const vp_output *out, void *dst, float *scratch,
	int portable);

// vp_area is vp_resample by the mean over the area that each output covers, weighed by how much of
// a source position it covers. xat, yat: the first source position for every column and row and, one
// past the end, nothing more; xn, yn: how many; xw, yw: their weights one after the other.
// left, span: the source columns in use. scratch has room for 3 * (columns + span + 1) floats.
void vp_area(int format, const uint8_t *p0, const uint8_t *p1, const uint8_t *p2, int stride0, int stride1,
	const int32_t *xat, const int32_t *xn, const float *xw, int columns, int left, int span,
	const int32_t *yat, const int32_t *yn, const float *yw, int rows, const vp_output *out, void *dst, float *scratch);

#endif
