package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type capacityCommand struct {
	client
	Measure     bool    `help:"Run the model at several batch sizes and decode clips first; takes some seconds and disturbs the cameras meanwhile."`
	Codec       string  `placeholder:"H264" help:"Codec of the cameras that are thought of; by default that of most there are."`
	Width       int32   `help:"Width of their pictures; by default the mean of those there are."`
	Height      int32   `help:"Height of their pictures."`
	FPS         float64 `name:"fps" help:"Pictures they send a second."`
	AnalysisFPS float64 `name:"analysis-fps" default:"5" help:"Pictures analysed a second (${default})."`
	Pipeline    string  `help:"Model (ensemble) their frames go to."`
}

// Run prints what the box can do.
func (c *capacityCommand) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	system := vedettev1.NewSystemServiceClient(conn)
	if c.Measure {
		if _, err := system.MeasureCapacity(ctx, &vedettev1.MeasureCapacityRequest{Pipeline: c.Pipeline}); err != nil {
			return plain(err)
		}
	}
	have, err := system.GetCapacity(ctx, &vedettev1.GetCapacityRequest{
		Codec: c.Codec, Width: c.Width, Height: c.Height, Fps: c.FPS, AnalysisFps: c.AnalysisFPS, Pipeline: c.Pipeline,
	})
	if err != nil {
		return plain(err)
	}
	if c.Output == "json" {
		return printJSON(env.Stdout, have)
	}
	return printCapacity(env, have)
}

func printCapacity(env *Env, have *vedettev1.Capacity) error {
	rows := [][]string{{"MEASURED", "WHERE", "COST"}}
	for _, p := range have.GetPipelines() {
		if d := p.GetProcessorTime().AsDuration(); d > 0 {
			rows = append(rows, []string{"frame of " + p.GetPipeline(), "all processes, without decoding", milliseconds(d)})
		}
		for _, b := range p.GetBatches() {
			rows = append(rows, []string{"model " + p.GetModel(), fmt.Sprintf("%s, batch of %d", b.GetProvider(), b.GetSize()), milliseconds(b.GetDuration().AsDuration())})
		}
		if f := p.GetFramesPerSecond(); f > 0 {
			rows = append(rows, []string{"model " + p.GetModel(), p.GetProvider() + ", all instances at the best batch", strconv.FormatFloat(f, 'f', 1, 64) + " frames/s"})
		}
	}
	for _, d := range have.GetDecoders() {
		rows = append(rows, []string{"picture decoded", fmt.Sprintf("%s %dx%d", d.GetCodec(), d.GetWidth(), d.GetHeight()), milliseconds(d.GetProcessorTime().AsDuration())})
	}
	if len(rows) > 1 {
		if err := table(env.Stdout, rows...); err != nil {
			return err
		}
		needed := fmt.Sprintf("%.0f %% needed by the cameras there are", 100*have.GetUsed())
		if unknown := have.GetUnmeasuredPipelines(); len(unknown) > 0 {
			needed += " besides analysis by " + strings.Join(unknown, ", ") + ", which is not measured yet"
		}
		if _, err := fmt.Fprintf(env.Stdout, "\n%.4g cores, %s; new ones are refused above %.0f %%\n", have.GetCores(), needed, 100*have.GetLimit()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(env.Stdout, have.GetSummary())
	return err
}

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1000, 'f', 2, 64) + " ms"
}
