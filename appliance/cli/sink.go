package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type sinkCommands struct {
	Add    sinkAdd    `cmd:"" help:"Send events somewhere."`
	List   sinkList   `cmd:"" help:"List the sinks and how they deliver."`
	Get    sinkGet    `cmd:"" help:"Show one sink."`
	Update sinkUpdate `cmd:"" help:"Change a sink; its place among the events stays."`
	Watch  sinkWatch  `cmd:"" help:"Print how the sinks deliver, again and again."`
	Remove sinkRemove `cmd:"" aliases:"delete" help:"Send no more events there."`

	Refused   sinkRefused   `cmd:"" aliases:"dead-letters" help:"List the events that a receiver refused for good."`
	Redeliver sinkRedeliver `cmd:"" help:"Send such events again."`
	Forget    sinkForget    `cmd:"" help:"Give such events up."`
}

// sinkTarget is where a sink sends to.
type sinkTarget struct {
	Username      string `help:"User at the receiver."`
	HomeAssistant bool   `help:"Announce cameras and zones to Home Assistant (MQTT)."`
	Stream        string `help:"Stream to create when there is none (NATS)."`
	Onvif         bool   `help:"Send the JSON of ONVIF Profile M instead (MQTT)."`
}

type sinkAdd struct {
	client
	sinkTarget
	ID            string   `arg:"" help:"Name of the sink: letters, digits and -."`
	Address       string   `arg:"" help:"mqtt://, mqtts://, http://, https://, nats:// or tls:// address, or kafka://HOST:PORT/TOPIC."`
	SecretFile    string   `placeholder:"FILE" help:"File that holds the password, token or signing key; - reads it from standard input."`
	Type          []string `help:"Only events of this type; may be repeated."`
	Camera        []string `help:"Only events of this camera; may be repeated."`
	FromBeginning bool     `help:"Deliver what is stored already too."`
	ValidateOnly  bool     `help:"Check, but change nothing."`
}

// Run adds the sink.
func (c *sinkAdd) Run(ctx context.Context, env *Env, g *grammar) error {
	sink := &vedettev1.Sink{Types: c.Type}
	for _, camera := range c.Camera {
		sink.Cameras = append(sink.Cameras, fullName(camera))
	}
	if err := c.aim(sink, c.Address); err != nil {
		return err
	}
	if c.SecretFile != "" {
		var err error
		if sink.Secret, err = readPassword(c.SecretFile, env.Stdin); err != nil {
			return err
		}
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sink, err = vedettev1.NewSinkServiceClient(conn).CreateSink(ctx, &vedettev1.CreateSinkRequest{
		SinkId: c.ID, Sink: sink, FromBeginning: c.FromBeginning, ValidateOnly: c.ValidateOnly,
	})
	if err != nil {
		return plain(err)
	}
	return c.printSinks(env, sink)
}

// aim sets the target that the address stands for.
func (c *sinkTarget) aim(sink *vedettev1.Sink, address string) error {
	scheme, rest, _ := strings.Cut(address, "://")
	switch scheme {
	case "mqtt", "mqtts":
		sink.Target = &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: address, Username: c.Username, HomeAssistant: c.HomeAssistant, Onvif: c.Onvif}}
	case "http", "https":
		sink.Target = &vedettev1.Sink_Webhook{Webhook: &vedettev1.WebhookTarget{Uri: address}}
	case "nats", "tls":
		sink.Target = &vedettev1.Sink_Nats{Nats: &vedettev1.NatsTarget{Uri: address, Username: c.Username, Stream: c.Stream}}
	case "kafka":
		brokers, topic, _ := strings.Cut(rest, "/")
		sink.Target = &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: strings.Split(brokers, ","), Topic: topic, Username: c.Username}}
	default:
		return fmt.Errorf("address %q: its scheme is none of mqtt, mqtts, http, https, nats, tls and kafka", scheme)
	}
	return nil
}

type sinkList struct {
	client
}

// Run lists the sinks.
func (c *sinkList) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sinks := vedettev1.NewSinkServiceClient(conn)
	var list []*vedettev1.Sink
	for token := ""; ; {
		page, err := sinks.ListSinks(ctx, &vedettev1.ListSinksRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			return plain(err)
		}
		list = append(list, page.GetSinks()...)
		if token = page.GetNextPageToken(); token == "" {
			return c.printSinks(env, list...)
		}
	}
}

type sinkRemove struct {
	client
	ID string `arg:"" complete:"sink" help:"Name of the sink."`
}

// Run removes the sink.
func (c *sinkRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := vedettev1.NewSinkServiceClient(conn).DeleteSink(ctx, &vedettev1.DeleteSinkRequest{Name: "sinks/" + c.ID}); err != nil {
		return plain(err)
	}
	_, err = fmt.Fprintln(env.Stdout, "removed", c.ID)
	return err
}

// printSinks shows sinks as asked.
func (c *client) printSinks(env *Env, list ...*vedettev1.Sink) error {
	if c.Output == "json" {
		messages := make([]proto.Message, len(list))
		for i, s := range list {
			messages[i] = s
		}
		return printJSON(env.Stdout, messages...)
	}
	rows := [][]string{{"SINK", "STATE", "DELIVERED", "FAILURES", "REFUSED", "TO", "REASON"}}
	for _, s := range list {
		st := s.GetStatus()
		rows = append(rows, []string{
			strings.TrimPrefix(s.GetName(), "sinks/"), strings.TrimPrefix(st.GetState().String(), "DELIVERY_STATE_"),
			strconv.FormatInt(st.GetDelivered(), 10), strconv.FormatInt(st.GetFailures(), 10), strconv.FormatInt(st.GetDeadLetters(), 10), target(s), st.GetMessage(),
		})
	}
	return table(env.Stdout, rows...)
}

// target is where a sink sends to, without what may stand in an address besides the host.
func target(s *vedettev1.Sink) string {
	address := s.GetMqtt().GetUri() + s.GetWebhook().GetUri() + s.GetNats().GetUri()
	if k := s.GetKafka(); k != nil {
		return "kafka://" + strings.Join(k.GetBrokers(), ",") + "/" + k.GetTopic()
	}
	if u, err := url.Parse(address); err == nil {
		return u.Scheme + "://" + u.Host
	}
	return address
}

type sinkGet struct {
	client
	ID string `arg:"" complete:"sink" help:"Name of the sink."`
}

// Run shows a sink.
func (c *sinkGet) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := vedettev1.NewSinkServiceClient(conn).GetSink(ctx, &vedettev1.GetSinkRequest{Name: "sinks/" + c.ID})
		if err != nil {
			return err
		}
		return c.printSinks(env, s)
	})
}

type sinkUpdate struct {
	client
	sinkTarget
	ID           string    `arg:"" complete:"sink" help:"Name of the sink."`
	Address      string    `help:"New address, with user and what else belongs to it."`
	SecretFile   string    `placeholder:"FILE" help:"File that holds the new password, token or signing key; - reads it from standard input."`
	Type         *[]string `help:"Only events of these types; none: all."`
	Camera       *[]string `help:"Only events of these cameras; none: all."`
	DisplayName  *string   `name:"name" help:"What people call it."`
	Disabled     *bool     `negatable:"" help:"Send nothing; the place among the events stays."`
	ValidateOnly bool      `help:"Check, but change nothing."`
}

// Run changes what was given.
func (c *sinkUpdate) Run(ctx context.Context, env *Env, g *grammar) error {
	sink, mask := &vedettev1.Sink{Name: "sinks/" + c.ID}, &fieldmaskpb.FieldMask{}
	set := func(given bool, path string, put func()) {
		if given {
			mask.Paths = append(mask.Paths, path)
			put()
		}
	}
	if c.Address != "" {
		if err := c.aim(sink, c.Address); err != nil {
			return err
		}
		kind := sink.ProtoReflect().WhichOneof(sink.ProtoReflect().Descriptor().Oneofs().ByName("target"))
		mask.Paths = append(mask.Paths, string(kind.Name()))
	}
	if c.SecretFile != "" {
		secret, err := readPassword(c.SecretFile, env.Stdin)
		if err != nil {
			return err
		}
		set(true, "secret", func() { sink.Secret = secret })
	}
	set(c.Type != nil, "types", func() { sink.Types = *c.Type })
	set(c.Camera != nil, "cameras", func() {
		for _, camera := range *c.Camera {
			sink.Cameras = append(sink.Cameras, fullName(camera))
		}
	})
	set(c.DisplayName != nil, "display_name", func() { sink.DisplayName = *c.DisplayName })
	set(c.Disabled != nil, "disabled", func() { sink.Disabled = *c.Disabled })
	if len(mask.GetPaths()) == 0 {
		return errors.New("nothing would change: give --address, --secret-file, --type, --camera, --name or --disabled")
	}
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := vedettev1.NewSinkServiceClient(conn).UpdateSink(ctx, &vedettev1.UpdateSinkRequest{Sink: sink, UpdateMask: mask, ValidateOnly: c.ValidateOnly})
		if err != nil {
			return err
		}
		return c.printSinks(env, s)
	})
}

type sinkWatch struct {
	client
	Every time.Duration `default:"2s" help:"Pause between two looks."`
}

// Run prints the sinks until ctx ends.
func (c *sinkWatch) Run(ctx context.Context, env *Env, g *grammar) error {
	w := watching{Watch: c.Every}
	return w.again(ctx, env, func() error { return (&sinkList{client: c.client}).Run(ctx, env, g) })
}

type sinkRefused struct {
	client
	ID    string `arg:"" complete:"sink" help:"Name of the sink."`
	Limit int32  `default:"100" help:"How many at most; 0: all."`
}

// Run lists a sink's dead letters.
func (c *sinkRefused) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		list, err := pages(c.Limit, 1000, func(size int32, token string) ([]*vedettev1.DeadLetter, string, error) {
			r, err := vedettev1.NewSinkServiceClient(conn).ListDeadLetters(ctx, &vedettev1.ListDeadLettersRequest{Parent: "sinks/" + c.ID, PageSize: size, PageToken: token})
			return r.GetDeadLetters(), r.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return show(&c.client, env, []string{"EVENT", "CAMERA", "TYPE", "TIME", "ATTEMPTS", "REASON"}, list, func(l *vedettev1.DeadLetter) []string {
			e := l.GetEvent()
			return []string{
				l.GetName()[strings.LastIndexByte(l.GetName(), '/')+1:], strings.TrimPrefix(e.GetCamera(), "cameras/"), e.GetType(), e.GetTime().AsTime().Format(time.RFC3339),
				strconv.Itoa(int(l.GetAttempts())), l.GetReason(),
			}
		})
	})
}

// sinkLetters are the dead letters that a command is about.
type sinkLetters struct {
	client
	ID    string  `arg:"" complete:"sink" help:"Name of the sink."`
	Event []int64 `arg:"" optional:"" help:"Numbers of the events, as sink refused lists them."`
	All   bool    `help:"All of them."`
}

func (c *sinkLetters) names() (names []string) {
	for _, seq := range c.Event {
		names = append(names, fmt.Sprintf("sinks/%s/deadLetters/%d", c.ID, seq))
	}
	return names
}

type sinkRedeliver struct{ sinkLetters }

// Run has dead letters sent again.
func (c *sinkRedeliver) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewSinkServiceClient(conn).RedeliverDeadLetters(ctx, &vedettev1.RedeliverDeadLettersRequest{Parent: "sinks/" + c.ID, Names: c.names(), All: c.All})
		if err == nil {
			_, err = fmt.Fprintln(env.Stdout, "sent again:", r.GetCount())
		}
		return err
	})
}

type sinkForget struct{ sinkLetters }

// Run gives dead letters up.
func (c *sinkForget) Run(ctx context.Context, env *Env, g *grammar) error {
	return c.on(ctx, g, func(ctx context.Context, conn *grpc.ClientConn) error {
		r, err := vedettev1.NewSinkServiceClient(conn).DeleteDeadLetters(ctx, &vedettev1.DeleteDeadLettersRequest{Parent: "sinks/" + c.ID, Names: c.names(), All: c.All})
		if err == nil {
			_, err = fmt.Fprintln(env.Stdout, "given up:", r.GetCount())
		}
		return err
	})
}
