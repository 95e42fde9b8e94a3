package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/vedette/vedette/store"
)

func TestAClipBeginsBeforeWhatItsEventTellsOf(t *testing.T) {
	at := time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		payload string
		want    time.Duration // before the event was found
	}{
		{fmt.Sprintf(`{"since":%q,"zone":"cameras/door/zones/mat"}`, at.Add(-3*time.Second).Format(time.RFC3339Nano)), 3 * time.Second},
		{fmt.Sprintf(`{"since":%q}`, at.Add(-time.Hour).Format(time.RFC3339Nano)), maxFindTime},
		{`{"state":"STREAMING"}`, 0},
		{`{"since":"yesterday"}`, 0},
		{`none of ours`, 0},
	} {
		if got := at.Sub(sinceOf(&store.Event{Time: at, Payload: []byte(tc.payload)})); got != tc.want {
			t.Errorf("%s: %v before it was found, want %v", tc.payload, got, tc.want)
		}
	}
}
