package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type ruleCommands struct {
	Zone   ruleZone   `cmd:"" help:"Draw a zone, or change one."`
	Line   ruleLine   `cmd:"" help:"Draw a line, or change one."`
	List   ruleList   `cmd:"" help:"List the zones and lines."`
	Test   ruleTest   `cmd:"" help:"Say what the rules of a camera, or drafts of them, would have made of what it saw."`
	Count  ruleCount  `cmd:"" help:"Count crossings and entries by span of time."`
	Remove ruleRemove `cmd:"" aliases:"delete" help:"Remove a zone or line; its events stay."`
}

// ruleSettings are the flags that zones and lines share.
type ruleSettings struct {
	Camera      string         `arg:"" complete:"camera" help:"Name of the camera."`
	ID          string         `arg:"" help:"Name of the zone or line: letters, digits and -."`
	DisplayName string         `name:"name" help:"What people call it."`
	Class       []string       `help:"Only objects of this class; may be repeated."`
	MinScore    float32        `help:"Only objects seen with at least this score, 0 to 1."`
	Inertia     *time.Duration `help:"How long an object must be on the other side before that counts."`
}

func (r *ruleSettings) inertia() *durationpb.Duration {
	if r.Inertia == nil {
		return nil
	}
	return durationpb.New(*r.Inertia)
}

// points reads places of the form X,Y.
func points(texts []string) ([]*vedettev1.Point, error) {
	list := make([]*vedettev1.Point, len(texts))
	for i, text := range texts {
		x, y, ok := strings.Cut(text, ",")
		px, err1 := strconv.ParseFloat(x, 32)
		py, err2 := strconv.ParseFloat(y, 32)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%q is no place: write X,Y as fractions of the picture, for example 0.25,0.8", text)
		}
		list[i] = &vedettev1.Point{X: float32(px), Y: float32(py)}
	}
	return list, nil
}

type ruleZone struct {
	client
	ruleSettings
	Corners   []string      `arg:"" help:"Corners X,Y as fractions of the picture: 0,0 is the upper left, 1,1 the lower right one."`
	Dwell     time.Duration `help:"Tell when an object has been inside for this long."`
	Loitering time.Duration `help:"Tell when the visits of one object add up to this."`
	Occupancy int32         `help:"Tell when this many objects are inside."`
}

// Run draws the zone.
func (c *ruleZone) Run(ctx context.Context, env *Env, g *grammar) error {
	corners, err := points(c.Corners)
	if err != nil {
		return err
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	z, err := vedettev1.NewRuleServiceClient(conn).UpdateZone(ctx, &vedettev1.UpdateZoneRequest{AllowMissing: true, Zone: &vedettev1.Zone{
		Name: fullName(c.Camera) + "/zones/" + c.ID, DisplayName: c.DisplayName, Polygon: corners, Classes: c.Class, MinScore: c.MinScore, Inertia: c.inertia(),
		Dwell: durationpb.New(c.Dwell), Loitering: durationpb.New(c.Loitering), Occupancy: c.Occupancy,
	}})
	if err != nil {
		return plain(err)
	}
	return c.printRules(env, z)
}

type ruleLine struct {
	client
	ruleSettings
	Start string `arg:"" help:"Where it starts: X,Y as fractions of the picture."`
	End   string `arg:"" help:"Where it ends. Crossings from the left of it to its right, seen from its start, are forward."`
}

// Run draws the line.
func (c *ruleLine) Run(ctx context.Context, env *Env, g *grammar) error {
	ends, err := points([]string{c.Start, c.End})
	if err != nil {
		return err
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l, err := vedettev1.NewRuleServiceClient(conn).UpdateLine(ctx, &vedettev1.UpdateLineRequest{AllowMissing: true, Line: &vedettev1.Line{
		Name: fullName(c.Camera) + "/lines/" + c.ID, DisplayName: c.DisplayName, Start: ends[0], End: ends[1], Classes: c.Class, MinScore: c.MinScore,
		Inertia: c.inertia(),
	}})
	if err != nil {
		return plain(err)
	}
	return c.printRules(env, l)
}

type ruleList struct {
	client
	Camera string `arg:"" complete:"camera" optional:"" default:"-" help:"Name of the camera; all cameras by default."`
}

// Run lists the rules.
func (c *ruleList) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rules := vedettev1.NewRuleServiceClient(conn)
	var list []proto.Message
	for token := ""; ; {
		page, err := rules.ListZones(ctx, &vedettev1.ListZonesRequest{Parent: fullName(c.Camera), PageSize: 1000, PageToken: token})
		if err != nil {
			return plain(err)
		}
		for _, z := range page.GetZones() {
			list = append(list, z)
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for token := ""; ; {
		page, err := rules.ListLines(ctx, &vedettev1.ListLinesRequest{Parent: fullName(c.Camera), PageSize: 1000, PageToken: token})
		if err != nil {
			return plain(err)
		}
		for _, l := range page.GetLines() {
			list = append(list, l)
		}
		if token = page.GetNextPageToken(); token == "" {
			return c.printRules(env, list...)
		}
	}
}

type ruleRemove struct {
	client
	Name string `arg:"" help:"CAMERA/zones/ZONE or CAMERA/lines/LINE."`
}

// Run removes the rule.
func (c *ruleRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rules := vedettev1.NewRuleServiceClient(conn)
	if strings.Contains(c.Name, "/lines/") {
		_, err = rules.DeleteLine(ctx, &vedettev1.DeleteLineRequest{Name: fullName(c.Name)})
	} else {
		_, err = rules.DeleteZone(ctx, &vedettev1.DeleteZoneRequest{Name: fullName(c.Name)})
	}
	if err != nil {
		return plain(err)
	}
	_, err = fmt.Fprintln(env.Stdout, "removed", c.Name)
	return err
}

// printRules shows zones and lines as asked.
func (c *client) printRules(env *Env, list ...proto.Message) error {
	if c.Output == "json" {
		return printJSON(env.Stdout, list...)
	}
	rows := [][]string{{"RULE", "NAME", "CLASSES", "PLACES"}}
	for _, m := range list {
		switch r := m.(type) {
		case *vedettev1.Zone:
			rows = append(rows, []string{shortName(r.GetName()), r.GetDisplayName(), strings.Join(r.GetClasses(), ","), places(r.GetPolygon()...)})
		case *vedettev1.Line:
			rows = append(rows, []string{shortName(r.GetName()), r.GetDisplayName(), strings.Join(r.GetClasses(), ","), places(r.GetStart(), r.GetEnd())})
		}
	}
	return table(env.Stdout, rows...)
}

func places(list ...*vedettev1.Point) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = fmt.Sprintf("%.4g,%.4g", p.GetX(), p.GetY())
	}
	return strings.Join(texts, " ")
}

// span is a span of time.
type span struct {
	Start time.Time `placeholder:"TIME" help:"From this time on, such as 2026-05-01T00:00:00Z."`
	End   time.Time `placeholder:"TIME" help:"Before this time."`
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

type ruleTest struct {
	client
	span
	Camera string   `arg:"" complete:"camera" help:"Name of the camera."`
	Zone   []string `sep:"none" placeholder:"CORNERS" help:"Draft of a zone: three corners X,Y or more, with blanks between; may be repeated."`
	Line   []string `sep:"none" placeholder:"ENDS" help:"Draft of a line: its start and end X,Y; may be repeated."`
	Draft  []string `sep:"none" placeholder:"JSON" help:"Draft of a whole TestRulesRequest as JSON, with zones and lines; may be repeated."`
}

// Run tests rules on the past.
func (c *ruleTest) Run(ctx context.Context, env *Env, g *grammar) error {
	req := &vedettev1.TestRulesRequest{}
	for _, text := range c.Draft {
		draft := &vedettev1.TestRulesRequest{}
		if err := protojson.Unmarshal([]byte(text), draft); err != nil {
			return fmt.Errorf("--draft: %w", err)
		}
		proto.Merge(req, draft)
	}
	for _, text := range c.Zone {
		corners, err := points(strings.Fields(text))
		if err != nil {
			return fmt.Errorf("--zone: %w", err)
		}
		req.Zones = append(req.Zones, &vedettev1.Zone{Polygon: corners})
	}
	for _, text := range c.Line {
		ends, err := points(strings.Fields(text))
		if err != nil || len(ends) != 2 {
			return fmt.Errorf("--line %q: want a start and an end: 0.1,0.5 0.9,0.5", text)
		}
		req.Lines = append(req.Lines, &vedettev1.Line{Start: ends[0], End: ends[1]})
	}
	req.Parent, req.StartTime, req.EndTime = fullName(c.Camera), stamp(c.Start), stamp(c.End)
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewRuleServiceClient(conn).TestRules(ctx, req)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return printJSON(env.Stdout, r)
		}
		if err := show(&c.client, env, eventHeader(), r.GetEvents(), eventRow); err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%d events in %d frames\n", len(r.GetEvents()), r.GetFrames())
		return err
	})
}

type ruleCount struct {
	client
	span
	Camera   string        `arg:"" complete:"camera" help:"Name of the camera."`
	Rule     string        `help:"Only this one: CAMERA/zones/ZONE or CAMERA/lines/LINE."`
	Bucket   time.Duration `default:"1h" help:"Length of a span."`
	TimeZone string        `help:"Spans begin after midnight in this time zone, such as Europe/Oslo."`
}

// Run counts.
func (c *ruleCount) Run(ctx context.Context, env *Env, g *grammar) error {
	req := &vedettev1.QueryCountsRequest{
		Parent: fullName(c.Camera), StartTime: stamp(c.Start), EndTime: stamp(c.End), Bucket: durationpb.New(c.Bucket), TimeZone: c.TimeZone,
	}
	if c.Rule != "" {
		req.Rule = fullName(c.Rule)
	}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewRuleServiceClient(conn).QueryCounts(ctx, req)
		if err != nil {
			return err
		}
		return show(&c.client, env, []string{"FROM", "RULE", "TYPE", "CLASS", "DIRECTION", "COUNT"}, r.GetCounts(), func(n *vedettev1.Count) []string {
			return []string{clock(n.GetStartTime()), shortName(n.GetRule()), n.GetType(), n.GetClass(), n.GetDirection(), strconv.FormatInt(n.GetCount(), 10)}
		})
	})
}
