package sinks

import (
	"crypto/tls"
	"crypto/x509"
)

// trust is how a receiver has to prove who it is: by the authorities of the sink, or else by those of the machine.
func trust(caPEM string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caPEM != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(caPEM)) // was validated
	}
	return c
}
