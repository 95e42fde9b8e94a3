package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/api/frame"
	"github.com/vedette/vedette/api/inference"
	ingestv1 "github.com/vedette/vedette/api/ingest/v1"
	"github.com/vedette/vedette/internal/mmap"
	"github.com/vedette/vedette/internal/unixmsg"
	"github.com/vedette/vedette/tracker"
	"github.com/vedette/vedette/tracker/rows"
)

// ingestPeer speaks the ingest sidecar's contract on a real socket.
type ingestPeer struct {
	t        *testing.T
	path     string
	listener *net.UnixListener
	wg       sync.WaitGroup

	mu   sync.Mutex
	conn *unixmsg.Conn

	cameras  chan *ingestv1.SetCameras
	released chan uint64
	lease    uint64
	// pictures answers requests for pictures; set it before frames are announced.
	pictures func(*ingestv1.GetPicture) *ingestv1.Picture
}

func startIngest(t *testing.T, path string) *ingestPeer {
	t.Helper()
	_ = os.Remove(path)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &ingestPeer{t: t, path: path, listener: ln, cameras: make(chan *ingestv1.SetCameras, 100), released: make(chan uint64, 1000)}
	p.pictures = func(q *ingestv1.GetPicture) *ingestv1.Picture {
		return &ingestv1.Picture{Jpeg: []byte("jpeg of " + q.GetCamera())}
	}
	p.wg.Go(p.serve)
	t.Cleanup(p.stop)
	return p
}

// stop is what a crash looks like from outside.
func (p *ingestPeer) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *ingestPeer) serve() {
	for {
		raw, err := p.listener.AcceptUnix()
		if err != nil {
			return
		}
		conn := unixmsg.New(raw)
		p.mu.Lock()
		p.conn = conn
		p.mu.Unlock()
		p.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Hello{Hello: &ingestv1.Hello{Contract: ingestv1.Contract(), Program: "peer"}}})
		for {
			b, _, err := conn.Receive()
			if err != nil {
				break
			}
			m := &ingestv1.ToIngest{}
			if err := proto.Unmarshal(b, m); err != nil {
				p.t.Errorf("the pipeline sent what is no message: %v", err)
				break
			}
			if m.GetSetCameras() != nil {
				p.cameras <- m.GetSetCameras()
			}
			for _, id := range m.GetReleaseLease().GetLeaseIds() {
				p.released <- id
			}
			if q := m.GetGetPicture(); q != nil {
				answer := p.pictures(q)
				answer.RequestId = q.GetRequestId()
				p.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_Picture{Picture: answer}})
			}
		}
	}
}

func (p *ingestPeer) send(m *ingestv1.FromIngest, files ...*os.File) {
	b, err := proto.Marshal(m)
	if err != nil {
		p.t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		_ = p.conn.Send(b, files...)
	}
}

const (
	width, height = 64, 48
	slots         = 8
)

// open begins a stream epoch.
func (p *ingestPeer) open(camera, epoch string, captureNS int64) {
	p.t.Helper()
	layout, err := frame.LayoutFor(slots, frame.I420, width, height)
	if err != nil {
		p.t.Fatal(err)
	}
	mem, err := mmap.Create(epoch, layout.Size())
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	if err := frame.PutLayout(mem.Bytes(), layout); err != nil {
		p.t.Fatal(err)
	}
	p.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsOpened{SlotsOpened: &ingestv1.SlotsOpened{
		Camera: camera, StreamEpoch: epoch, SlotCount: slots, SlotBytes: uint64(layout.SlotBytes), Width: width, Height: height,
		Format: ingestv1.PixelFormat_PIXEL_FORMAT_I420, Reason: ingestv1.EpochReason_EPOCH_REASON_FIRST, CaptureTimeNs: captureNS,
		RegionBytes: uint64(layout.Size()),
	}}}, mem.File())
}

func (p *ingestPeer) close(camera, epoch string) {
	p.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_SlotsClosed{SlotsClosed: &ingestv1.SlotsClosed{Camera: camera, StreamEpoch: epoch}}})
}

// announce sends a notice and returns its lease; held says that the motion gate made the frame wait.
func (p *ingestPeer) announce(camera, epoch string, number uint64, captureNS, ageNS int64, held ...bool) uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		p.t.Error(err)
	}
	p.lease++
	p.send(&ingestv1.FromIngest{Message: &ingestv1.FromIngest_FrameNotice{FrameNotice: &ingestv1.FrameNotice{
		Camera: camera, StreamEpoch: epoch, Slot: uint32(number % slots), Generation: 2 + 2*number, LeaseId: p.lease, Number: number,
		CaptureTimeNs: captureNS, ReceiveTimeNs: captureNS, ReceiveMonotonicNs: now.Nano() - ageNS,
		Format: ingestv1.PixelFormat_PIXEL_FORMAT_I420, Width: width, Height: height, Held: len(held) > 0 && held[0],
	}}})
	return p.lease
}

// inferPeer speaks the inference sidecar's contracts on real sockets.
type inferPeer struct {
	inference.UnimplementedGRPCInferenceServiceServer
	t      *testing.T
	server *grpc.Server
	door   *net.UnixListener
	wg     sync.WaitGroup

	// Requests of all streams in the order they came. The test answers each.
	requests chan *inferRequest

	mu      sync.Mutex
	doors   []*net.UnixConn
	regions map[string]bool
	missing bool           // the pipeline is not ready
	ended   map[int64]bool // sequences that got their END
	loaded  []string       // models that were loaded anew
	stall   chan struct{}  // while open, nothing is answered
}

type inferRequest struct {
	*inference.ModelInferRequest
	stream grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]
}

func startInfer(t *testing.T, dir string) *inferPeer {
	t.Helper()
	p := &inferPeer{t: t, server: grpc.NewServer(), requests: make(chan *inferRequest, 100), regions: map[string]bool{}, ended: map[int64]bool{}}
	inference.RegisterGRPCInferenceServiceServer(p.server, p)
	_ = os.Remove(filepath.Join(dir, "infer.sock"))
	_ = os.Remove(filepath.Join(dir, "door.sock"))
	ln, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "infer.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if p.door, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "door.sock"), Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	p.wg.Go(func() { _ = p.server.Serve(ln) })
	p.wg.Go(p.serveDoor)
	t.Cleanup(p.stop)
	return p
}

func (p *inferPeer) stop() {
	_ = p.door.Close()
	p.mu.Lock()
	for _, c := range p.doors {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.server.Stop()
	p.wg.Wait()
}

func (p *inferPeer) serveDoor() {
	for {
		conn, err := p.door.AcceptUnix()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.doors = append(p.doors, conn)
		p.mu.Unlock()
		p.wg.Go(func() { p.serveOrders(conn) })
	}
}

func (p *inferPeer) serveOrders(conn *net.UnixConn) {
	b, oob := make([]byte, 4096), make([]byte, 64)
	for {
		n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		var o struct {
			Region   string `json:"region"`
			ByteSize uint64 `json:"byte_size"`
			Drop     bool   `json:"drop"`
		}
		if err := json.Unmarshal(b[:n], &o); err != nil {
			p.t.Errorf("order at the door: %v", err)
		}
		messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
		fds := 0
		for i := range messages {
			rights, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range rights {
				fds++
				_ = unix.Close(fd)
			}
		}
		if !o.Drop && fds != 1 {
			p.t.Errorf("region %q came with %d descriptors", o.Region, fds)
		}
		p.mu.Lock()
		p.regions[o.Region] = !o.Drop
		p.mu.Unlock()
		_, _ = conn.Write([]byte(`{}`))
	}
}

func (p *inferPeer) ServerLive(ctx context.Context, _ *inference.ServerLiveRequest) (*inference.ServerLiveResponse, error) {
	p.mu.Lock()
	stall := p.stall
	p.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-ctx.Done():
		}
	}
	return &inference.ServerLiveResponse{Live: true}, nil
}

func (p *inferPeer) ModelReady(_ context.Context, r *inference.ModelReadyRequest) (*inference.ModelReadyResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing {
		return nil, status.Errorf(codes.NotFound, "Request for unknown model: '%s' is not found", r.GetName())
	}
	return &inference.ModelReadyResponse{Ready: true}, nil
}

func (p *inferPeer) RepositoryModelLoad(_ context.Context, r *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.GetParameters()["replace"].GetBoolParam() {
		p.loaded = append(p.loaded, r.GetModelName())
	}
	return &inference.RepositoryModelLoadResponse{}, nil
}

func (p *inferPeer) RepositoryIndex(context.Context, *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	return &inference.RepositoryIndexResponse{Models: []*inference.RepositoryIndexResponse_ModelIndex{
		{Name: "pipeline", State: "UNAVAILABLE", Reason: "ensemble 'pipeline' depends on 'detector'"},
		{Name: "detector", State: "UNAVAILABLE", Reason: "the library is not there"},
		{Name: "other", State: "UNAVAILABLE", Reason: "broken"},
	}}, nil
}

func (p *inferPeer) ModelMetadata(context.Context, *inference.ModelMetadataRequest) (*inference.ModelMetadataResponse, error) {
	return &inference.ModelMetadataResponse{Versions: []string{"1", "3"}}, nil
}

func (p *inferPeer) ModelConfig(_ context.Context, r *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	c := &inference.ModelConfig{Name: r.GetName()}
	switch r.GetName() {
	case "tracker":
		c.MaxBatchSize = 16
	default:
		c.MaxBatchSize = 1
		c.SchedulingChoice = &inference.ModelConfig_EnsembleScheduling{EnsembleScheduling: &inference.ModelEnsembling{Step: []*inference.ModelEnsembling_Step{
			{ModelName: "tracker", OutputMap: map[string]string{"TRACKS": "TRACKS"}},
		}}}
		c.Parameters = map[string]*inference.ModelParameter{"labels": {StringValue: "person,bicycle,car"}}
	}
	return &inference.ModelConfigResponse{Config: c}, nil
}

func (p *inferPeer) ModelStreamInfer(s grpc.BidiStreamingServer[inference.ModelInferRequest, inference.ModelStreamInferResponse]) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		q := &inferRequest{ModelInferRequest: r, stream: s}
		if q.end() {
			p.mu.Lock()
			p.ended[q.sequence()] = true
			p.mu.Unlock()
		}
		p.requests <- q
	}
}

// answer sends tracks back.
func (r *inferRequest) answer(t *testing.T, tracks ...tracker.Track) {
	t.Helper()
	data, ids := rows.AppendTracks(nil, nil, tracks)
	n := int64(len(tracks))
	m := &inference.ModelStreamInferResponse{InferResponse: &inference.ModelInferResponse{
		Id: r.GetId(), ModelName: r.GetModelName(), RawOutputContents: [][]byte{data, ids},
		Outputs: []*inference.ModelInferResponse_InferOutputTensor{
			{Name: "TRACKS", Datatype: "FP32", Shape: []int64{1, n, 8}}, {Name: "TRACK_ID", Datatype: "INT64", Shape: []int64{1, n}},
		},
	}}
	if r.GetParameters()["step_times"].GetBoolParam() {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Error(err)
		}
		m.InferResponse.Parameters = map[string]*inference.InferParameter{
			"step_times": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: fmt.Sprintf("tracker=%d", now.Nano())}},
		}
	}
	if err := r.stream.Send(m); err != nil && r.stream.Context().Err() == nil { // nobody waits for it any more otherwise
		t.Errorf("answer %s: %v", r.GetId(), err)
	}
}

func (r *inferRequest) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	m := &inference.ModelStreamInferResponse{ErrorMessage: fmt.Sprintf(format, args...), InferResponse: &inference.ModelInferResponse{Id: r.GetId()}}
	if err := r.stream.Send(m); err != nil {
		t.Errorf("answer %s: %v", r.GetId(), err)
	}
}

func (r *inferRequest) flag(name string) bool { return r.GetParameters()[name].GetBoolParam() }
func (r *inferRequest) sequence() int64       { return r.GetParameters()["sequence_id"].GetInt64Param() }

func (r *inferRequest) start() bool { return r.GetModelName() == "tracker" && r.flag("sequence_start") }

func (r *inferRequest) end() bool     { return r.GetModelName() == "tracker" && r.flag("sequence_end") }
func (r *inferRequest) isFrame() bool { return r.GetModelName() == "pipeline" }
func (r *inferRequest) input(name string) *inference.ModelInferRequest_InferInputTensor {
	for _, in := range r.GetInputs() {
		if in.GetName() == name {
			return in
		}
	}
	return nil
}
