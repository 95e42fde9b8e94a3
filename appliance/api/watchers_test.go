package api_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/api"
	"github.com/vedette/vedette/store"
)

var (
	measure  = flag.Bool("measure", false, "print what subscribers cost (TestMeasureWatchers)")
	watchers = flag.String("watchers", "", "internal: watch the API at this address, with the token in TOKEN, until standard input ends")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *watchers != "" {
		if err := watchMany(*watchers, os.Getenv("TOKEN")); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	manyWatchers    = 100
	watchedWindows  = 50 // of 200 ms
	watchedCameras  = 16
	framesPerWindow = 2 // of each camera
)

// watchMany is the other side of TestMeasureWatchers, in a process of its own: it says when every watch is synced, and
// when each has seen all there is to see.
func watchMany(address, token string) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	synced, seen := make(chan error, manyWatchers), make(chan error, manyWatchers)
	for range manyWatchers {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		stream, err := vedettev1.NewAnalyticsServiceClient(conn).WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{})
		if err != nil {
			return err
		}
		go func() {
			seen <- func() error {
				for frames, last := 0, int64(0); frames < watchedWindows*watchedCameras*framesPerWindow; {
					m, err := stream.Recv()
					switch {
					case err != nil:
						return err
					case m.GetSeq() != last+1:
						return fmt.Errorf("item %d after %d", m.GetSeq(), last)
					case m.GetSynced() != nil:
						synced <- nil
					case m.GetFrame() != nil:
						frames++
					case m.GetGap() != nil: // on a machine with too much else to do
						frames += int(m.GetGap().GetDropped()) * watchedCameras * framesPerWindow
					}
					last = m.GetSeq()
				}
				return nil
			}()
		}()
	}
	for _, c := range []struct {
		what string
		done <-chan error
	}{{"synced", synced}, {"seen", seen}} {
		for range manyWatchers {
			if err := <-c.done; err != nil {
				return err
			}
		}
		fmt.Println(c.what)
	}
	return nil
}

// TestWatchersShareFramesAndSeeNoneOfOtherCameras watches as a client of every camera and as one of a single camera.
func TestWatchersShareFramesAndSeeNoneOfOtherCameras(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	b.add("hall")
	made, err := vedettev1.NewTokenServiceClient(b.local).CreateToken(t.Context(), &vedettev1.CreateTokenRequest{
		Token: &vedettev1.Token{User: "guard", Role: "viewer", Cameras: []string{"cameras/hall"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	scoped := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.GetSecret())
	watch := func(ctx context.Context) vedettev1.AnalyticsService_WatchAnalyticsClient {
		w, err := vedettev1.NewAnalyticsServiceClient(b.tcp).WatchAnalytics(ctx, &vedettev1.WatchAnalyticsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := w.Recv(); err != nil || m.GetSynced() == nil {
			t.Fatalf("%v, %v", m, err)
		}
		return w
	}
	everything, hall := watch(b.as(api.Viewer)), watch(scoped)
	at := time.Unix(1_800_000_000, 0)
	var batch store.Batch
	for i, camera := range []string{"door", "hall", "door", "hall"} {
		batch.Frames = append(batch.Frames, store.Frame{
			Sequence: 7, Camera: camera, Number: int64(i), CaptureTime: at, ReceiveTime: at.Add(time.Second),
			Objects: []store.Object{{Local: 3, Class: "person", Score: 0.5, Box: store.Box{X2: 0.5, Y2: 1}}},
		})
	}
	b.append(batch)
	for name, c := range map[string]struct {
		watch vedettev1.AnalyticsService_WatchAnalyticsClient
		want  []int64
	}{"everything": {everything, []int64{0, 1, 2, 3}}, "hall": {hall, []int64{1, 3}}} {
		last := int64(0)
		for _, number := range c.want {
			m, err := c.watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			camera := "cameras/" + batch.Frames[number].Camera
			want := &vedettev1.FrameObservations{
				Camera: camera, Sequence: 7, Frame: number, CaptureTime: timestamppb.New(at), ReceiveTime: timestamppb.New(at.Add(time.Second)),
				Observations: []*vedettev1.Observation{{
					Track: camera + "/tracks/" + store.TrackID{Sequence: 7, Local: 3}.String(), LocalId: 3, Class: "person", Score: 0.5, Box: &vedettev1.Box{XMax: 0.5, YMax: 1},
				}},
			}
			if diff := cmp.Diff(want, m.GetFrame(), protocmp.Transform()); diff != "" {
				t.Errorf("%s: (-want +have)\n%s", name, diff)
			}
			if m.GetSeq() <= last {
				t.Errorf("%s: item %d after %d", name, m.GetSeq(), last)
			}
			last = m.GetSeq()
		}
	}
}

// TestMeasureWatchers prints what 100 subscribers of the API cost this process at the rate of 16 cameras with 10 frames
// a second and 10 objects in each, beyond what the same rate costs without them.
func TestMeasureWatchers(t *testing.T) {
	if !*measure {
		t.Skip("-measure prints what subscribers cost")
	}
	b := start(t, false, album{})
	alone := b.windows(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-watchers", b.tcp.Target())
	cmd.Env, cmd.Stderr = append(os.Environ(), "TOKEN="+b.tokens[api.Viewer]), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		var word string
		if _, err := fmt.Fscanln(out, &word); err != nil || word != want {
			rest, _ := io.ReadAll(out)
			t.Fatalf("the watchers say %q %v %s, want %q", word, err, rest, want)
		}
	}
	says("synced")
	watched := b.windows(t)
	says("seen")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	percent := 100 * (watched - alone).Seconds() / (watchedWindows * 0.2)
	verdict := "ok"
	if percent > 10 {
		verdict = "over"
	}
	fmt.Printf("api_100_subscribers_cpu %.4g %%core 10 %s\n", percent, verdict)
}

// windows commits ten seconds' worth of windows, as fast as a box would, and tells the processor time spent.
func (b *box) windows(t *testing.T) time.Duration {
	t.Helper()
	begin := processor(t)
	at := time.Now()
	for n, tick := 0, time.NewTicker(200*time.Millisecond); n < watchedWindows; n++ {
		<-tick.C
		var batch store.Batch
		for i := range framesPerWindow {
			for c := range watchedCameras {
				f := store.Frame{
					Sequence: int64(c + 1), Camera: fmt.Sprintf("camera%02d", c), Number: int64(n*framesPerWindow + i),
					CaptureTime: at.Add(time.Duration(n*framesPerWindow+i) * 100 * time.Millisecond),
				}
				for o := range 10 {
					x := float32(o) / 20
					f.Objects = append(f.Objects, store.Object{Local: int64(o + 1), Class: "person", Score: 0.7, Box: store.Box{X1: x, Y1: x, X2: x + 0.1, Y2: x + 0.3}})
				}
				batch.Frames = append(batch.Frames, f)
			}
		}
		b.append(batch)
	}
	return processor(t) - begin
}

// processor is the processor time of this process.
func processor(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
