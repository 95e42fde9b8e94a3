//go:build amd64 || arm64 || riscv64

// Package v4l2 captures pictures from a video device of Linux (/dev/video0) by the kernel's interface of that name, with
// mapped buffers: https://docs.kernel.org/userspace-api/media/v4l/.
//
// The layouts are those of 64-bit systems. A Device is used by one goroutine at a time; only Interrupt may be called by another.
package v4l2

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FourCC is a pixel format as the kernel numbers them.
type FourCC uint32

// The pixel formats that are of use.
const (
	MJPEG FourCC = 'M' | 'J'<<8 | 'P'<<16 | 'G'<<24
	JPEG  FourCC = 'J' | 'P'<<8 | 'E'<<16 | 'G'<<24
	H264  FourCC = 'H' | '2'<<8 | '6'<<16 | '4'<<24
	YUYV  FourCC = 'Y' | 'U'<<8 | 'Y'<<16 | 'V'<<24
)

// String returns the four characters.
func (f FourCC) String() string {
	return string([]byte{byte(f), byte(f >> 8), byte(f >> 16), byte(f >> 24)})
}

// Format of the pictures.
type Format struct {
	Pixels        FourCC
	Width, Height int
	// Stride is the bytes from one row to the next; 0: the format has no rows.
	Stride int
}

// Picture is one buffer.
type Picture struct {
	// Data is a copy.
	Data []byte
	// Taken is when the first byte was captured, on CLOCK_MONOTONIC; 0: the driver does not say.
	Taken time.Duration
	// Damaged: the driver says that data may be wrong. Sequence counts pictures, those that nobody took too.
	Damaged  bool
	Sequence uint32
}

// ErrNotCapturing says that a device is no source of pictures.
var ErrNotCapturing = errors.New("it is not a video device that captures: cameras often have a second device for metadata; try the other one")

// ErrInterrupted is returned by Read after Interrupt.
var ErrInterrupted = errors.New("interrupted")

// Device is an open video device.
type Device struct {
	fd, wake int
	buffers  [][]byte
}

// Open opens a device and checks that it captures. Errors are those of the system (fs.ErrNotExist, fs.ErrPermission, …) or ErrNotCapturing.
func Open(path string) (*Device, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Device{fd: fd, wake: -1}
	var c capability
	if err := d.call(querycap, unsafe.Pointer(&c)); err != nil {
		d.Close()
		return nil, fmt.Errorf("open %s: %w", path, ErrNotCapturing)
	}
	can := c.Capabilities
	if can&hasDeviceCaps != 0 {
		can = c.DeviceCaps
	}
	if can&captures == 0 || can&streams == 0 {
		d.Close()
		return nil, fmt.Errorf("open %s: %w", path, ErrNotCapturing)
	}
	if d.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		d.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return d, nil
}

// Formats lists what the device can deliver.
func (d *Device) Formats() []FourCC {
	var all []FourCC
	for i := range uint32(64) {
		f := description{Index: i, Type: capture}
		if d.call(enumFormat, unsafe.Pointer(&f)) != nil {
			break
		}
		all = append(all, FourCC(f.Pixels))
	}
	return all
}

// Start asks for a format and a rate in pictures a second (0: the device's own) and begins to capture. The driver may choose
// another size and rate; the format is what it chose.
func (d *Device) Start(want Format, rate float64) (Format, error) {
	f := format{Type: capture}
	f.Width, f.Height, f.Pixels = uint32(want.Width), uint32(want.Height), uint32(want.Pixels)
	if err := d.call(setFormat, unsafe.Pointer(&f)); err != nil {
		return Format{}, fmt.Errorf("set the format: %w", err)
	}
	if rate > 0 {
		// Devices with one rate refuse; they keep it.
		p := parameters{Type: capture, Numerator: 1000, Denominator: uint32(rate * 1000)}
		_ = d.call(setParameters, unsafe.Pointer(&p))
	}
	if err := d.mapBuffers(); err != nil {
		return Format{}, err
	}
	kind := uint32(capture)
	if err := d.call(streamOn, unsafe.Pointer(&kind)); err != nil {
		return Format{}, fmt.Errorf("begin to capture: %w", err)
	}
	got := Format{Pixels: FourCC(f.Pixels), Width: int(f.Width), Height: int(f.Height)}
	if got.Pixels == YUYV {
		got.Stride = max(int(f.BytesPerLine), 2*got.Width)
	}
	return got, nil
}

func (d *Device) mapBuffers() error {
	r := request{Count: 4, Type: capture, Memory: mapped}
	if err := d.call(requestBuffers, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("ask for buffers: %w", err)
	}
	for i := range r.Count {
		b := buffer{Index: i, Type: capture, Memory: mapped}
		if err := d.call(queryBuffer, unsafe.Pointer(&b)); err != nil {
			return fmt.Errorf("ask for a buffer: %w", err)
		}
		m, err := unix.Mmap(d.fd, int64(uint32(b.Offset)), int(b.Length), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map a buffer: %w", err)
		}
		d.buffers = append(d.buffers, m)
		if err := d.call(enqueue, unsafe.Pointer(&b)); err != nil {
			return fmt.Errorf("hand over a buffer: %w", err)
		}
	}
	return nil
}

// Read waits for the next picture. It ends with ErrInterrupted, or with the system's error: ENODEV when the device was unplugged.
func (d *Device) Read() (Picture, error) {
	for {
		b := buffer{Type: capture, Memory: mapped}
		err := d.call(dequeue, unsafe.Pointer(&b))
		if err == nil {
			return d.take(&b)
		}
		if !errors.Is(err, unix.EAGAIN) {
			return Picture{}, fmt.Errorf("take a picture: %w", err)
		}
		fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}, {Fd: int32(d.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return Picture{}, fmt.Errorf("wait for a picture: %w", err)
		}
		if fds[1].Revents != 0 {
			return Picture{}, ErrInterrupted
		}
		if fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 && fds[0].Revents&unix.POLLIN == 0 {
			return Picture{}, fmt.Errorf("wait for a picture: %w", unix.ENODEV)
		}
	}
}

// take copies a buffer and hands it back.
func (d *Device) take(b *buffer) (Picture, error) {
	if int(b.Index) >= len(d.buffers) || int(b.Used) > len(d.buffers[b.Index]) {
		return Picture{}, fmt.Errorf("take a picture: %w", unix.EIO)
	}
	p := Picture{Data: append([]byte(nil), d.buffers[b.Index][:b.Used]...), Damaged: b.Flags&bufferError != 0, Sequence: b.Sequence}
	if b.Flags&timestampMask == timestampMonotonic {
		p.Taken = time.Duration(b.Seconds)*time.Second + time.Duration(b.Microseconds)*time.Microsecond
	}
	if err := d.call(enqueue, unsafe.Pointer(b)); err != nil {
		return Picture{}, fmt.Errorf("hand over a buffer: %w", err)
	}
	return p, nil
}

// Interrupt ends a Read under way, and every later one. It may be called by any goroutine before Close.
func (d *Device) Interrupt() { _, _ = unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Close ends the capture.
func (d *Device) Close() {
	kind := uint32(capture)
	_ = d.call(streamOff, unsafe.Pointer(&kind))
	for _, b := range d.buffers {
		_ = unix.Munmap(b)
	}
	d.buffers = nil
	_ = unix.Close(d.fd)
	if d.wake >= 0 {
		_ = unix.Close(d.wake)
	}
}

func (d *Device) call(request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), request, uintptr(argument))
		switch e {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return e
		}
	}
}
