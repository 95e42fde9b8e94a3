package sinks

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// mqtt publishes events to an MQTT 5 broker.
type mqtt struct {
	target    *vedettev1.MqttTarget
	password  string
	tls       *tls.Config
	client    *paho.Client
	largest   uint32          // bytes the broker takes in a packet; 0: any
	announced map[string]bool // configurations sent over this connection
}

const (
	mqttKeepAlive   = 30 // seconds
	mqttStopTimeout = time.Second
	// mqttOverhead is what a PUBLISH has besides topic and payload, at most.
	mqttOverhead       = 10
	mqttPacketTooLarge = 0x95 // mosquitto says so in a PUBACK, where MQTT 5 does not foresee it
	online, offline    = "online", "offline"
)

func newMQTT(sink *vedettev1.Sink, password string) *mqtt {
	t := sink.GetMqtt()
	m := &mqtt{password: password, tls: trust(sink.GetCaPem()), target: &vedettev1.MqttTarget{
		Uri: t.GetUri(), Username: t.GetUsername(), TopicPrefix: or(t.GetTopicPrefix(), "vedette"), ClientId: or(t.GetClientId(), "vedette-"+sink.GetUid()),
		HomeAssistant: t.GetHomeAssistant(), DiscoveryPrefix: or(t.GetDiscoveryPrefix(), "homeassistant"), Onvif: t.GetOnvif(),
	}}
	return m
}

func or(v, standard string) string {
	if v == "" {
		return standard
	}
	return v
}

func (m *mqtt) statusTopic() string { return m.target.GetTopicPrefix() + "/status" }

func (m *mqtt) connect(ctx context.Context) error {
	conn, err := dialMQTT(ctx, m.target.GetUri(), m.tls)
	if err != nil {
		return fmt.Errorf("connect to the MQTT broker: %w", err)
	}
	client := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: 10 * time.Second})
	user := m.target.GetUsername()
	answer, err := client.Connect(ctx, &paho.Connect{
		ClientID: m.target.GetClientId(), KeepAlive: mqttKeepAlive, CleanStart: true,
		Username: user, UsernameFlag: user != "", Password: []byte(m.password), PasswordFlag: m.password != "",
		// When the box falls silent, the broker says so for it.
		WillMessage: &paho.WillMessage{Topic: m.statusTopic(), Payload: []byte(offline), QoS: 1, Retain: true},
	})
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("log in at the MQTT broker: %w", err)
	}
	m.client, m.largest, m.announced = client, 0, map[string]bool{}
	if p := answer.Properties; p != nil && p.MaximumPacketSize != nil {
		m.largest = *p.MaximumPacketSize
	}
	if err := m.publish(ctx, m.statusTopic(), []byte(online), true); err != nil {
		m.close() //nolint:contextcheck // the goodbye is said also when ctx has ended
		return err
	}
	return nil
}

func dialMQTT(ctx context.Context, uri string, trusted *tls.Config) (net.Conn, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, fmt.Errorf("the address cannot be read")
	}
	port := u.Port()
	if u.Scheme == "mqtts" {
		d := tls.Dialer{Config: trusted} // which takes the server's name from the address
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), or(port, "8883")))
		if err != nil {
			return nil, err
		}
		return packets.NewThreadSafeConn(conn), nil
	}
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), or(port, "1883")))
}

func (m *mqtt) lost() <-chan struct{} {
	if m.client == nil {
		return nil
	}
	return m.client.Done()
}

func (m *mqtt) close() {
	if m.client == nil {
		return
	}
	select {
	case <-m.client.Done():
	default:
		// Whoever says goodbye has no will: say it here.
		ctx, cancel := context.WithTimeout(context.Background(), mqttStopTimeout)
		_ = m.publish(ctx, m.statusTopic(), []byte(offline), true)
		cancel()
		_ = m.client.Disconnect(&paho.Disconnect{ReasonCode: 0})
		<-m.client.Done()
	}
	m.client = nil
}

func (m *mqtt) publish(ctx context.Context, topic string, payload []byte, retain bool) error {
	packet := &paho.Publish{Topic: topic, Payload: payload, QoS: 1, Retain: retain}
	// Brokers hang up on a packet that is too large.
	if size := mqttOverhead + len(topic) + len(payload); m.largest > 0 && uint64(size) > uint64(m.largest) {
		return &refusedError{err: fmt.Errorf("publish to %s: %d bytes, and the broker takes %d", topic, size, m.largest), event: true}
	}
	answer, err := m.client.Publish(ctx, packet)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("publish to %s: %w", topic, err)
	if answer == nil {
		return err
	}
	switch answer.ReasonCode {
	case packets.PubackTopicNameInvalid, mqttPacketTooLarge, packets.PubackPayloadFormatInvalid:
		return &refusedError{err: err, event: true}
	case packets.PubackQuotaExceeded:
		return err
	}
	return &refusedError{err: err}
}

func (m *mqtt) deliver(ctx context.Context, events []*vedettev1.Event) (int, error) {
	for i, e := range events {
		if m.target.GetOnvif() {
			topic, body, ok := onvif(e)
			if !ok {
				continue
			}
			if err := m.publish(ctx, m.target.GetTopicPrefix()+"/onvif-ej/"+topic, body, false); err != nil {
				return i, err
			}
			continue
		}
		body, err := encode(e)
		if err != nil {
			return i, &refusedError{err: err, event: true}
		}
		if m.target.GetHomeAssistant() {
			if err := m.announce(ctx, e); err != nil {
				return i, err
			}
		}
		if zone, inside := e.GetAttributes()["zone"], e.GetAttributes()["inside"]; inside != "" {
			if err := m.publish(ctx, m.zoneTopic(e, zone), []byte(inside), true); err != nil {
				return i, err
			}
		}
		if err := m.publish(ctx, m.cameraTopic(e)+"/events/"+level(e.GetType()), body, false); err != nil {
			return i, err
		}
	}
	return len(events), nil
}

func (m *mqtt) cameraTopic(e *vedettev1.Event) string {
	return m.target.GetTopicPrefix() + "/" + level(strings.TrimPrefix(e.GetCamera(), "cameras/"))
}

func (m *mqtt) zoneTopic(e *vedettev1.Event, zone string) string {
	return m.cameraTopic(e) + "/zones/" + level(lastPart(zone)) + "/occupancy"
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// level makes a text one level of a topic.
func level(s string) string {
	return or(strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune("/+#.*> ", r) {
			return '_'
		}
		return r
	}, s), "_")
}

// announce tells Home Assistant of the camera and the zone an event is about, once a connection: the broker keeps it,
// but may have forgotten.
func (m *mqtt) announce(ctx context.Context, e *vedettev1.Event) error {
	camera := level(strings.TrimPrefix(e.GetCamera(), "cameras/"))
	unique := level(m.target.GetClientId() + "_" + camera)
	device := map[string]any{"identifiers": []string{unique}, "name": camera, "manufacturer": "Vedette"}
	about := func(component, object string, more map[string]any) error {
		topic := m.target.GetDiscoveryPrefix() + "/" + component + "/" + unique + "/" + object + "/config"
		if m.announced[topic] {
			return nil
		}
		more["unique_id"], more["device"], more["availability_topic"] = unique+"_"+object, device, m.statusTopic()
		body, err := json.Marshal(more)
		if err != nil {
			return fmt.Errorf("announce %s: %w", topic, err)
		}
		if err := m.publish(ctx, topic, body, true); err != nil {
			return err
		}
		m.announced[topic] = true
		return nil
	}
	err := about("event", "events", map[string]any{
		"name": "events", "state_topic": m.cameraTopic(e) + "/events/+", "value_template": "{{ {'event_type': value_json.type} | tojson }}",
		"event_types": []string{"zone_entered", "zone_left", "zone_dwell", "zone_loitering", "zone_occupied", "zone_cleared", "line_crossed"},
	})
	name := e.GetAttributes()["zone"]
	if err != nil || name == "" {
		return err
	}
	zone, topic := level(lastPart(name)), m.zoneTopic(e, name)
	if err := about("binary_sensor", "zone_"+zone, map[string]any{
		"name": zone, "device_class": "occupancy", "state_topic": topic, "value_template": "{{ 'ON' if value | int > 0 else 'OFF' }}",
	}); err != nil {
		return err
	}
	return about("sensor", "zone_"+zone+"_count", map[string]any{"name": zone + " count", "state_topic": topic, "state_class": "measurement"})
}
