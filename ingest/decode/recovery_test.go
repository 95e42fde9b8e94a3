package decode_test

import (
	"context"
	"image"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/vedette/vedette/ingest"
	"github.com/vedette/vedette/ingest/bitstream"
	"github.com/vedette/vedette/ingest/decode"
	"github.com/vedette/vedette/internal/av"
	"github.com/vedette/vedette/internal/rtsptest"
)

// kept keeps the brightness of pictures by their media time.
type kept struct {
	epoch *ingest.Epoch
	whole map[ingest.Ticks][]byte
	wrong []ingest.Ticks // tainted
}

func (k *kept) Decoded(ingest.Frame) {}
func (k *kept) Skipped()             {}

func (k *kept) FormatChanged(*ingest.Epoch, image.Point) *ingest.Epoch { return k.epoch }

func (k *kept) Frame(_ context.Context, f ingest.Frame, p *av.Picture) {
	luma := make([]byte, f.Size.X*f.Size.Y)
	if f.Tainted || p.Luma(luma, f.Size.X, f.Size.Y) != nil {
		k.wrong = append(k.wrong, f.Ticks)
		return
	}
	k.whole[f.Ticks] = luma
}

// decoded decodes units of a clip from one on, without those lost.
func decoded(t *testing.T, clip *rtsptest.Clip, from int, lost ...int) *kept {
	t.Helper()
	k := &kept{epoch: &ingest.Epoch{ID: "e"}, whole: map[ingest.Ticks][]byte{}}
	a := bitstream.NewAssembler(ingest.H264, clip.Sets...)
	d := decode.New(decode.Config{}, k)
	i, gap := from, false
	err := d.All(t.Context(), func() (decode.Unit, error) {
		for slices.Contains(lost, i) {
			i, gap = i+1, true
		}
		if i == len(clip.Units) {
			return decode.Unit{}, io.EOF
		}
		u := clip.Units[i]
		data, key, _ := a.Assemble(u.NALUs)
		unit := decode.Unit{Epoch: k.epoch, Codec: ingest.H264, Stamp: decode.Stamp{Capture: time.Unix(0, u.PTS*100000/9)}, AccessUnit: ingest.AccessUnit{
			Data: data, Ticks: ingest.Ticks(u.PTS), Keyframe: key, Recovery: a.Recovery(), Lost: gap,
		}}
		i, gap = i+1, false
		return unit, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Streams of one keyframe, or none, that say where else decoding can begin.
func TestDecodingBeginsAtARecoveryPointAndWhatIsWholeIsRight(t *testing.T) {
	const gop = 12
	for _, c := range []struct {
		name   string
		config rtsptest.ClipConfig
		params string
	}{
		{"open groups of pictures", rtsptest.ClipConfig{BFrames: 2}, "keyint=12:min-keyint=12:scenecut=0:bframes=2:b-adapt=0:b-pyramid=none:aud=1:open-gop=1:ref=3"},
		{"refreshed bit by bit", rtsptest.ClipConfig{}, "keyint=12:scenecut=0:bframes=0:aud=1:intra-refresh=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.config
			cfg.Width, cfg.Height, cfg.Frames, cfg.GOP, cfg.Extra = 192, 128, 72, gop, []string{"-x264-params", c.params}
			clip := rtsptest.Render(t, cfg)
			reference := decoded(t, clip, 0)
			if len(reference.whole) < 70 {
				t.Fatalf("%d of 72 pictures are whole with nothing lost; tainted: %v", len(reference.whole), reference.wrong)
			}
			check := func(what string, k *kept, least int) {
				t.Helper()
				for at, luma := range k.whole {
					if !slices.Equal(luma, reference.whole[at]) {
						t.Errorf("%s: the picture at %d is said to be whole, and is not", what, at/3600)
					}
				}
				if len(k.whole) < least {
					t.Errorf("%s: %d pictures are whole, want %d; tainted: %v", what, len(k.whole), least, k.wrong)
				}
			}
			check("joined in the middle", decoded(t, clip, 5), 72-5-2*gop-3)
			check("after a loss", decoded(t, clip, 0, 17), 72-2*gop-3)
			check("after a loss while it is refreshed", decoded(t, clip, 5, 17), 72-5-3*gop-3)
		})
	}
}
