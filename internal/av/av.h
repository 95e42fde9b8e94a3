// C side of package av: flat functions over libavcodec, libavformat and libswscale, written against
// what FFmpeg 5.1 to 7.x have in common. Every function returns 0 or a negative AVERROR.
#ifndef VEDETTE_AV_H
#define VEDETTE_AV_H

#include <stdint.h>

#include <libavcodec/avcodec.h>
#include <libavcodec/bsf.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/hwcontext.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

// AVERROR codes that mean something to Go.
enum {
  vd_again = AVERROR(EAGAIN),
  vd_end = AVERROR_EOF,
  vd_nodecoder = AVERROR_DECODER_NOT_FOUND,
  vd_noent = AVERROR(ENOENT),
  vd_access = AVERROR(EACCES),
  vd_nostream = AVERROR_STREAM_NOT_FOUND,
  vd_nodemuxer = AVERROR_DEMUXER_NOT_FOUND,
};

// What Go wants to know of a decoded picture.
typedef struct {
  int width, height;
  int64_t pts;
  int key;
  int corrupt;
  int full_range;
  int direct;  // planes are I420 already
  int matrix; // AVCOL_SPC_BT709, AVCOL_SPC_BT2020_NCL, or 0: BT.601
} vd_picture;

int vd_decoder_open(AVCodecContext **out, int codec_id, int threads, int frame_threads, int skip_nonref, const char *hardware);
int vd_decoder_send(AVCodecContext *c, AVPacket *p, const uint8_t *data, int n, int64_t pts);
int vd_decoder_receive(AVCodecContext *c, AVFrame *f, vd_picture *info);
void vd_decoder_skip_nonref(AVCodecContext *c, int on);

// Copies a picture into tight I420 planes; sws is kept for the next call and may be NULL.
int vd_frame_i420(const AVFrame *f, struct SwsContext **sws, uint8_t *dst);

// Averages the brightness of a picture into dw×dh cells.
int vd_frame_luma(const AVFrame *f, struct SwsContext **sws, uint8_t *dst, int dw, int dh);

// Encodes part of an I420 picture, scaled to dw×dh, as JPEG, whose colours are those of BT.601.
int vd_jpeg(const uint8_t *y, const uint8_t *u, const uint8_t *v, int ystride, int cstride, int w, int h, int full_range,
            int matrix, int dw, int dh, int q, AVPacket *out);

typedef struct {
  AVFormatContext *format;
  AVBSFContext *bsf;
  int stream;
  int codec_id;
  int width, height;
  AVRational time_base;
  AVRational rate;
  int raw; // no times of its own
  double turn; // degrees counterclockwise that a player is asked for
} vd_demuxer;

int vd_demuxer_open(vd_demuxer *d, const char *path);
int vd_demuxer_read(vd_demuxer *d, AVPacket *p);
int vd_demuxer_rewind(vd_demuxer *d);
void vd_demuxer_close(vd_demuxer *d);

// Gives freed memory back to the system.
void vd_trim(void);
void vd_quiet(void);

#endif
