package appliance

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"

	"github.com/vedette/vedette/appliance/certificate"
)

// encrypt puts TLS on the listeners that others can reach.
func (a *Appliance) encrypt(l *listeners) error {
	var open []*net.Listener
	for _, ln := range []*net.Listener{&l.http, &l.grpc} {
		if *ln != nil && !loopback((*ln).Addr().String()) {
			open = append(open, ln)
		}
	}
	if len(open) == 0 {
		return nil
	}
	cfg := a.cfg.TLS
	cfg.Dir, cfg.Logger = a.cfg.DataDir, a.cfg.Logger
	cfg.Names = append(addresses(), cfg.Names...)
	source, err := certificate.Open(cfg)
	if err != nil {
		return err
	}
	for _, ln := range open {
		*ln = tls.NewListener(*ln, source.Config())
	}
	a.fingerprint = source.Fingerprint()
	a.cfg.Logger.Info("addresses that others can reach are served over TLS", slog.String("fingerprint", a.fingerprint))
	return nil
}

// loopback tells whether an address that is listened on can be reached from this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func scheme(address string) string {
	if loopback(address) {
		return "http"
	}
	return "https"
}

// addresses are the names by which others reach this machine.
func addresses() []string {
	var names []string
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			names = append(names, n.IP.String())
		}
	}
	return names
}
