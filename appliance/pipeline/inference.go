package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/appliance/pipeline/collect"
	"github.com/vedette/vedette/internal/pause"
)

// errInferenceGone is the cause with which a session ends.
var errInferenceGone = errors.New("the inference sidecar is gone")

// session is one run of the inference sidecar, as this process sees it: from the moment it answers until its
// connection ends. Everything it was told is forgotten with it.
type session struct {
	ctx    context.Context //nolint:containedctx // the session's own life, which requests share
	client inference.GRPCInferenceServiceClient
	// modelDir is where label files are; empty: nowhere.
	modelDir string

	// end gives the session up: the sidecar does not answer.
	end func()

	door   sync.Mutex // one order at a time
	packet *net.UnixConn

	mu     sync.Mutex // guards models
	models map[string]*model
}

// model is what the appliance needs to know of a pipeline.
type model struct {
	name, version string
	tracker       string   // the sequence model within it
	labels        []string // names of the classes
	batched       bool     // the pipeline's tensors have a batch dimension
	observed      bool     // the pipeline takes OBSERVED
	// trackerBatched: the tracker's tensors have a batch dimension.
	trackerBatched bool
	// stages are the names of its steps in timings, by model.
	stages map[string]string
	// detector is the step that takes the time, and limits what the pipeline is given at once.
	detector string
	limits   collect.Limits
}

// class names a class.
func (m *model) class(n int) string {
	if n >= 0 && n < len(m.labels) && m.labels[n] != "" {
		return m.labels[n]
	}
	return "class-" + strconv.Itoa(n)
}

// doorOrder and doorAnswer are the messages at the sidecar's door for memory.
type doorOrder struct {
	Region   string `json:"region"`
	ByteSize uint64 `json:"byte_size,omitempty"`
	Drop     bool   `json:"drop,omitempty"`
	Restart  string `json:"restart,omitempty"`
}

type doorAnswer struct {
	Error string `json:"error,omitempty"`
}

// serve keeps a session open for as long as ctx lasts, and calls opened and closed at its ends.
func (l *inferenceLink) serve(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+l.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)), grpc.WithConnectParams(fastReconnect()))
	if err != nil {
		return fmt.Errorf("prepare the connection to inference: %w", err)
	}
	defer func() { _ = conn.Close() }()
	client := inference.NewGRPCInferenceServiceClient(conn)
	var silentSince time.Time
	for ctx.Err() == nil {
		err := l.once(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		l.closed(err)
		switch {
		case status.Code(err) != codes.DeadlineExceeded:
			silentSince = time.Time{}
		case silentSince.IsZero():
			silentSince = time.Now()
		case time.Since(silentSince) >= l.patience:
			silentSince = time.Time{}
			l.silent("it takes connections and answers nothing")
		}
		pause.For(ctx, l.retry)
	}
	return nil
}

// inferenceLink finds the sidecar again and again.
type inferenceLink struct {
	socket, doorSocket, modelDir string
	retry                        time.Duration
	logger                       *slog.Logger
	opened                       func(*session)
	closed                       func(error)
	// alive is called whenever the session answers, which it is asked to in pauses of ask.
	alive func()
	ask   time.Duration
	// silent is called when the sidecar takes connections and answers nothing for as long as patience.
	silent   func(reason string)
	patience time.Duration
}

// once is one session: it returns when the sidecar is not there, or is gone.
func (l *inferenceLink) once(ctx context.Context, client inference.GRPCInferenceServiceClient) error {
	packet, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.doorSocket, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("reach inference: %w", err)
	}
	defer func() { _ = packet.Close() }()
	// Orders and their answers pass through packet; the end of this one, which stays silent, is the sidecar's.
	pulse, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.doorSocket, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("reach inference: %w", err)
	}
	defer func() { _ = pulse.Close() }()
	ready, cancelReady := context.WithTimeout(ctx, 2*time.Second)
	defer cancelReady()
	if _, err := client.ServerLive(ready, &inference.ServerLiveRequest{}, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("reach inference: %w", err)
	}
	sessionCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(errInferenceGone)
	s := &session{
		ctx: sessionCtx, client: client, packet: packet, modelDir: l.modelDir, models: map[string]*model{},
		end: func() { _ = pulse.Close() },
	}
	stop := context.AfterFunc(ctx, func() { _ = pulse.Close() })
	defer stop()
	l.opened(s)
	l.logger.Info("inference connected")
	var asking sync.WaitGroup
	asking.Go(func() { l.pulse(sessionCtx, client) })
	_, _ = pulse.Read(make([]byte, 1))
	cancel(errInferenceGone)
	asking.Wait()
	return errInferenceGone
}

// pulse asks whether the sidecar answers, and notes it, until ctx ends. While it is stopped, one question waits.
func (l *inferenceLink) pulse(ctx context.Context, client inference.GRPCInferenceServiceClient) {
	for ctx.Err() == nil {
		if _, err := client.ServerLive(ctx, &inference.ServerLiveRequest{}); err == nil {
			l.alive()
		}
		pause.For(ctx, l.ask)
	}
}

// adopt makes the memory of a stream epoch known to the sidecar under a name.
func (s *session) adopt(name string, file *os.File, size uint64) error {
	if err := s.order(doorOrder{Region: name, ByteSize: size}, file); err != nil {
		return fmt.Errorf("hand memory over to inference: %w", err)
	}
	return nil
}

// drop makes the sidecar forget memory.
func (s *session) drop(name string) {
	_ = s.order(doorOrder{Region: name, Drop: true}, nil) // gone with the session otherwise
}

const doorTimeout = 2 * time.Second

func (s *session) order(o doorOrder, file *os.File) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	s.door.Lock()
	defer s.door.Unlock()
	if err := s.packet.SetDeadline(time.Now().Add(doorTimeout)); err != nil {
		return err
	}
	if _, _, err := s.packet.WriteMsgUnix(b, rights, nil); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, err := s.packet.Read(answer)
	if err != nil {
		s.end() // an answer that comes late would be taken for that to another order
		return err
	}
	var a doorAnswer
	if err := json.Unmarshal(answer[:n], &a); err != nil {
		return fmt.Errorf("answer at the door: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// model finds out about a pipeline, once a session.
func (s *session) model(ctx context.Context, name string) (*model, error) {
	s.mu.Lock()
	m := s.models[name]
	s.mu.Unlock()
	if m != nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ready, err := s.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: name})
	if err != nil || !ready.GetReady() {
		return nil, s.notReady(ctx, name, err)
	}
	m = &model{name: name}
	config, err := s.config(ctx, name)
	if err != nil {
		return nil, err
	}
	meta, err := s.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("metadata of model %q: %w", name, err)
	}
	if v := meta.GetVersions(); len(v) > 0 {
		m.version = v[len(v)-1]
	}
	if m.tracker = sequenceStep(config); m.tracker == "" {
		return nil, fmt.Errorf("%w: %q: none of its steps makes %s", errModelUnsuitable, name, tensorTracks)
	}
	tracker, err := s.config(ctx, m.tracker)
	if err != nil {
		return nil, err
	}
	m.batched, m.trackerBatched = config.GetMaxBatchSize() > 0, tracker.GetMaxBatchSize() > 0
	for _, in := range config.GetInput() {
		m.observed = m.observed || in.GetName() == tensorObserved
	}
	if m.labels, err = s.labels(ctx, config); err != nil {
		return nil, err
	}
	if err := s.steps(ctx, m, config); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.models[name] = m
	s.mu.Unlock()
	return m, nil
}

// errModelNotReady says that a pipeline's model is missing or did not load.
var errModelNotReady = errors.New("model is not ready")

// errModelLoading says that a pipeline's model is being loaded.
var errModelLoading = fmt.Errorf("%w: it is still being loaded", errModelNotReady)

// errModelUnsuitable says that a model is no pipeline.
var errModelUnsuitable = errors.New("model is no pipeline")

// notReady asks the repository why a model is not ready: the model's own reason, and those of the models that
// reason names, down to the one at fault.
func (s *session) notReady(ctx context.Context, name string, err error) error {
	if c := status.Code(err); c != codes.OK && c != codes.NotFound && c != codes.InvalidArgument && c != codes.Unavailable {
		return fmt.Errorf("model %q: %w", name, err)
	}
	index, indexErr := s.client.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if indexErr != nil {
		return fmt.Errorf("%w: %q", errModelNotReady, name)
	}
	reasons := map[string]string{}
	known := false
	for _, m := range index.GetModels() {
		known = known || m.GetName() == name
		if m.GetState() != "READY" && m.GetReason() != "" {
			reasons[m.GetName()] = m.GetReason()
		}
	}
	if !known {
		return fmt.Errorf("%w: the repository has no model %q: add it, or give the camera another pipeline", errModelNotReady, name)
	}
	var text strings.Builder
	text.WriteString(reasons[name])
	for _, step := range slices.Sorted(maps.Keys(reasons)) {
		if step != name && strings.Contains(reasons[name], "'"+step+"'") {
			text.WriteString("; model '" + step + "': " + reasons[step])
		}
	}
	if text.Len() == 0 {
		return fmt.Errorf("%w (%q)", errModelLoading, name)
	}
	return fmt.Errorf("%w: %q: %s", errModelNotReady, name, text.String())
}

func (s *session) config(ctx context.Context, name string) (*inference.ModelConfig, error) {
	r, err := s.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("configuration of model %q: %w", name, err)
	}
	return r.GetConfig(), nil
}

// sequenceStep returns the model of the step that makes the ensemble's tracks.
func sequenceStep(config *inference.ModelConfig) string {
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		for _, to := range step.GetOutputMap() {
			if to == tensorTracks {
				return step.GetModelName()
			}
		}
	}
	return ""
}

// labels returns the names of the classes: the parameter "labels" of the pipeline or of one of its steps, separated
// by commas or line ends, or else the label file that a step names for one of its outputs.
func (s *session) labels(ctx context.Context, config *inference.ModelConfig) ([]string, error) {
	if text := config.GetParameters()["labels"].GetStringValue(); text != "" {
		return splitLabels(text), nil
	}
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		c, err := s.config(ctx, step.GetModelName())
		if err != nil {
			return nil, err
		}
		text := c.GetParameters()["labels"].GetStringValue()
		file := ""
		if strings.HasSuffix(text, ".txt") {
			file, text = text, ""
		}
		for _, out := range c.GetOutput() {
			if file == "" {
				file = out.GetLabelFilename()
			}
		}
		if text == "" && file != "" && s.modelDir != "" {
			b, err := os.ReadFile(filepath.Join(s.modelDir, filepath.Base(step.GetModelName()), filepath.Base(file)))
			if err != nil {
				return nil, fmt.Errorf("labels of model %q: %w", step.GetModelName(), err)
			}
			text = string(b)
		}
		if text != "" {
			return splitLabels(text), nil
		}
	}
	return nil, nil
}

// steps finds out what the steps of a pipeline are to its timings, and how many frames keep it busy: twice what the
// detector's instances run at once, so that the next is there when one is done.
func (s *session) steps(ctx context.Context, m *model, config *inference.ModelConfig) error {
	m.stages = map[string]string{m.tracker: "track"}
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		name := step.GetModelName()
		switch {
		case name == m.tracker:
		case slices.Contains(slices.Collect(maps.Values(step.GetInputMap())), tensorFrame):
			m.stages[name] = "prepare"
		case slices.Contains(slices.Collect(maps.Values(step.GetOutputMap())), tensorBoxes):
			m.stages[name] = "boxes"
		case m.detector == "":
			m.detector, m.stages[name] = name, "infer"
		}
	}
	if m.detector == "" { // one model does it all
		m.limits = collect.Limits{Slots: 4}
		return nil
	}
	c, err := s.config(ctx, m.detector)
	if err != nil {
		return err
	}
	m.limits = limitsOf(c)
	return nil
}

// limitsOf: a processor runs a batch in as much time as its frames one by one; an accelerator does not.
func limitsOf(detector *inference.ModelConfig) collect.Limits {
	instances, batch := 0, 1
	for _, g := range detector.GetInstanceGroup() {
		instances += int(max(g.GetCount(), 1))
		if g.GetKind() == inference.ModelInstanceGroup_KIND_GPU && detector.GetDynamicBatching() != nil {
			batch = int(max(detector.GetMaxBatchSize(), 1))
		}
	}
	return collect.Limits{Slots: 2 * max(instances, 1) * batch, Batch: batch}
}

func splitLabels(text string) []string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' })
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// stream carries the requests of one sequence; they are admitted in the order they are sent and answered in it.
type stream struct {
	rpc    grpc.BidiStreamingClient[inference.ModelInferRequest, inference.ModelStreamInferResponse]
	cancel context.CancelFunc
	reader sync.WaitGroup
	sent   int64
}

// open begins a stream; what comes back goes to put until the stream or the session ends. The end of ctx does not
// end it: a sequence is closed through its stream.
func (s *session) open(ctx context.Context, put func(message) bool) (*stream, error) {
	ctx, cancelStream := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(s.ctx, cancelStream) //nolint:contextcheck // the session's end, not the caller's
	cancel := func() {
		release()
		cancelStream()
	}
	rpc, err := s.client.ModelStreamInfer(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open a stream to inference: %w", err)
	}
	st := &stream{rpc: rpc, cancel: cancel}
	st.reader.Go(func() {
		for {
			m, err := rpc.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) || status.Code(err) == codes.Unavailable {
					err = fmt.Errorf("%w: %w", errInferenceGone, err)
				}
				put(streamEnded{stream: st, err: err})
				return
			}
			put(answered{stream: st, answer: readAnswer(m)})
		}
	})
	return st, nil
}

// send gives the request its id and sends it.
func (st *stream) send(r *inference.ModelInferRequest) (id string, err error) {
	st.sent++
	r.Id = strconv.FormatInt(st.sent, 10)
	if err := st.rpc.Send(r); err != nil {
		return "", fmt.Errorf("send to inference: %w", err)
	}
	return r.Id, nil
}

// close ends the stream and waits for its reader.
func (st *stream) close() {
	_ = st.rpc.CloseSend()
	st.cancel()
	st.reader.Wait()
}
