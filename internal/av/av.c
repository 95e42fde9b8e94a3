#include "av.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Decoders come and go on whatever thread Go runs them on. With glibc's default of eight arenas a core each of them keeps
// its own share of freed pictures, and a process whose cameras reconnect grows for days. Two are enough: what decoders
// allocate while they work comes from their own pools.
#ifdef M_ARENA_MAX
__attribute__((constructor)) static void few_arenas(void) { mallopt(M_ARENA_MAX, 2); }
#endif

void vd_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void vd_quiet(void) { av_log_set_level(AV_LOG_QUIET); }

// The one format of the hardware that was asked for; without it the decoder gives up instead of going on in software
// behind its owner's back.
static enum AVPixelFormat hardware_format(AVCodecContext *c, const enum AVPixelFormat *offered) {
  for (; *offered != AV_PIX_FMT_NONE; offered++)
    if (*offered == (enum AVPixelFormat)(intptr_t)c->opaque) return *offered;
  return AV_PIX_FMT_NONE;
}

// Opens the device of a hardware decoder.
static int use_hardware(AVCodecContext *c, const AVCodec *codec, const char *name) {
  enum AVHWDeviceType type = av_hwdevice_find_type_by_name(name);
  if (type == AV_HWDEVICE_TYPE_NONE) return AVERROR_DECODER_NOT_FOUND;
  for (int i = 0;; i++) {
    const AVCodecHWConfig *h = avcodec_get_hw_config(codec, i);
    if (!h) return AVERROR_DECODER_NOT_FOUND;
    if (h->device_type != type || !(h->methods & AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX)) continue;
    c->opaque = (void *)(intptr_t)h->pix_fmt;
    c->get_format = hardware_format;
    return av_hwdevice_ctx_create(&c->hw_device_ctx, type, NULL, NULL, 0);
  }
}

int vd_decoder_open(AVCodecContext **out, int codec_id, int threads, int frame_threads, int skip_nonref, const char *hardware) {
  const AVCodec *codec = NULL;
  if (hardware && !strcmp(hardware, "v4l2m2m")) {
    // Not a device of libavutil's but decoders of their own: h264_v4l2m2m and so on.
    char name[64];
    snprintf(name, sizeof name, "%s_v4l2m2m", avcodec_get_name(codec_id));
    if (!(codec = avcodec_find_decoder_by_name(name))) return AVERROR_DECODER_NOT_FOUND;
    hardware = NULL;
  }
  if (!codec && codec_id == AV_CODEC_ID_AV1) codec = avcodec_find_decoder_by_name(hardware ? "av1" : "libdav1d");
  if (!codec) codec = avcodec_find_decoder(codec_id);
  if (!codec) return AVERROR_DECODER_NOT_FOUND;
  AVCodecContext *c = avcodec_alloc_context3(codec);
  if (!c) return AVERROR(ENOMEM);
  int err = hardware ? use_hardware(c, codec, hardware) : 0;
  if (err < 0) {
    avcodec_free_context(&c);
    return err;
  }
  c->thread_count = threads;
  // Frame threads hold back one picture each: only where latency does not matter.
  c->thread_type = frame_threads ? FF_THREAD_FRAME : FF_THREAD_SLICE;
  c->pkt_timebase = (AVRational){1, 90000};
  c->skip_frame = skip_nonref ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
  // Broken pictures are shown and marked, not hidden: the caller decides by their taint.
  c->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  c->flags2 |= AV_CODEC_FLAG2_SHOW_ALL;
  c->err_recognition = 0;
  // libdav1d keeps frames back by default for its frame threads.
  if (codec_id == AV_CODEC_ID_AV1 && !frame_threads && !hardware) av_opt_set_int(c->priv_data, "max_frame_delay", 1, 0);
  err = avcodec_open2(c, codec, NULL);
  if (err < 0) {
    avcodec_free_context(&c);
    return err;
  }
  *out = c;
  return 0;
}

int vd_decoder_send(AVCodecContext *c, AVPacket *p, const uint8_t *data, int n, int64_t pts) {
  if (!data) return avcodec_send_packet(c, NULL);
  // The packet has no buffer of its own, so libavcodec copies and pads the bytes.
  p->data = (uint8_t *)data;
  p->size = n;
  p->pts = pts;
  p->dts = AV_NOPTS_VALUE;
  int err = avcodec_send_packet(c, p);
  p->data = NULL;
  p->size = 0;
  return err;
}

// Replaces a picture in a device's memory by a copy in the machine's.
static int fetch(AVFrame *f) {
  AVFrame *here = av_frame_alloc();
  if (!here) return AVERROR(ENOMEM);
  int err = av_hwframe_transfer_data(here, f, 0);
  if (err >= 0) err = av_frame_copy_props(here, f);
  av_frame_unref(f);
  if (err >= 0) av_frame_move_ref(f, here);
  av_frame_free(&here);
  return err;
}

int vd_decoder_receive(AVCodecContext *c, AVFrame *f, vd_picture *info) {
  int err = avcodec_receive_frame(c, f);
  if (err < 0) return err;
  if (f->hw_frames_ctx && (err = fetch(f)) < 0) return err;
  info->width = f->width;
  info->height = f->height;
  info->pts = f->pts;
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 29, 100)
  info->key = !!(f->flags & AV_FRAME_FLAG_KEY);
#else
  info->key = f->key_frame;
#endif
  info->corrupt = (f->flags & AV_FRAME_FLAG_CORRUPT) || f->decode_error_flags;
  info->full_range = f->color_range == AVCOL_RANGE_JPEG || f->format == AV_PIX_FMT_YUVJ420P ||
                     f->format == AV_PIX_FMT_YUVJ422P || f->format == AV_PIX_FMT_YUVJ444P;
  info->matrix = f->colorspace == AVCOL_SPC_BT709 || f->colorspace == AVCOL_SPC_BT2020_NCL ? f->colorspace : 0;
  const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
  // What is no YUV becomes that of BT.601, limited.
  if (d && d->flags & AV_PIX_FMT_FLAG_RGB) info->full_range = info->matrix = 0;
  info->direct = f->format == AV_PIX_FMT_YUV420P || f->format == AV_PIX_FMT_YUVJ420P;
  return 0;
}

void vd_decoder_skip_nonref(AVCodecContext *c, int on) { c->skip_frame = on ? AVDISCARD_NONREF : AVDISCARD_DEFAULT; }

// The J formats only repeat the colour range, which swscale takes separately.
static enum AVPixelFormat plain(enum AVPixelFormat f) {
  switch (f) {
    case AV_PIX_FMT_YUVJ420P: return AV_PIX_FMT_YUV420P;
    case AV_PIX_FMT_YUVJ422P: return AV_PIX_FMT_YUV422P;
    case AV_PIX_FMT_YUVJ444P: return AV_PIX_FMT_YUV444P;
    case AV_PIX_FMT_YUVJ440P: return AV_PIX_FMT_YUV440P;
    default: return f;
  }
}

int vd_frame_i420(const AVFrame *f, struct SwsContext **sws, uint8_t *dst) {
  int w = f->width, h = f->height, cw = (w + 1) / 2, ch = (h + 1) / 2;
  uint8_t *planes[4] = {dst, dst + (size_t)w * h, dst + (size_t)w * h + (size_t)cw * ch, NULL};
  int strides[4] = {w, cw, cw, 0};
  if (plain(f->format) == AV_PIX_FMT_YUV420P) {
    av_image_copy_plane(planes[0], w, f->data[0], f->linesize[0], w, h);
    av_image_copy_plane(planes[1], cw, f->data[1], f->linesize[1], cw, ch);
    av_image_copy_plane(planes[2], cw, f->data[2], f->linesize[2], cw, ch);
    return 0;
  }
  if (f->format == AV_PIX_FMT_GRAY8) { // whose range swscale would guess
    av_image_copy_plane(planes[0], w, f->data[0], f->linesize[0], w, h);
    memset(planes[1], 128, 2 * (size_t)cw * ch);
    return 0;
  }
  *sws = sws_getCachedContext(*sws, w, h, plain(f->format), w, h, AV_PIX_FMT_YUV420P, SWS_BILINEAR, NULL, NULL, NULL);
  if (!*sws) return AVERROR(EINVAL);
  int n = sws_scale(*sws, (const uint8_t *const *)f->data, f->linesize, 0, h, planes, strides);
  return n == h ? 0 : (n < 0 ? n : AVERROR_EXTERNAL);
}

__attribute__((optimize("O3"))) static void add_row(uint16_t *restrict sums, const uint8_t *restrict row, int w) {
  for (int x = 0; x < w; x++) sums[x] += row[x];
}

int vd_frame_luma(const AVFrame *f, struct SwsContext **sws, uint8_t *dst, int dw, int dh) {
  int w = f->width, h = f->height;
  const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
  if (!d) return AVERROR(EINVAL);
  const uint64_t other = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL;
  if ((d->flags & other) || d->comp[0].depth != 8 || d->comp[0].step != 1 || d->comp[0].plane != 0 || w < dw || h < dh) {
    *sws = sws_getCachedContext(*sws, w, h, plain(f->format), dw, dh, AV_PIX_FMT_GRAY8, SWS_AREA, NULL, NULL, NULL);
    if (!*sws) return AVERROR(EINVAL);
    uint8_t *planes[4] = {dst};
    int strides[4] = {dw};
    int n = sws_scale(*sws, (const uint8_t *const *)f->data, f->linesize, 0, h, planes, strides);
    return n == dh ? 0 : (n < 0 ? n : AVERROR_EXTERNAL);
  }
  // Whole rows are added up first, which the compiler does many pixels at a time.
  uint16_t *sums = malloc(w * sizeof *sums);
  if (!sums) return AVERROR(ENOMEM);
  for (int j = 0; j < dh; j++) {
    int y0 = (int)((int64_t)h * j / dh), y1 = (int)((int64_t)h * (j + 1) / dh);
    // Four rows tell a cell's brightness as well as all of them.
    int step = (y1 - y0 + 3) / 4;
    uint32_t rows = 0;
    memset(sums, 0, w * sizeof *sums);
    for (int y = y0; y < y1; y += step, rows++) add_row(sums, f->data[0] + (ptrdiff_t)y * f->linesize[0], w);
    for (int i = 0; i < dw; i++) {
      int x0 = (int)((int64_t)w * i / dw), x1 = (int)((int64_t)w * (i + 1) / dw);
      uint32_t sum = 0, n = rows * (x1 - x0);
      for (int x = x0; x < x1; x++) sum += sums[x];
      dst[j * dw + i] = (uint8_t)((sum + n / 2) / n);
    }
  }
  free(sums);
  return 0;
}

static int fixed16(double v) { return (int)(v * (1 << 16) + (v < 0 ? -0.5 : 0.5)); }

static uint8_t clip8(int v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

// Turns the colours of full-range 4:2:0 by another matrix into those of BT.601.
static void to_bt601(AVFrame *f, int matrix) {
  double kr = 0.2126, kb = 0.0722;
  if (matrix == AVCOL_SPC_BT2020_NCL) kr = 0.2627, kb = 0.0593;
  double kg = 1 - kr - kb, r = 2 * (1 - kr), b = 2 * (1 - kb); // R = Y + r Cr, B = Y + b Cb
  double yb = 0.114 * b - 0.587 * b * kb / kg, yr = 0.299 * r - 0.587 * r * kr / kg;
  const int half = 1 << 15;
  int y_b = fixed16(yb), y_r = fixed16(yr), b_b = fixed16((b - yb) / 1.772), b_r = fixed16(-yr / 1.772),
      r_b = fixed16(-yb / 1.402), r_r = fixed16((r - yr) / 1.402);
  for (int j = 0; j < (f->height + 1) / 2; j++) {
    uint8_t *us = f->data[1] + (ptrdiff_t)j * f->linesize[1], *vs = f->data[2] + (ptrdiff_t)j * f->linesize[2];
    for (int i = 0; i < (f->width + 1) / 2; i++) {
      int cb = us[i] - 128, cr = vs[i] - 128, dy = (y_b * cb + y_r * cr + half) >> 16;
      us[i] = clip8(128 + ((b_b * cb + b_r * cr + half) >> 16));
      vs[i] = clip8(128 + ((r_b * cb + r_r * cr + half) >> 16));
      for (int y = 2 * j; y < 2 * j + 2 && y < f->height; y++) {
        uint8_t *row = f->data[0] + (ptrdiff_t)y * f->linesize[0];
        for (int x = 2 * i; x < 2 * i + 2 && x < f->width; x++) row[x] = clip8(row[x] + dy);
      }
    }
  }
}

int vd_jpeg(const uint8_t *y, const uint8_t *u, const uint8_t *v, int ystride, int cstride, int w, int h, int full_range,
            int matrix, int dw, int dh, int q, AVPacket *out) {
  const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MJPEG);
  if (!codec) return AVERROR_ENCODER_NOT_FOUND;
  int err = AVERROR(ENOMEM);
  struct SwsContext *sws = NULL;
  AVFrame *f = av_frame_alloc();
  AVCodecContext *c = avcodec_alloc_context3(codec);
  if (!f || !c) goto end;
  f->format = AV_PIX_FMT_YUVJ420P;
  f->color_range = AVCOL_RANGE_JPEG;
  f->width = dw;
  f->height = dh;
  if ((err = av_frame_get_buffer(f, 0)) < 0) goto end;
  // The ranges must be known before the context is made: it chooses a plain copy otherwise.
  sws = sws_alloc_context();
  if (!sws) goto end;
  av_opt_set_int(sws, "srcw", w, 0);
  av_opt_set_int(sws, "srch", h, 0);
  av_opt_set_int(sws, "src_format", AV_PIX_FMT_YUV420P, 0);
  av_opt_set_int(sws, "src_range", full_range, 0);
  av_opt_set_int(sws, "dstw", dw, 0);
  av_opt_set_int(sws, "dsth", dh, 0);
  av_opt_set_int(sws, "dst_format", AV_PIX_FMT_YUV420P, 0);
  av_opt_set_int(sws, "dst_range", 1, 0);
  av_opt_set_int(sws, "sws_flags", dw == w && dh == h ? SWS_POINT : SWS_AREA, 0);
  if ((err = sws_init_context(sws, NULL, NULL)) < 0) goto end;
  const uint8_t *planes[4] = {y, u, v, NULL};
  int strides[4] = {ystride, cstride, cstride, 0};
  if ((err = sws_scale(sws, planes, strides, 0, h, f->data, f->linesize)) < 0) goto end;
  if (matrix) to_bt601(f, matrix);
  c->width = dw;
  c->height = dh;
  c->pix_fmt = AV_PIX_FMT_YUVJ420P;
  c->color_range = AVCOL_RANGE_JPEG;
  c->time_base = (AVRational){1, 25};
  c->thread_count = 1;
  c->flags |= AV_CODEC_FLAG_QSCALE;
  c->global_quality = FF_QP2LAMBDA * q;
  c->qmin = 1;
  f->quality = c->global_quality;
  f->pts = 0;
  if ((err = avcodec_open2(c, codec, NULL)) < 0) goto end;
  if ((err = avcodec_send_frame(c, f)) < 0) goto end;
  err = avcodec_receive_packet(c, out);
end:
  sws_freeContext(sws);
  av_frame_free(&f);
  avcodec_free_context(&c);
  return err;
}

// libavformat brings two dozen libraries for networks along, which cost memory and are of no use to a box of cameras: it
// is loaded when the first file is opened.
static struct {
  __typeof__(&avformat_open_input) open_input;
  __typeof__(&avformat_find_stream_info) find_stream_info;
  __typeof__(&av_find_best_stream) find_best_stream;
  __typeof__(&av_read_frame) read_frame;
  __typeof__(&avformat_seek_file) seek_file;
  __typeof__(&avformat_close_input) close_input;
  int ready;
} lavf;

static void load_lavf(void) {
  void *library = dlopen("libavformat.so." AV_STRINGIFY(LIBAVFORMAT_VERSION_MAJOR), RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  lavf.open_input = dlsym(library, "avformat_open_input");
  lavf.find_stream_info = dlsym(library, "avformat_find_stream_info");
  lavf.find_best_stream = dlsym(library, "av_find_best_stream");
  lavf.read_frame = dlsym(library, "av_read_frame");
  lavf.seek_file = dlsym(library, "avformat_seek_file");
  lavf.close_input = dlsym(library, "avformat_close_input");
  lavf.ready = lavf.open_input && lavf.find_stream_info && lavf.find_best_stream && lavf.read_frame && lavf.seek_file && lavf.close_input;
}

int vd_demuxer_open(vd_demuxer *d, const char *path) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_lavf);
  if (!lavf.ready) return AVERROR_DEMUXER_NOT_FOUND;
  AVDictionary *options = NULL;
  // A playlist or a crafted container must not make the box open other files or connections.
  av_dict_set(&options, "protocol_whitelist", "file", 0);
  av_dict_set(&options, "format_whitelist", "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,mpegts,avi,h264,hevc,mjpeg,obu,ivf", 0);
  int err = lavf.open_input(&d->format, path, NULL, &options);
  av_dict_free(&options);
  if (err < 0) return err;
  if ((err = lavf.find_stream_info(d->format, NULL)) < 0) goto fail;
  d->stream = lavf.find_best_stream(d->format, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
  if (d->stream < 0) {
    err = d->stream;
    goto fail;
  }
  for (unsigned i = 0; i < d->format->nb_streams; i++)
    if ((int)i != d->stream) d->format->streams[i]->discard = AVDISCARD_ALL;
  AVStream *s = d->format->streams[d->stream];
  d->codec_id = s->codecpar->codec_id;
  d->width = s->codecpar->width;
  d->height = s->codecpar->height;
  d->time_base = s->time_base;
  d->rate = s->avg_frame_rate;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 30, 100)
  // From FFmpeg 6.1 on a raw stream is given times by a rate that was assumed; its own is here.
  const char *kind = d->format->iformat->name;
  if ((!strcmp(kind, "h264") || !strcmp(kind, "hevc")) && s->codecpar->framerate.num > 0) {
    d->rate = s->codecpar->framerate;
    d->raw = 1;
  }
#endif
  const uint8_t *matrix = NULL;
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
  const AVPacketSideData *side =
      av_packet_side_data_get(s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  if (side && side->size >= 9 * sizeof(int32_t)) matrix = side->data;
#else
  for (int i = 0; i < s->nb_side_data; i++)
    if (s->side_data[i].type == AV_PKT_DATA_DISPLAYMATRIX && s->side_data[i].size >= 9 * sizeof(int32_t)) matrix = s->side_data[i].data;
#endif
  if (matrix) d->turn = av_display_rotation_get((const int32_t *)matrix);
  if (d->turn != d->turn) d->turn = 0; // no rotation at all
  const char *name = "null";
  if (d->codec_id == AV_CODEC_ID_H264) name = "h264_mp4toannexb";
  if (d->codec_id == AV_CODEC_ID_HEVC) name = "hevc_mp4toannexb";
  const AVBitStreamFilter *filter = av_bsf_get_by_name(name);
  if (!filter) {
    err = AVERROR_BSF_NOT_FOUND;
    goto fail;
  }
  if ((err = av_bsf_alloc(filter, &d->bsf)) < 0) goto fail;
  if ((err = avcodec_parameters_copy(d->bsf->par_in, s->codecpar)) < 0) goto fail;
  d->bsf->time_base_in = s->time_base;
  if ((err = av_bsf_init(d->bsf)) < 0) goto fail;
  return 0;
fail:
  vd_demuxer_close(d);
  return err;
}

int vd_demuxer_read(vd_demuxer *d, AVPacket *p) {
  for (;;) {
    int err = av_bsf_receive_packet(d->bsf, p);
    if (err != AVERROR(EAGAIN)) return err;
    err = lavf.read_frame(d->format, p);
    if (err == AVERROR_EOF) {
      if ((err = av_bsf_send_packet(d->bsf, NULL)) < 0) return err;
      continue;
    }
    if (err < 0) return err;
    if (p->stream_index != d->stream) {
      av_packet_unref(p);
      continue;
    }
    if ((err = av_bsf_send_packet(d->bsf, p)) < 0) {
      av_packet_unref(p);
      return err;
    }
  }
}

int vd_demuxer_rewind(vd_demuxer *d) {
  av_bsf_flush(d->bsf);
  return lavf.seek_file(d->format, d->stream, INT64_MIN, 0, INT64_MAX, 0);
}

void vd_demuxer_close(vd_demuxer *d) {
  av_bsf_free(&d->bsf);
  lavf.close_input(&d->format);
}
