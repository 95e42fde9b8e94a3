package sinks_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// authority signs a certificate for loopback and returns it with its own.
func authority(t *testing.T) (caPEM string, certificate tls.Certificate) {
	t.Helper()
	sign := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			by = key
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, caKey := sign(ca, ca, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "receiver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, key := sign(leaf, ca, caKey)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// overTLS has a sink deliver with the receiver's authority, and says no without it.
func overTLS(t *testing.T, caPEM string, target func() *vedettev1.Sink) {
	t.Helper()
	b := open(t, t.TempDir())
	trusting, doubting := target(), target()
	trusting.CaPem = caPEM
	b.create("trusting", trusting)
	b.create("doubting", doubting)
	b.happen(50)
	b.state("trusting", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 50 })
	s := b.state("doubting", func(s *vedettev1.DeliveryStatus) bool { return s.GetFailures() > 0 })
	if s.GetDelivered() != 0 || !strings.Contains(s.GetMessage(), "certificate") {
		t.Errorf("without the authority: %s", s)
	}
	b.stop()
}

func TestMQTTOverTLS(t *testing.T) {
	ca, certificate := authority(t)
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(ca), 0o644); err != nil {
		t.Fatal(err)
	}
	broker := startBroker(t, fmt.Sprintf("user root\ncafile %[1]s/ca.pem\ncertfile %[1]s/cert.pem\nkeyfile %[1]s/key.pem\n", dir))
	overTLS(t, ca, func() *vedettev1.Sink {
		return &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtts://" + broker.address}}}
	})
}

func TestNATSOverTLS(t *testing.T) {
	ca, certificate := authority(t)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, TLS: true, TLSTimeout: 20,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not come up")
	}
	overTLS(t, ca, func() *vedettev1.Sink {
		return &vedettev1.Sink{Target: &vedettev1.Sink_Nats{Nats: &vedettev1.NatsTarget{Uri: "tls://" + s.Addr().String(), Stream: "events"}}}
	})
}

func TestKafkaOverTLS(t *testing.T) {
	ca, certificate := authority(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	overTLS(t, ca, func() *vedettev1.Sink {
		return &vedettev1.Sink{Target: &vedettev1.Sink_Kafka{Kafka: &vedettev1.KafkaTarget{Brokers: cluster.ListenAddrs(), Topic: "events", Tls: true}}}
	})
}

func TestWebhookOverTLS(t *testing.T) {
	ca, certificate := authority(t)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	hook.StartTLS()
	defer hook.Close()
	overTLS(t, ca, func() *vedettev1.Sink {
		return &vedettev1.Sink{Target: &vedettev1.Sink_Webhook{Webhook: &vedettev1.WebhookTarget{Uri: hook.URL}}}
	})
}

func TestMQTTSpeaksONVIF(t *testing.T) {
	broker := startBroker(t, "")
	b := open(t, t.TempDir())
	got := broker.subscribe()
	b.create("vms", &vedettev1.Sink{Target: &vedettev1.Sink_Mqtt{Mqtt: &vedettev1.MqttTarget{Uri: "mqtt://" + broker.address, Onvif: true}}})
	await(t, got, is("vedette/status", "online"))
	b.happen(3)
	for range 3 {
		m := await(t, got, func(m message) bool { return strings.HasPrefix(m.topic, "vedette/onvif-ej/") })
		var e struct {
			UtcTime     time.Time
			Source, Key map[string]string
			Data        map[string]any
		}
		if err := json.Unmarshal([]byte(m.payload), &e); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.topic, "vedette/onvif-ej/RuleEngine/FieldDetector/ObjectsInside/&") || e.UtcTime.IsZero() || e.Source["VideoSource"] == "" || e.Data["IsInside"] != true {
			t.Errorf("%s: %s", m.topic, m.payload)
		}
	}
	b.state("vms", func(s *vedettev1.DeliveryStatus) bool { return s.GetDelivered() == 3 })
	b.stop()
}
