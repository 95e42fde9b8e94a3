// Package av turns coded pictures into pixels and pixels into JPEG, by libavcodec, libavformat and
// libswscale of FFmpeg 5.1 to 7.x.
//
// No C type leaves the package and C never calls Go. A Decoder, a Picture or a Demuxer is used by one
// goroutine at a time; different ones are independent. Every method that takes longer than a few
// microseconds says so.
package av

/*
#cgo pkg-config: libavcodec libavutil libswscale
#cgo LDFLAGS: -ldl
#include "av.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// Codec is a video codec this package decodes.
type Codec int

// The codecs.
const (
	H264 Codec = iota + 1
	H265
	MJPEG
	AV1
)

// String returns the codec's usual name.
func (c Codec) String() string {
	switch c {
	case H264:
		return "H.264"
	case H265:
		return "H.265"
	case MJPEG:
		return "MJPEG"
	case AV1:
		return "AV1"
	default:
		return fmt.Sprintf("codec %d", int(c))
	}
}

func (c Codec) id() C.int {
	switch c {
	case H264:
		return C.AV_CODEC_ID_H264
	case H265:
		return C.AV_CODEC_ID_HEVC
	case MJPEG:
		return C.AV_CODEC_ID_MJPEG
	case AV1:
		return C.AV_CODEC_ID_AV1
	default:
		return C.AV_CODEC_ID_NONE
	}
}

func codecOf(id C.int) Codec {
	for c := H264; c <= AV1; c++ {
		if c.id() == id {
			return c
		}
	}
	return 0
}

// ErrUnsupported says: this build of FFmpeg cannot decode the codec.
var ErrUnsupported = errors.New("no decoder for it in this build of libavcodec")

// ErrNoVideo says that a file holds nothing that is decoded here.
var ErrNoVideo = errors.New("no video in H.264, H.265, MJPEG or AV1")

// ErrNoDemuxer says that libavformat, which is loaded when the first file is opened, is not installed.
var ErrNoDemuxer = fmt.Errorf("files cannot be read without libavformat.so.%d: install it", C.LIBAVFORMAT_VERSION_MAJOR)

// quiet keeps libav from writing to the terminal; what it has to say comes back as errors and taints.
var quiet = sync.OnceFunc(func() { C.vd_quiet() }) //nolint:gochecknoglobals // once per process: libav's log level is process-wide

// status turns an AVERROR into an error; 0 and above are none.
func status(code C.int) error {
	switch {
	case code >= 0:
		return nil
	case code == C.vd_nodecoder:
		return ErrUnsupported
	case code == C.vd_nostream:
		return ErrNoVideo
	case code == C.vd_nodemuxer:
		return ErrNoDemuxer
	case code == C.vd_noent:
		return fs.ErrNotExist
	case code == C.vd_access:
		return fs.ErrPermission
	}
	var b [C.AV_ERROR_MAX_STRING_SIZE]C.char
	C.av_strerror(code, &b[0], C.size_t(len(b)))
	return errors.New(C.GoString(&b[0]))
}

// Version returns the version of libavcodec in use, for diagnosis.
func Version() string {
	v := uint(C.avcodec_version())
	return fmt.Sprintf("libavcodec %d.%d.%d", v>>16, v>>8&0xFF, v&0xFF)
}
