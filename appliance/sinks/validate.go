package sinks

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/appliance/cameras"
)

// Limits of a sink.
const (
	maxDisplayName = 200
	maxFilter      = 256
	maxSecret      = 4096
	maxTemplate    = 32 << 10
	maxHeaders     = 32
	maxCA          = 256 << 10
)

func invalid(field, format string, args ...any) error {
	return &cameras.InvalidError{Violations: []cameras.Violation{{Field: field, Description: fmt.Sprintf(format, args...)}}}
}

type faults struct{ list []cameras.Violation }

func (f *faults) add(field, format string, args ...any) {
	f.list = append(f.list, cameras.Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }

// newCarrier makes the carrier of a sink that was validated.
func newCarrier(sink *vedettev1.Sink, secret string, box self) carrier {
	switch sink.GetTarget().(type) {
	case *vedettev1.Sink_Mqtt:
		return newMQTT(sink, secret)
	case *vedettev1.Sink_Webhook:
		return newWebhook(sink, secret, box)
	case *vedettev1.Sink_Nats:
		return newNATS(sink, secret, box)
	case *vedettev1.Sink_Kafka:
		return newKafka(sink, secret, box)
	}
	return nowhere{}
}

// nowhere is the carrier of a sink of a kind this version does not know.
type nowhere struct{}

func (nowhere) connect(context.Context) error {
	return errors.New("this version does not know the kind of the sink")
}
func (nowhere) lost() <-chan struct{} { return nil }
func (nowhere) close()                {}
func (nowhere) deliver(context.Context, []*vedettev1.Event) (int, error) {
	return 0, errors.New("this version does not know the kind of the sink")
}

// validate reports every fault at once.
func validate(id string, s *vedettev1.Sink, secret string) error {
	f := &faults{}
	if !matches(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`, id) {
		f.add("sink_id", "%q: 1 to 63 of a-z, 0-9 and -, the first a letter and the last not -", id)
	}
	if n := utf8.RuneCountInString(s.GetDisplayName()); n > maxDisplayName {
		f.add("sink.display_name", "%d characters, at most %d", n, maxDisplayName)
	}
	if len(secret) > maxSecret {
		f.add("sink.secret", "%d bytes, at most %d", len(secret), maxSecret)
	}
	if len(s.GetTypes()) > maxFilter || slices.Contains(s.GetTypes(), "") {
		f.add("sink.types", "at most %d, none empty", maxFilter)
	}
	if pem := s.GetCaPem(); pem != "" && (len(pem) > maxCA || !x509.NewCertPool().AppendCertsFromPEM([]byte(pem))) {
		f.add("sink.ca_pem", "holds no certificate as PEM, or more than %d bytes", maxCA)
	}
	if len(s.GetCameras()) > maxFilter {
		f.add("sink.cameras", "at most %d", maxFilter)
	}
	for i, c := range s.GetCameras() {
		if _, err := cameras.ID(c); err != nil {
			f.add(fmt.Sprintf("sink.cameras[%d]", i), "%q is not of the form cameras/{camera}", c)
		}
	}
	switch s.GetTarget().(type) {
	case *vedettev1.Sink_Mqtt:
		f.mqtt(s.GetMqtt(), secret)
	case *vedettev1.Sink_Webhook:
		f.webhook(s.GetWebhook())
	case *vedettev1.Sink_Nats:
		f.nats(s.GetNats())
	case *vedettev1.Sink_Kafka:
		f.kafka(s.GetKafka())
	default:
		f.add("sink.target", "missing: one of mqtt, webhook, nats and kafka")
	}
	if len(f.list) > 0 {
		return &cameras.InvalidError{Violations: f.list}
	}
	return nil
}

// address checks the address of a receiver.
func (f *faults) address(field, uri string, schemes ...string) {
	if uri == "" {
		f.add(field, "missing: %s://host", schemes[0])
		return
	}
	u, err := url.Parse(uri)
	if err != nil || len(uri) > 2048 {
		// The parser's error quotes the address, which may hold a password.
		f.add(field, "is not an address")
		return
	}
	if !slices.Contains(schemes, u.Scheme) {
		f.add(field, "scheme %q is none of %s", u.Scheme, strings.Join(schemes, ", "))
	}
	if u.User != nil {
		f.add(field, "holds a user or password: give them as username and secret, so that they can be kept secret")
	}
	if u.Hostname() == "" {
		f.add(field, "has no host: write %s://host", schemes[0])
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			f.add(field, "port %q is not within 1 and 65535", port)
		}
	}
}

func (f *faults) mqtt(t *vedettev1.MqttTarget, secret string) {
	f.address("sink.mqtt.uri", t.GetUri(), "mqtt", "mqtts")
	for name, topic := range map[string]string{"topic_prefix": t.GetTopicPrefix(), "discovery_prefix": t.GetDiscoveryPrefix()} {
		if topic != "" && (!matches(`^[^+#\x00-\x1f]{1,200}$`, topic) || strings.HasPrefix(topic, "$") || strings.HasSuffix(topic, "/")) {
			f.add("sink.mqtt."+name, "%q: no +, # or control characters, no $ at the start and no / at the end", topic)
		}
	}
	if !matches(`^[^\x00-\x1f]{0,128}$`, t.GetClientId()) {
		f.add("sink.mqtt.client_id", "at most 128 characters")
	}
	if secret != "" && t.GetUsername() == "" {
		f.add("sink.mqtt.username", "missing: a password without a user is of no use")
	}
}

func (f *faults) webhook(t *vedettev1.WebhookTarget) {
	f.address("sink.webhook.uri", t.GetUri(), "https", "http")
	if len(t.GetHeaders()) > maxHeaders {
		f.add("sink.webhook.headers", "%d headers, at most %d", len(t.GetHeaders()), maxHeaders)
	}
	for k, v := range t.GetHeaders() {
		if !matches(`^[A-Za-z0-9-]{1,64}$`, k) || !matches(`^[\x20-\x7e]{0,1000}$`, v) {
			f.add("sink.webhook.headers", "%q: names of letters, digits and -, values of printable ASCII", k)
		}
		switch textproto.CanonicalMIMEHeaderKey(k) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Vedette-Signature", "Vedette-Box", "Vedette-Box-Name":
			f.add("sink.webhook.headers", "%q is set by the box", k)
		}
	}
	if !matches(`^[\x20-\x7e]{0,128}$`, t.GetContentType()) {
		f.add("sink.webhook.content_type", "at most 128 characters of printable ASCII")
	}
	if len(t.GetTemplate()) > maxTemplate {
		f.add("sink.webhook.template", "%d bytes, at most %d", len(t.GetTemplate()), maxTemplate)
		return
	}
	if t.GetTemplate() == "" {
		return
	}
	form, err := parseTemplate(t.GetTemplate())
	if err == nil {
		_, err = fill(form, &vedettev1.Event{
			Name: "cameras/door/events/1", Camera: "cameras/door", Type: "zone_entered", Time: timestamppb.New(time.Unix(0, 0)), Track: "cameras/door/tracks/1-1",
		})
	}
	if err != nil {
		f.add("sink.webhook.template", "%v", err)
	}
}

func (f *faults) nats(t *vedettev1.NatsTarget) {
	for uri := range strings.SplitSeq(t.GetUri(), ",") {
		f.address("sink.nats.uri", strings.TrimSpace(uri), "nats", "tls")
	}
	if p := t.GetSubjectPrefix(); p != "" && !matches(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,15}$`, p) {
		f.add("sink.nats.subject_prefix", "%q: words of letters, digits, _ and -, with dots between", p)
	}
	if s := t.GetStream(); s != "" && !matches(`^[A-Za-z0-9_-]{1,64}$`, s) {
		f.add("sink.nats.stream", "%q: 1 to 64 letters, digits, _ and -", s)
	}
	if len(t.GetBox()) > 128 {
		f.add("sink.nats.box", "%d bytes, at most 128", len(t.GetBox()))
	}
}

func (f *faults) kafka(t *vedettev1.KafkaTarget) {
	if len(t.GetBrokers()) == 0 {
		f.add("sink.kafka.brokers", "missing: host:port")
	}
	for i, b := range t.GetBrokers() {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			f.add(fmt.Sprintf("sink.kafka.brokers[%d]", i), "%q is not host:port", b)
		}
	}
	if !matches(`^[A-Za-z0-9._-]{1,249}$`, t.GetTopic()) {
		f.add("sink.kafka.topic", "%q: 1 to 249 letters, digits, ., _ and -", t.GetTopic())
	}
}
