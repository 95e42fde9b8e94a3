package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"text/tabwriter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/vedette/vedette/appliance"
	"github.com/vedette/vedette/appliance/certificate"
)

// client says how to reach a running appliance.
type client struct {
	Server string `env:"VEDETTE_SERVER" placeholder:"ADDR" help:"gRPC address of the appliance; the data directory's own socket by default."`
	Token  string `env:"VEDETTE_TOKEN" help:"Token, needed with --server."`
	Pin    string `name:"tls-fingerprint" env:"VEDETTE_TLS_FINGERPRINT" placeholder:"SHA256" help:"Fingerprint of the server's certificate, as its log tells it."`
	CA     string `name:"tls-ca" type:"path" env:"VEDETTE_TLS_CA" placeholder:"FILE" help:"Authority that signed the server's certificate."`
	Cert   string `name:"tls-client-cert" type:"path" env:"VEDETTE_TLS_CLIENT_CERT" placeholder:"FILE" help:"Certificate to show to a server that asks for one (tls-client-ca)."`
	Key    string `name:"tls-client-key" type:"path" env:"VEDETTE_TLS_CLIENT_KEY" placeholder:"FILE" help:"Its key."`
	Output string `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// connect returns a connection and the context that carries the token.
func (c *client) connect(ctx context.Context, g *grammar) (context.Context, *grpc.ClientConn, error) {
	target := c.Server
	if target == "" {
		socket := appliance.LocalSocket(g.DataDir)
		if _, err := os.Stat(socket); errors.Is(err, fs.ErrPermission) {
			return nil, nil, fmt.Errorf("%s is the service's own: use sudo, or a token (--server 127.0.0.1:8090 --token TOKEN, or VEDETTE_SERVER and VEDETTE_TOKEN)", g.DataDir)
		} else if err != nil {
			return nil, nil, fmt.Errorf("no appliance runs with the data directory %s: start one (vedette run), or name another with --data-dir or --server", g.DataDir)
		}
		target = "unix:" + socket
	}
	if c.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.Token)
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	return ctx, conn, nil
}

// credentials are TLS when the server has to prove who it is, by fingerprint or by authority, or this client has to.
func (c *client) credentials() (credentials.TransportCredentials, error) {
	if c.Server == "" || (c.Pin == "" && c.CA == "" && c.Cert == "" && nearby(c.Server)) {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12} // the machine's authorities
	switch {
	case c.Pin != "":
		var err error
		if cfg, err = certificate.Pinned(c.Pin); err != nil {
			return nil, fmt.Errorf("--tls-fingerprint: %w", err)
		}
	case c.CA != "":
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca: there is no certificate in %s", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client's certificate and its key belong together: give both --tls-client-cert and --tls-client-key, or neither")
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-client-cert: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(cfg), nil
}

// nearby tells whether an address stays on this machine: there the appliance speaks plainly.
func nearby(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return strings.HasPrefix(address, "unix:") || (err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback())))
}

// plain turns an answer of the API into an error for a person.
func plain(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	// The API says what is wrong in words of its own; gRPC itself adds no details.
	if s.Code() == codes.Unavailable && len(s.Details()) == 0 {
		_, why, _ := strings.Cut(s.Message(), "desc = ")
		for sign, advice := range map[string]string{
			"tls: certificate required":                      "the appliance lets in only who shows a certificate: give --tls-client-cert and --tls-client-key",
			"tls: unknown certificate authority":             "the appliance does not know who signed the certificate of --tls-client-cert: its setting tls-client-ca names whom it trusts",
			"tls: bad certificate":                           "the appliance does not take the certificate of --tls-client-cert: its setting tls-client-ca names whom it trusts",
			"tls: expired certificate":                       "the certificate of --tls-client-cert has expired",
			"x509: certificate signed by unknown authority":  "who signed the appliance's certificate is not known here: give its --tls-fingerprint, which its log tells, or --tls-ca",
			"tls: first record does not look like a TLS":     "the appliance does not speak TLS at this address: leave the --tls flags out",
			"error reading server preface: EOF":              "the appliance speaks TLS at this address: give its --tls-fingerprint, which its log tells, or --tls-ca",
			"error reading server preface: http2: frame too": "this is no gRPC address; the dashboard's is another",
		} {
			if strings.Contains(why, sign) {
				return fmt.Errorf("%s (%s)", advice, strings.Trim(why, `"`))
			}
		}
		if strings.Contains(why, "broken pipe") || strings.Contains(why, "connection reset") {
			return fmt.Errorf("the appliance ended the connection: %s (where it asks for a client's certificate, --tls-client-cert has to be one it trusts)", strings.Trim(why, `"`))
		}
		return fmt.Errorf("the appliance cannot be reached: %s (does it run, and is this its gRPC address?)", strings.Trim(why, `"`))
	}
	return errors.New(s.Message())
}

// printJSON prints messages one after another.
func printJSON(w io.Writer, messages ...proto.Message) error {
	for _, m := range messages {
		b, err := protojson.MarshalOptions{Multiline: false}.Marshal(m)
		if err != nil {
			return err
		}
		var indented any
		if err := json.Unmarshal(b, &indented); err != nil {
			return err
		}
		b, err = json.MarshalIndent(indented, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, string(b)); err != nil {
			return err
		}
	}
	return nil
}

// table prints rows in columns.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}
