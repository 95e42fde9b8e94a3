package flags

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// tlsFlags are one listener's certificates.
type tlsFlags struct {
	use, mutual     bool
	cert, key, root string
}

func (t *tlsFlags) define(p *parser, name string) {
	p.bool(&t.use, name+"-use-ssl", false, "serve "+name+" over TLS")
	p.bool(&t.mutual, name+"-use-ssl-mutual", false, "and ask clients for certificates")
	p.set.StringVar(&t.cert, name+"-server-cert", "", "`file` of the certificate, PEM")
	p.set.StringVar(&t.key, name+"-server-key", "", "`file` of its key, PEM")
	p.set.StringVar(&t.root, name+"-root-cert", "", "`file` of the authorities of clients' certificates, PEM")
}

// config reads the files.
func (t *tlsFlags) config(name string) (*tls.Config, error) {
	if !t.use && !t.mutual {
		return nil, nil //nolint:nilnil // plain text
	}
	if t.cert == "" || t.key == "" {
		return nil, fmt.Errorf("--%s-use-ssl needs --%s-server-cert and --%s-server-key", name, name, name)
	}
	cert, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--%s-server-cert %q and --%s-server-key %q: %w", name, t.cert, name, t.key, err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if t.mutual && t.root == "" {
		return nil, fmt.Errorf("--%s-use-ssl-mutual needs --%s-root-cert", name, name)
	}
	if t.mutual {
		pem, err := os.ReadFile(t.root)
		if err != nil {
			return nil, fmt.Errorf("--%s-root-cert: %w", name, err)
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--%s-root-cert %q holds no certificate", name, t.root)
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}
