package reckon_test

import (
	"testing"
	"time"

	"github.com/vedette/vedette/ingest/reckon"
)

func TestEveryClipIsDecodedAndLargeOnesCostMore(t *testing.T) {
	costs, err := reckon.Decode(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]map[int]reckon.Cost{}
	for _, c := range costs {
		t.Logf("%+v", c)
		if c.Processor <= 0 || c.Frames == 0 {
			t.Errorf("%+v was not measured", c)
		}
		if by[c.Codec] == nil {
			by[c.Codec] = map[int]reckon.Cost{}
		}
		by[c.Codec][c.Height] = c
	}
	for _, codec := range []string{"H264", "H265"} {
		small, large := by[codec][360], by[codec][1080]
		if small.Processor >= large.Processor {
			t.Errorf("%s: 360 lines cost %s, 1080 lines %s", codec, small.Processor, large.Processor)
		}
	}
}
