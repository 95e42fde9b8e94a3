package server_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
	"github.com/vedette/vedette/internal/race"
)

// sumModel adds on ONNX Runtime: two inputs and two outputs of rows of four numbers.
func sumModel(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(library()); err != nil {
		t.Skip("no ONNX Runtime:", err)
	}
	graph, err := os.ReadFile("../backend/onnxruntime/testdata/addsub.onnx")
	if err != nil {
		t.Fatal(err)
	}
	return repository(t, map[string]string{
		"addsub/config.pbtxt": `platform: "onnxruntime_onnx" max_batch_size: 1048576`, "addsub/1/model.onnx": string(graph),
	})
}

// shared is a client's memory: an object with room for two inputs and two outputs of so many rows.
type shared struct {
	name string
	size int // of one tensor
	path string
	file *os.File
}

func share(t testing.TB, client *v2client.Client, rows int) *shared {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "vedette-test-")
	if err != nil {
		t.Skip("no shared memory:", err)
	}
	s := &shared{name: filepath.Base(f.Name()), size: rows * 4 * 4, path: f.Name(), file: f}
	t.Cleanup(func() {
		_ = f.Close()
		_ = os.Remove(s.path)
	})
	if err := f.Truncate(int64(4 * s.size)); err != nil {
		t.Fatal(err)
	}
	s.register(t, client)
	return s
}

func (s *shared) register(t testing.TB, client *v2client.Client) {
	t.Helper()
	_, err := client.SystemSharedMemoryRegister(t.Context(), &inference.SystemSharedMemoryRegisterRequest{Name: s.name, Key: "/" + s.name, ByteSize: uint64(4 * s.size)})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shared) request() *v2client.Request {
	place := func(i int) v2client.Place { return v2client.Place{Region: s.name, Offset: i * s.size, Size: s.size} }
	in := func(name string, i int) v2client.Input {
		return v2client.Input{Tensor: tensor.Tensor{Name: name, DataType: tensor.FP32, Shape: []int64{int64(s.size / 16), 4}}, Place: place(i)}
	}
	return &v2client.Request{
		Model: "addsub", Inputs: []v2client.Input{in("A", 0), in("B", 1)},
		Outputs: []v2client.Output{{Name: "SUM", Place: place(2)}, {Name: "DIFF", Place: place(3)}},
	}
}

func TestX3TensorsInSharedMemoryReachONNXRuntimeUncopied(t *testing.T) {
	r := start(t, "--model-repository", sumModel(t), "--allow-client-shm=true")
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	h := v2client.NewHTTP("http://"+r.at("HTTP"), v2client.Config{})
	defer func() { _ = h.Close() }()
	const rows = 1 << 16
	s := share(t, g, rows)
	if _, err := s.file.WriteAt(tensor.AsBytes([]float32{1, 2, 3, 4}), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt(tensor.AsBytes([]float32{10, 20, 30, 40}), int64(s.size)); err != nil {
		t.Fatal(err)
	}
	before := r.server.Pool().Total()
	for range 10 {
		if _, err := g.Infer(t.Context(), s.request()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Infer(t.Context(), s.request()); err != nil {
			t.Fatal(err)
		}
	}
	// Every copy takes its memory from the pool. What is left are the bodies of HTTP requests.
	if copied := r.server.Pool().Total() - before; copied > int64(s.size/8) {
		t.Errorf("twenty requests with four tensors of %d bytes copied %d bytes", s.size, copied)
	}
	got := make([]byte, 16)
	if _, err := s.file.ReadAt(got, int64(3*s.size)); err != nil || fmt.Sprint(tensor.Float32s(got)) != "[-9 -18 -27 -36]" {
		t.Errorf("got %v, %v", tensor.Float32s(got), err)
	}
}

func TestX3RegionsCutShortInUseFailTheirRequestsAlone(t *testing.T) {
	var r *running
	t.Cleanup(func() { // when the server has ended
		if n := r.server.Pool().Lent(); n != 0 {
			t.Errorf("%d buffers were not released", n)
		}
	})
	r = start(t, "--model-repository", sumModel(t), "--allow-client-shm=true")
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	h := v2client.NewHTTP("http://"+r.at("HTTP"), v2client.Config{})
	defer func() { _ = h.Close() }()
	calls := []func(context.Context, *v2client.Request) (*v2client.Response, error){g.Infer, h.Infer}
	well := share(t, g, 16)
	const rounds, rows = 8, 1 << 16
	for range rounds {
		s := share(t, g, rows)
		var first, wg sync.WaitGroup
		for i := range 4 {
			first.Add(1)
			wg.Go(func() {
				for n := 0; ; n++ {
					_, err := calls[i%2](t.Context(), s.request())
					if n == 0 {
						first.Done()
					}
					if err != nil {
						if !strings.Contains(err.Error(), "shared memory region '"+s.name+"' is shorter than it was when it was registered") {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		first.Wait()
		if err := os.Remove(s.path); err != nil { // which changes nothing
			t.Error(err)
		}
		if err := s.file.Truncate(100); err != nil {
			t.Error(err)
		}
		wg.Wait()
		for _, call := range calls {
			if _, err := call(t.Context(), well.request()); err != nil {
				t.Errorf("another region: %v", err)
			}
		}
		if _, err := g.SystemSharedMemoryUnregister(t.Context(), &inference.SystemSharedMemoryUnregisterRequest{Name: s.name}); err != nil {
			t.Error(err)
		}
	}
}

func TestLargeTensorsAllocateNothingThatGrows(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's pools forget; the run without it counts")
	}
	at := spawn(t, "--model-repository", repository(t, testModels()))
	g, err := v2client.New(at["gRPC"], v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	h := v2client.NewHTTP("http://"+at["HTTP"], v2client.Config{})
	defer func() { _ = h.Close() }()
	for name, ask := range map[string]func(context.Context, *v2client.Request) (*v2client.Response, error){"gRPC": g.Infer, "HTTP": h.Infer} {
		t.Run(name, func(t *testing.T) {
			const size, warm, requests = 6 << 20, 10, 60
			data := make([]byte, size)
			req := &v2client.Request{Model: "plain", Inputs: []v2client.Input{plain(data)}, InPlace: true}
			before, clientBefore := 0.0, uint64(0)
			for i := range warm + requests {
				if i == warm {
					before, clientBefore = gauge(t, at["metrics"], "go_memstats_alloc_bytes_total"), allocated()
				}
				data[0], data[size-1] = byte(i), byte(i+1)
				resp, err := ask(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if got := resp.Outputs[0].Data; len(got) != size || got[0] != byte(i) || got[size-1] != byte(i+1) {
					t.Fatalf("answer %d is not what was sent", i)
				}
				resp.Release()
			}
			client := float64(allocated()-clientBefore) / requests
			each := (gauge(t, at["metrics"], "go_memstats_alloc_bytes_total") - before) / requests
			t.Logf("%.0f bytes for each request, %.0f in the client", each, client)
			if each > size/8 {
				t.Errorf("a request with a tensor of %d bytes allocates %.0f bytes", size, each)
			}
			if name == "gRPC" && client > size/8 {
				t.Errorf("the client allocates %.0f bytes for a request with a tensor of %d bytes", client, size)
			}
		})
	}
}

func TestTensorsSentInPlaceMayChangeAfterTheAnswer(t *testing.T) {
	r := start(t, "--model-repository", repository(t, testModels()))
	g, err := v2client.New(r.at("gRPC"), v2client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			data := make([]byte, 200_000)
			req := &v2client.Request{Model: "plain", Inputs: []v2client.Input{plain(data)}, InPlace: true}
			for i := range byte(20) {
				for j := range data {
					data[j] = i
				}
				resp, err := g.Infer(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(resp.Outputs[0].Data, data) {
					t.Error("the answer is not what was sent")
				}
				resp.Release()
			}
		})
	}
	wg.Wait()
}

// allocated is how many bytes this process ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
