package cli

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type detectionCommands struct {
	List detectionList `cmd:"" help:"List what was seen frame by frame, newest first."`
}

type detectionList struct {
	client
	Filter string `help:"Such as: camera = \"door\" AND class = \"person\" AND time >= \"2026-05-01T00:00:00Z\"."`
	By     string `enum:"capture,receive" default:"capture" help:"The clock of time in the filter: when the camera saw it (${default}), or when the box received it (receive)."`
	Limit  int32  `default:"50" help:"How many at most; 0: all."`
}

// Run lists detections.
func (c *detectionList) Run(ctx context.Context, env *Env, g *grammar) error {
	basis := vedettev1.TimeBasis_TIME_BASIS_CAPTURE
	if c.By == "receive" {
		basis = vedettev1.TimeBasis_TIME_BASIS_RECEIVE
	}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		list, err := pages(c.Limit, 10_000, func(size int32, token string) ([]*vedettev1.Detection, string, error) {
			r, err := vedettev1.NewAnalyticsServiceClient(conn).ListDetections(ctx, &vedettev1.ListDetectionsRequest{Filter: c.Filter, PageSize: size, PageToken: token, TimeBasis: basis})
			return r.GetDetections(), r.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return show(&c.client, env, []string{"CAMERA", "TIME", "FRAME", "TRACK", "CLASS", "SCORE", "BOX"}, list, func(d *vedettev1.Detection) []string {
			b := d.GetBox()
			return []string{
				shortName(d.GetCamera()), clock(d.GetCaptureTime()), fmt.Sprint(d.GetFrame()), lastPart(d.GetTrack()), d.GetClass(), fmt.Sprintf("%.2f", d.GetScore()),
				fmt.Sprintf("%.3f,%.3f %.3f,%.3f", b.GetXMin(), b.GetYMin(), b.GetXMax(), b.GetYMax()),
			}
		})
	})
}
