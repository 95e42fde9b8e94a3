package av

/*
#include <stdlib.h>
#include "av.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"unsafe"
)

// DecoderConfig says how to decode.
type DecoderConfig struct {
	Codec Codec
	// Threads used by one picture or, with FrameThreads, pictures decoded at once; 0: 1.
	Threads int
	// FrameThreads trades latency (Threads-1 pictures) for throughput: files only.
	FrameThreads bool
	// SkipNonReference leaves out pictures no other refers to.
	SkipNonReference bool
	// Hardware names an acceleration of libavutil's ("vaapi", "cuda", "vulkan", …); empty: software. Pictures come
	// back into the machine's memory.
	Hardware string
}

// Decoder decodes one stream.
type Decoder struct {
	ctx    *C.AVCodecContext
	packet *C.AVPacket
	codec  Codec
}

// NewDecoder opens a decoder. The error is ErrUnsupported when FFmpeg was built without it or, with
// Hardware, has none of that name for the codec.
func NewDecoder(cfg DecoderConfig) (*Decoder, error) {
	quiet()
	d := &Decoder{codec: cfg.Codec}
	var hardware *C.char
	if cfg.Hardware != "" {
		hardware = C.CString(cfg.Hardware)
		defer C.free(unsafe.Pointer(hardware))
	}
	err := status(C.vd_decoder_open(&d.ctx, cfg.Codec.id(), C.int(max(cfg.Threads, 1)), flag(cfg.FrameThreads), flag(cfg.SkipNonReference), hardware))
	if err != nil && hardware != nil {
		return nil, fmt.Errorf("open %s decoder on %s: %w", cfg.Codec, cfg.Hardware, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s decoder: %w", cfg.Codec, err)
	}
	if d.packet = C.av_packet_alloc(); d.packet == nil {
		C.avcodec_free_context(&d.ctx)
		return nil, fmt.Errorf("open %s decoder: out of memory", cfg.Codec)
	}
	return d, nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Send decodes one access unit (Annex B for H.264 and H.265), which takes as long as the picture
// is large. The data is copied. After Send, Receive until it says no. An error is about this
// unit alone; the decoder goes on.
func (d *Decoder) Send(data []byte, pts int64) error {
	if len(data) == 0 {
		return errors.New("decode: empty access unit")
	}
	code := C.vd_decoder_send(d.ctx, d.packet, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(data))), C.int(len(data)), C.int64_t(pts))
	if code == C.vd_again {
		return errors.New("decode: pictures were not received before the next was sent")
	}
	if err := status(code); err != nil {
		return fmt.Errorf("decode %s: %w", d.codec, err)
	}
	return nil
}

// Drain tells the decoder that nothing follows, so that Receive gives what it held back and then
// io.EOF.
func (d *Decoder) Drain() {
	C.vd_decoder_send(d.ctx, d.packet, nil, 0, 0)
}

// Flush forgets everything, as before the first Send.
func (d *Decoder) Flush() { C.avcodec_flush_buffers(d.ctx) }

// SetSkipNonReference changes DecoderConfig.SkipNonReference for what is sent next.
func (d *Decoder) SetSkipNonReference(on bool) { C.vd_decoder_skip_nonref(d.ctx, flag(on)) }

// Receive fills p with the next decoded picture, in display order. It returns false when there is
// none yet, and io.EOF after Drain when there will be none.
func (d *Decoder) Receive(p *Picture) (bool, error) {
	p.unref()
	if err := p.alloc(); err != nil {
		return false, err
	}
	var info C.vd_picture
	code := C.vd_decoder_receive(d.ctx, p.frame, &info)
	switch code {
	case C.vd_again:
		return false, nil
	case C.vd_end:
		return false, io.EOF
	}
	if err := status(code); err != nil {
		return false, fmt.Errorf("decode %s: %w", d.codec, err)
	}
	p.Width, p.Height = int(info.width), int(info.height)
	p.PTS = int64(info.pts)
	p.Key, p.Corrupt, p.FullRange = info.key != 0, info.corrupt != 0, info.full_range != 0
	p.Matrix = Matrix(info.matrix)
	return true, nil
}

// Close frees the decoder. Pictures received from it stay valid.
func (d *Decoder) Close() {
	C.av_packet_free(&d.packet)
	C.avcodec_free_context(&d.ctx)
	closed.Store(true)
}

var closed atomic.Bool //nolint:gochecknoglobals // whether a decoder was closed since the last Trim

// Trim gives the memory of closed decoders back to the system, which the C library keeps otherwise; it costs nothing where
// none was closed since the last time, and some milliseconds else.
func Trim() {
	if closed.Swap(false) {
		C.vd_trim()
	}
}

// Picture is one decoded picture, held by reference in the decoder's own memory.
type Picture struct {
	Width, Height int
	// PTS is the value given to Send with the picture's access unit.
	PTS int64
	// Key: decodable on its own.
	Key bool
	// Corrupt: the decoder had to invent parts of it.
	Corrupt bool
	// FullRange: values from 0 to 255 instead of 16 to 235.
	FullRange bool
	Matrix    Matrix

	frame *C.AVFrame
	sws   *C.struct_SwsContext
	gray  *C.struct_SwsContext
}

func (p *Picture) alloc() error {
	if p.frame == nil {
		if p.frame = C.av_frame_alloc(); p.frame == nil {
			return errors.New("allocate picture: out of memory")
		}
	}
	return nil
}

func (p *Picture) unref() {
	if p.frame != nil {
		C.av_frame_unref(p.frame)
	}
}

// Empty reports whether p holds no picture.
func (p *Picture) Empty() bool { return p.frame == nil || p.frame.width == 0 }

// I420 copies the picture into dst as tight planes (api/frame), converting other pixel formats. dst
// has at least the format's size. It takes as long as copying the bytes does.
func (p *Picture) I420(dst []byte) error {
	if p.Empty() {
		return errors.New("copy picture: there is none")
	}
	if need := p.Width*p.Height + 2*((p.Width+1)/2)*((p.Height+1)/2); len(dst) < need {
		return fmt.Errorf("copy picture: %d bytes of room, %d×%d pixels need %d", len(dst), p.Width, p.Height, need)
	}
	copied.Add(uint64(p.Width*p.Height + 2*((p.Width+1)/2)*((p.Height+1)/2)))
	if err := status(C.vd_frame_i420(p.frame, &p.sws, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(dst))))); err != nil {
		return fmt.Errorf("copy picture: %w", err)
	}
	return nil
}

var copied atomic.Uint64 //nolint:gochecknoglobals // a count of the whole process

// Copied returns how many bytes of pictures have been copied out of decoders since the process started.
func Copied() uint64 { return copied.Load() }

// Luma fills dst, tight rows of w cells, with the picture's brightness averaged into w×h cells, stretched to the full range for other than 8-bit planar formats. It reads a part of
// the pixels.
func (p *Picture) Luma(dst []byte, w, h int) error {
	if p.Empty() {
		return errors.New("average picture: there is none")
	}
	if w < 1 || h < 1 || len(dst) < w*h {
		return fmt.Errorf("average picture: %d bytes of room for %d×%d cells", len(dst), w, h)
	}
	if err := status(C.vd_frame_luma(p.frame, &p.gray, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(dst))), C.int(w), C.int(h))); err != nil {
		return fmt.Errorf("average picture: %w", err)
	}
	return nil
}

// Take makes p hold the picture that from holds, without copying pixels; from is empty afterwards.
func (p *Picture) Take(from *Picture) error {
	if err := p.alloc(); err != nil {
		return err
	}
	p.unref()
	p.Width, p.Height, p.PTS, p.Key, p.Corrupt, p.FullRange, p.Matrix = from.Width, from.Height, from.PTS, from.Key, from.Corrupt, from.FullRange, from.Matrix
	if from.frame != nil {
		C.av_frame_move_ref(p.frame, from.frame)
	}
	return nil
}

// Close gives the picture back. The zero Picture and a closed one may be used again.
func (p *Picture) Close() {
	if p.frame != nil {
		C.av_frame_free(&p.frame)
	}
	if p.sws != nil {
		C.sws_freeContext(p.sws)
		p.sws = nil
	}
	if p.gray != nil {
		C.sws_freeContext(p.gray)
		p.gray = nil
	}
}
