package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type cameraCommands struct {
	Add      cameraAdd      `cmd:"" help:"Register a camera."`
	List     cameraList     `cmd:"" help:"List the cameras."`
	Get      cameraGet      `cmd:"" help:"Show one camera."`
	Update   cameraUpdate   `cmd:"" help:"Change a camera."`
	Remove   cameraRemove   `cmd:"" aliases:"delete" help:"Forget a camera; what it saw stays."`
	Enable   cameraEnable   `cmd:"" help:"Let a disabled camera run again, and try one that waits now."`
	Disable  cameraDisable  `cmd:"" help:"Disconnect a camera and keep its registration."`
	Watch    cameraWatch    `cmd:"" help:"Print cameras as they change."`
	Snapshot cameraSnapshot `cmd:"" help:"Save the newest picture of a camera."`
	Probe    cameraProbe    `cmd:"" help:"Try an address without registering it."`
	Discover cameraDiscover `cmd:"" help:"Find ONVIF cameras on the network."`
	Dump     cameraDump     `cmd:"" help:"Capture what a camera and the box say to each other."`
}

// cameraAccess are the flags that say how to reach a camera; a nil one is not given.
type cameraAccess struct {
	Username     *string  `help:"User of the camera."`
	Password     *string  `env:"VEDETTE_CAMERA_PASSWORD" help:"Password of the camera; others on this machine can see what stands on a command line."`
	PasswordFile *string  `placeholder:"FILE" help:"File that holds the password; - reads it from standard input."`
	Transport    *string  `enum:"tcp,udp,multicast" help:"tcp, udp or multicast."`
	CAFile       *string  `name:"ca-file" placeholder:"FILE" help:"Certificates (PEM) to trust besides the system's."`
	Certificate  *string  `name:"certificate-sha256" placeholder:"HEX" help:"SHA-256 of the one certificate the camera may show."`
	Decoders     []string `placeholder:"NAME" help:"Decoders in order of preference: auto, software, nvdec, vaapi, v4l2, drm, qsv, vulkan."`
}

// cameraSettings are the flags that describe a camera; a nil one is not given.
type cameraSettings struct {
	cameraAccess
	MainAddress  *string        `help:"A second, larger stream of the same camera: live video, full pictures and clips come from it."`
	KeepMain     *bool          `help:"Keep the second stream connected, so that clips that begin before their event come from it."`
	Loop         *bool          `help:"Begin a file again at its end."`
	PreRollBytes *int64         `placeholder:"BYTES" help:"Kept in memory for clips that begin before their event; 0: 8 MiB and no more than 30 s, negative: none."`
	PrivacyMask  []string       `placeholder:"X,Y_X,Y_X,Y" sep:";" help:"Area nobody may see, its corners from 0 to 1 of width and height, such as 0,0_0.5,0_0.5,1_0,1; may be given again. Empty: none."`
	DisplayName  *string        `name:"name" help:"What people call it."`
	FPS          *float64       `name:"fps" help:"Analysed frames a second; 0: every frame."`
	Pipeline     *string        `help:"Model (ensemble) its frames go to."`
	EveryFrame   *bool          `help:"Drop no frame for being late (recorded material)."`
	Paused       *bool          `help:"Analyse nothing."`
	NoPictures   *bool          `help:"Keep no pictures of tracks and events."`
	Clip         *time.Duration `help:"Video kept before and after each event of a zone or line, such as 5s; 0s: none."`
	Priority     *string        `enum:"low,normal,high" help:"low, normal or high: who keeps its analysis when the box has too much to do."`
	MotionGate   *bool          `negatable:"" help:"Hold back frames in which nothing moves."`
	MotionIgnore []string       `placeholder:"X,Y_X,Y_X,Y" sep:";" help:"Area whose motion does not count, as for --privacy-mask; with --motion-gate."`
	Isolation    *string        `enum:"shared,camera" help:"camera: a process of its own."`
}

// apply puts what was given into source and returns the paths of it in a camera.
func (s *cameraAccess) apply(env *Env, source *vedettev1.Source) ([]string, error) {
	if s.PasswordFile != nil {
		password, err := readPassword(*s.PasswordFile, env.Stdin)
		if err != nil {
			return nil, err
		}
		s.Password = &password
	}
	var paths []string
	set := func(given bool, path string, put func()) {
		if given {
			paths = append(paths, path)
			put()
		}
	}
	set(s.Username != nil, "source.username", func() { source.Username = *s.Username })
	set(s.Password != nil, "source.password", func() { source.Password = *s.Password })
	set(s.Transport != nil, "source.transport", func() {
		source.Transport = vedettev1.Transport(vedettev1.Transport_value["TRANSPORT_"+strings.ToUpper(*s.Transport)])
	})
	if s.CAFile != nil || s.Certificate != nil {
		tls, err := s.tls()
		if err != nil {
			return nil, err
		}
		set(true, "source.tls", func() { source.Tls = tls })
	}
	set(len(s.Decoders) > 0, "source.decoders", func() { source.Decoders = s.Decoders })
	return paths, nil
}

// apply puts what was given into c and returns the paths of it.
func (s *cameraSettings) apply(env *Env, c *vedettev1.Camera) ([]string, error) {
	if c.Source == nil {
		c.Source = &vedettev1.Source{}
	}
	if c.Analysis == nil {
		c.Analysis = &vedettev1.Analysis{}
	}
	paths, err := s.cameraAccess.apply(env, c.Source)
	if err != nil {
		return nil, err
	}
	set := func(given bool, path string, put func()) {
		if given {
			paths = append(paths, path)
			put()
		}
	}
	set(s.MainAddress != nil, "source.main_uri", func() { c.Source.MainUri = *s.MainAddress })
	set(s.KeepMain != nil, "source.keep_main", func() { c.Source.KeepMain = *s.KeepMain })
	set(s.Loop != nil, "source.loop", func() { c.Source.Loop = *s.Loop })
	set(s.PreRollBytes != nil, "source.pre_roll_bytes", func() { c.Source.PreRollBytes = *s.PreRollBytes })
	if s.PrivacyMask != nil {
		masks, err := polygons("--privacy-mask", s.PrivacyMask)
		if err != nil {
			return nil, err
		}
		set(true, "privacy_masks", func() { c.PrivacyMasks = masks })
	}
	ignore, err := polygons("--motion-ignore", s.MotionIgnore)
	if err != nil {
		return nil, err
	}
	if ignore != nil && (s.MotionGate == nil || !*s.MotionGate) {
		return nil, errors.New("--motion-ignore is a part of the motion gate: give --motion-gate too")
	}
	set(s.DisplayName != nil, "display_name", func() { c.DisplayName = *s.DisplayName })
	set(s.FPS != nil, "analysis.fps", func() { c.Analysis.Fps = *s.FPS })
	set(s.Pipeline != nil, "analysis.pipeline", func() { c.Analysis.Pipeline = *s.Pipeline })
	set(s.EveryFrame != nil, "analysis.every_frame", func() { c.Analysis.EveryFrame = *s.EveryFrame })
	if (s.NoPictures != nil || s.Clip != nil) && c.GetRecording() == nil {
		c.Recording = &vedettev1.Recording{}
	}
	set(s.NoPictures != nil, "recording.no_pictures", func() { c.Recording.NoPictures = *s.NoPictures })
	set(s.Clip != nil, "recording.clip", func() { c.Recording.Clip = durationpb.New(*s.Clip) })
	set(s.Paused != nil, "analysis.paused", func() { c.Analysis.Paused = *s.Paused })
	set(s.Priority != nil, "analysis.priority", func() {
		c.Analysis.Priority = vedettev1.Priority(vedettev1.Priority_value["PRIORITY_"+strings.ToUpper(*s.Priority)])
	})
	set(s.MotionGate != nil, "analysis.motion_gate", func() {
		if c.Analysis.MotionGate = nil; *s.MotionGate {
			c.Analysis.MotionGate = &vedettev1.MotionGate{Ignore: ignore}
		}
	})
	set(s.Isolation != nil, "source.isolation", func() {
		c.Source.Isolation = vedettev1.Isolation(vedettev1.Isolation_value["ISOLATION_"+strings.ToUpper(*s.Isolation)])
	})
	return paths, nil
}

// tls says which certificate the camera may show; both flags empty: one that the system trusts.
func (s *cameraAccess) tls() (*vedettev1.CameraTls, error) {
	tls := &vedettev1.CameraTls{}
	if s.Certificate != nil {
		tls.CertificateSha256 = *s.Certificate
	}
	if s.CAFile != nil && *s.CAFile != "" {
		b, err := os.ReadFile(*s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		tls.CaPem = string(b)
	}
	return tls, nil
}

// polygons reads areas such as 0,0_0.5,0_0.5,1.
func polygons(flag string, texts []string) ([]*vedettev1.PrivacyMask, error) {
	var masks []*vedettev1.PrivacyMask
	for _, text := range texts {
		if text == "" {
			continue
		}
		mask := &vedettev1.PrivacyMask{}
		for corner := range strings.SplitSeq(text, "_") {
			x, y, ok := strings.Cut(corner, ",")
			px, errX := strconv.ParseFloat(x, 64)
			py, errY := strconv.ParseFloat(y, 64)
			if !ok || errX != nil || errY != nil {
				return nil, fmt.Errorf("%s: %q is no corner: write X,Y from 0 to 1, such as 0.25,0.5", flag, corner)
			}
			mask.Points = append(mask.Points, &vedettev1.PrivacyPoint{X: px, Y: py})
		}
		masks = append(masks, mask)
	}
	return masks, nil
}

func fullName(id string) string {
	if strings.HasPrefix(id, "cameras/") {
		return id
	}
	return "cameras/" + id
}

func shortName(name string) string { return strings.TrimPrefix(name, "cameras/") }

// overload lets a camera be analysed that does not fit.
type overload struct {
	AllowOverload bool `help:"Do it although the box's measured capacity does not suffice."`
}

type cameraAdd struct {
	client
	cameraSettings
	overload
	ID           string `arg:"" help:"Name of the camera: letters, digits and -."`
	Address      string `arg:"" help:"rtsp:// address; user and password may stand in it."`
	ValidateOnly bool   `help:"Check, but change nothing."`
}

// Run registers the camera.
func (c *cameraAdd) Run(ctx context.Context, env *Env, g *grammar) error {
	camera := &vedettev1.Camera{Source: &vedettev1.Source{Uri: c.Address}}
	if _, err := c.apply(env, camera); err != nil {
		return err
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	camera, err = vedettev1.NewCameraServiceClient(conn).CreateCamera(ctx, &vedettev1.CreateCameraRequest{
		CameraId: c.ID, Camera: camera, ValidateOnly: c.ValidateOnly, AllowOverload: c.AllowOverload,
	})
	if err != nil {
		return plain(err)
	}
	return c.print(env, camera)
}

// print shows cameras as asked.
func (c *client) print(env *Env, cameras ...*vedettev1.Camera) error {
	if c.Output == "json" {
		messages := make([]proto.Message, len(cameras))
		for i, camera := range cameras {
			messages[i] = camera
		}
		return printJSON(env.Stdout, messages...)
	}
	rows := [][]string{{"CAMERA", "STATE", "PICTURE", "ANALYSED", "SEQUENCE", "ADDRESS", "REASON"}}
	for _, camera := range cameras {
		s := camera.GetStatus()
		picture := ""
		if m := s.GetMedia(); m.GetWidth() > 0 {
			picture = fmt.Sprintf("%s %dx%d %.4g/s", m.GetCodec(), m.GetWidth(), m.GetHeight(), m.GetFps())
		}
		why := s.GetMessage()
		if why == "" {
			why = s.GetAnalysisMessage()
		}
		rows = append(rows, []string{
			shortName(camera.GetName()), strings.TrimPrefix(s.GetState().String(), "CAMERA_STATE_"), picture,
			fmt.Sprintf("%.1f/s", s.GetAnalysedFps()), strconv.FormatInt(s.GetSequence(), 10), camera.GetSource().GetUri(), why,
		})
	}
	return table(env.Stdout, rows...)
}

type cameraList struct{ client }

// Run lists all cameras.
func (c *cameraList) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var all []*vedettev1.Camera
	for token := ""; ; {
		r, err := vedettev1.NewCameraServiceClient(conn).ListCameras(ctx, &vedettev1.ListCamerasRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			return plain(err)
		}
		all = append(all, r.GetCameras()...)
		if token = r.GetNextPageToken(); token == "" {
			return c.print(env, all...)
		}
	}
}

type cameraGet struct {
	client
	ID string `arg:"" complete:"camera" help:"Name of the camera."`
}

// Run shows one camera.
func (c *cameraGet) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	camera, err := vedettev1.NewCameraServiceClient(conn).GetCamera(ctx, &vedettev1.GetCameraRequest{Name: fullName(c.ID)})
	if err != nil {
		return plain(err)
	}
	if c.Output == "json" {
		return c.print(env, camera)
	}
	return table(env.Stdout, described(camera)...)
}

// described tells what there is to know of a camera.
func described(c *vedettev1.Camera) [][]string {
	s, m, in := c.GetStatus(), c.GetStatus().GetMedia(), c.GetStatus().GetIngest()
	state := strings.TrimPrefix(s.GetState().String(), "CAMERA_STATE_")
	if t := s.GetSinceTime(); t != nil {
		state += " since " + t.AsTime().Local().Format(time.DateTime)
	}
	rows := [][]string{{"camera", shortName(c.GetName())}, {"address", c.GetSource().GetUri()}, {"state", state}}
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if s.GetMessage() != "" {
		add("reason", "%s: %s", s.GetReason(), s.GetMessage())
	}
	if t := s.GetNextRetryTime(); t != nil {
		add("next attempt", "%s; now: vedette camera enable %s", t.AsTime().Local().Format(time.DateTime), shortName(c.GetName()))
	}
	if m.GetWidth() > 0 {
		over := ""
		if in.GetTransport() != "" { // files and devices have none
			over = " over " + in.GetTransport()
		}
		keyframes := ""
		if in.GetGop() > 0 { // it has been seen for long enough
			keyframes = fmt.Sprintf(", a keyframe every %d", in.GetGop())
		}
		add("stream", "%s %dx%d%s, %.4g pictures a second, %.2f Mbit/s%s", m.GetCodec(), m.GetWidth(), m.GetHeight(), over, m.GetFps(), in.GetBitRate()/1e6, keyframes)
		decoder := in.GetDecoder()
		if why := in.GetDecoderFallback(); why != "" {
			decoder += " (instead of " + why + ")"
		}
		add("decoder", "%s; %d fallbacks, %d abandoned, %d pictures failed", decoder, in.GetDecoderFallbacks(), in.GetDecodersAbandoned(), in.GetDecodeErrors())
	}
	if in.GetGate() != "" {
		add("motion gate", "%s; %d frames held back", in.GetGate(), in.GetFramesGated())
	}
	if in.GetIsolated() {
		add("process", "its own%s", strings.TrimSuffix(": "+in.GetIsolationReason(), ": "))
	}
	add("network", "%d packets lost, connected anew %d times", in.GetPacketsLost(), in.GetReconnects())
	if in.GetApplied() != "" {
		add("last change", "%s", in.GetApplied())
	}
	add("analysis", "%.1f frames a second, sequence %d", s.GetAnalysedFps(), s.GetSequence())
	if s.GetAnalysisMessage() != "" {
		add("", "%s: %s", s.GetAnalysisReason(), s.GetAnalysisMessage())
	}
	return rows
}

type cameraUpdate struct {
	client
	cameraSettings
	overload
	ID      string  `arg:"" help:"Name of the camera."`
	Address *string `help:"New address; user and password may stand in it."`
}

// Run changes what was given.
func (c *cameraUpdate) Run(ctx context.Context, env *Env, g *grammar) error {
	camera := &vedettev1.Camera{Name: fullName(c.ID), Source: &vedettev1.Source{}}
	var paths []string
	if c.Address != nil {
		camera.Source.Uri = *c.Address
		paths = append(paths, "source.uri")
	}
	given, err := c.apply(env, camera)
	if err != nil {
		return err
	}
	paths = append(paths, given...)
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	camera, err = vedettev1.NewCameraServiceClient(conn).UpdateCamera(ctx, &vedettev1.UpdateCameraRequest{
		Camera: camera, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, AllowOverload: c.AllowOverload,
	})
	if err != nil {
		return plain(err)
	}
	return c.print(env, camera)
}

type cameraRemove struct {
	client
	ID string `arg:"" complete:"camera" help:"Name of the camera."`
}

// Run forgets the camera.
func (c *cameraRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := vedettev1.NewCameraServiceClient(conn).DeleteCamera(ctx, &vedettev1.DeleteCameraRequest{Name: fullName(c.ID)}); err != nil {
		return plain(err)
	}
	_, err = fmt.Fprintln(env.Stdout, "removed", c.ID)
	return err
}

type cameraEnable struct {
	client
	overload
	ID string `arg:"" complete:"camera" help:"Name of the camera."`
}

// Run switches the camera on.
func (c *cameraEnable) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		camera, err := vedettev1.NewCameraServiceClient(conn).EnableCamera(ctx, &vedettev1.EnableCameraRequest{Name: fullName(c.ID), AllowOverload: c.AllowOverload})
		if err != nil {
			return err
		}
		return c.print(env, camera)
	})
}

type cameraDisable struct {
	client
	ID string `arg:"" complete:"camera" help:"Name of the camera."`
}

// Run switches the camera off.
func (c *cameraDisable) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		camera, err := vedettev1.NewCameraServiceClient(conn).DisableCamera(ctx, &vedettev1.DisableCameraRequest{Name: fullName(c.ID)})
		if err != nil {
			return err
		}
		return c.print(env, camera)
	})
}

type cameraDump struct {
	client
	ID       string        `arg:"" help:"Name of the camera."`
	File     string        `arg:"" help:"Capture file to write (pcap); - is standard output. None is made when nothing comes."`
	Duration time.Duration `default:"10s" help:"How long."`
	MaxMiB   int64         `name:"max-mib" default:"64" help:"End before it grows larger."`
}

// Run writes the capture as it comes; the file is made when there is something to write.
func (c *cameraDump) Run(ctx context.Context, env *Env, g *grammar) (err error) {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stream, err := vedettev1.NewCameraServiceClient(conn).DumpPackets(ctx, &vedettev1.DumpPacketsRequest{
		Name: fullName(c.ID), Duration: durationpb.New(c.Duration), MaxBytes: c.MaxMiB << 20,
	})
	if err != nil {
		return plain(err)
	}
	var file *os.File
	defer func() {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	var first bytes.Buffer
	out := capture{to: &first}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return plain(err)
		}
		if _, err := out.Write(part.GetData()); err != nil {
			return err
		}
		if out.to != &first || out.empty() {
			continue
		}
		out.to = env.Stdout
		if c.File != "-" {
			if file, err = os.OpenFile(c.File, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
				return err
			}
			out.to = file
		}
		if _, err := first.WriteTo(out.to); err != nil {
			return err
		}
	}
	if out.empty() {
		return fmt.Errorf("camera %q and this box said nothing to each other, so nothing was written: see vedette camera get %s, and capture for longer than the pause between two attempts (--duration), or have it tried meanwhile: vedette camera enable %s", c.ID, c.ID, c.ID)
	}
	if c.File == "-" {
		return nil
	}
	what := "it holds the camera's pictures, but no user or password"
	if out.rtp == 0 {
		what = "no picture came; it holds no user or password"
	}
	_, err = fmt.Fprintf(env.Stdout, "wrote %d bytes to %s: %s; %s\n", out.written, c.File, &out, what)
	return err
}

type cameraProbe struct {
	client
	cameraAccess
	Picture string `type:"path" placeholder:"FILE" help:"Write the first picture there (JPEG)."`
	Address string `arg:"" help:"rtsp:// address; user and password may stand in it."`
}

// Run tries the address.
func (c *cameraProbe) Run(ctx context.Context, env *Env, g *grammar) error {
	source := &vedettev1.Source{Uri: c.Address}
	if _, err := c.apply(env, source); err != nil {
		return err
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r, err := vedettev1.NewCameraServiceClient(conn).ProbeCamera(ctx, &vedettev1.ProbeCameraRequest{Source: source})
	if err != nil {
		return plain(err)
	}
	if c.Output == "json" {
		return printJSON(env.Stdout, r)
	}
	if c.Picture != "" {
		if err := os.WriteFile(c.Picture, r.GetJpeg(), 0o600); err != nil {
			return err
		}
	}
	return table(env.Stdout, probed(r, strings.HasPrefix(c.Address, "rtsp"))...)
}

// probed tells what a probe saw; clocked: the camera could tell its time.
func probed(r *vedettev1.ProbeCameraResponse, clocked bool) [][]string {
	m, in := r.GetMedia(), r.GetIngest()
	clock := "not told (no sender reports)"
	if offset := in.GetClockOffset().AsDuration().Round(time.Millisecond); in.GetSenderReports() {
		switch {
		case offset > 0:
			clock = offset.String() + " ahead of this box's"
		case offset < 0:
			clock = (-offset).String() + " behind this box's"
		default:
			clock = "as this box's"
		}
	}
	keyframes := fmt.Sprintf("every %d pictures", in.GetGop())
	switch {
	case in.GetGop() == 0:
		keyframes = "not seen for long enough"
	case in.GetGop() == 1:
		keyframes = "every picture"
	case slices.ContainsFunc(r.GetWarnings(), func(w *vedettev1.ProbeWarning) bool { return w.GetKind() == "LONG_GOP" }):
		keyframes = fmt.Sprintf("%d pictures and more apart", in.GetGop())
	}
	stream := fmt.Sprintf("%s %dx%d", m.GetCodec(), m.GetWidth(), m.GetHeight())
	if in.GetTransport() != "" { // files have none
		stream += " over " + in.GetTransport()
	}
	rows := [][]string{
		{"stream", stream},
		{"rate", fmt.Sprintf("%.4g pictures a second, %.2f Mbit/s", m.GetFps(), in.GetBitRate()/1e6)},
		{"keyframes", keyframes},
		{"first picture", "after " + r.GetDuration().AsDuration().Round(time.Millisecond).String()},
	}
	if clocked {
		rows = append(rows, []string{"clock", clock})
	}
	if in.GetDecoderFallback() != "" {
		rows = append(rows, []string{"decoder", in.GetDecoder() + " (instead of " + in.GetDecoderFallback() + ")"})
	}
	for _, w := range r.GetWarnings() {
		rows = append(rows, []string{w.GetKind(), w.GetMessage()})
	}
	return rows
}

type cameraWatch struct{ client }

// Run prints changes until ctx ends.
func (c *cameraWatch) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		watch, err := vedettev1.NewCameraServiceClient(conn).WatchCameras(ctx, &vedettev1.WatchCamerasRequest{})
		if err != nil {
			return err
		}
		return follow(ctx, &c.client, env, watch.Recv, func(m *vedettev1.WatchCamerasResponse) string {
			change := m.GetChange()
			if change == nil {
				return ""
			}
			s := change.GetCamera().GetStatus()
			return fmt.Sprintf("%s  %-8s  %-12s  %-11s  %.1f/s  %s", time.Now().Format("15:04:05.000"), strings.ToLower(word(change.GetKind(), "CHANGE_KIND_")),
				shortName(change.GetCamera().GetName()), word(s.GetState(), "CAMERA_STATE_"), s.GetAnalysedFps(), s.GetMessage())
		})
	})
}

type cameraSnapshot struct {
	client
	ID       string `arg:"" complete:"camera" help:"Name of the camera."`
	To       string `placeholder:"FILE" help:"Where to save it; - is standard output. Default: CAMERA.jpg."`
	MaxWidth int32  `help:"Scaled down to this width in pixels."`
	Quality  int32  `help:"JPEG quality, 1 to 100."`
}

// Run saves the newest picture.
func (c *cameraSnapshot) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewCameraServiceClient(conn).GetSnapshot(ctx, &vedettev1.GetSnapshotRequest{Name: fullName(c.ID), MaxWidth: c.MaxWidth, Quality: c.Quality})
		if err != nil {
			return err
		}
		return save(env, orElse(c.To, c.ID+".jpg"), r.GetJpeg())
	})
}

type cameraDiscover struct {
	client
	Address      string        `arg:"" optional:"" help:"Ask this device alone: host, host:port or the address of its ONVIF service."`
	Username     string        `help:"User of the cameras, which most want before they tell their streams."`
	Password     string        `env:"VEDETTE_CAMERA_PASSWORD" help:"Password of the cameras; others on this machine can see what stands on a command line."`
	PasswordFile string        `placeholder:"FILE" help:"File that holds the password; - reads it from standard input."`
	Timeout      time.Duration `default:"5s" help:"How long to wait for answers."`
}

// Run looks for cameras.
func (c *cameraDiscover) Run(ctx context.Context, env *Env, g *grammar) error {
	if c.PasswordFile != "" {
		password, err := readPassword(c.PasswordFile, env.Stdin)
		if err != nil {
			return err
		}
		c.Password = password
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r, err := vedettev1.NewCameraServiceClient(conn).DiscoverCameras(ctx, &vedettev1.DiscoverCamerasRequest{
		Address: c.Address, Username: c.Username, Password: c.Password, Timeout: durationpb.New(c.Timeout),
	})
	if err != nil {
		return plain(err)
	}
	if c.Output == "json" {
		return printJSON(env.Stdout, r)
	}
	rows := [][]string{{"SERVICE", "DEVICE", "STREAM", "PICTURE", "CLOCK", "REASON"}}
	for _, d := range r.GetCameras() {
		device := strings.TrimSpace(strings.Join([]string{d.GetManufacturer(), d.GetModel(), d.GetDisplayName()}, " "))
		clock := ""
		if d.GetClockOffset() != nil {
			clock = fmt.Sprintf("%+ds", int(d.GetClockOffset().AsDuration().Seconds()))
		}
		if len(d.GetStreams()) == 0 {
			rows = append(rows, []string{d.GetService(), device, "", "", clock, d.GetMessage()})
		}
		for _, s := range d.GetStreams() {
			m := s.GetMedia()
			rows = append(rows, []string{d.GetService(), device, s.GetUri(), fmt.Sprintf("%s %dx%d %.4g/s", m.GetCodec(), m.GetWidth(), m.GetHeight(), m.GetFps()), clock, ""})
		}
	}
	return table(env.Stdout, rows...)
}
