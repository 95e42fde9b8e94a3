// Package remote is the backend that hands requests to another server of the v2
// protocol: a model in any language, a box with a GPU, a cluster.
//
// Parameters:
//
//	url              grpc://host:port, http://host:port, https://… or unix:///path; several, by
//	                 commas, share the load and stand in for each other
//	remote_model     the model's name there (the same as here)
//	remote_version   its version there (the server's choice)
//	timeout_ms       for one request, retries included (30000)
//	retries          how often a request that found no server is tried again (2)
//	retry_wait_ms    before the first retry, doubling (20)
//	health_check_ms  how often each server is asked whether the model there is ready (2000; 0 never)
//	tls              true: gRPC over TLS; ca_file, cert_file, key_file in the model's directory
//
// Only a request that no server answered is tried again; one that a server answered
// with an error, or with what the configuration does not allow, is not. A sequence stays with the server
// that opened it and is never tried elsewhere. A server whose model is not ready,
// or that cannot be reached, is passed over while another one stands in.
//
// The addresses that one name stands for stand in for each other too; over gRPC they
// share the load, unless the model keeps sequences.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/vedette/vedette/api/inference"
	"github.com/vedette/vedette/infer/backend"
	"github.com/vedette/vedette/infer/modelconfig"
	"github.com/vedette/vedette/infer/tensor"
	"github.com/vedette/vedette/infer/v2client"
)

// New returns the backend.
func New() *Backend { return &Backend{} }

// Backend is the remote backend.
type Backend struct{}

var _ backend.Backend = (*Backend)(nil)

// Complete asks the remote server for what the configuration leaves out. A
// configuration that lists inputs and outputs needs no server to be loaded.
func (*Backend) Complete(ctx context.Context, m *backend.Model) error {
	in, err := parse(m)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // nothing was sent
	if len(m.Config.GetInput()) > 0 && len(m.Config.GetOutput()) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	var faults []error
	for _, s := range in.servers {
		there, err := s.config(ctx, in.model, in.version)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		adopt(m.Config, there)
		return nil
	}
	return fmt.Errorf("remote model %q: ask for the configuration: %w", m.Name, errors.Join(faults...))
}

// adopt takes over what a proxy has in common with the model it stands for.
func adopt(c, there *inference.ModelConfig) {
	if c.GetMaxBatchSize() == 0 {
		c.MaxBatchSize = there.GetMaxBatchSize()
	}
	modelconfig.FillIO(c, there)
	if c.GetModelTransactionPolicy() == nil {
		c.ModelTransactionPolicy = there.GetModelTransactionPolicy()
	}
	if s := there.GetSequenceBatching(); s != nil && c.GetSchedulingChoice() == nil {
		c.SchedulingChoice = &inference.ModelConfig_SequenceBatching{SequenceBatching: &inference.ModelSequenceBatching{
			MaxSequenceIdleMicroseconds: s.GetMaxSequenceIdleMicroseconds(),
			StrategyChoice: &inference.ModelSequenceBatching_Oldest{
				Oldest: &inference.ModelSequenceBatching_StrategyOldest{MaxCandidateSequences: maxSequences},
			},
		}}
	}
}

// maxSequences bounds the sequences a proxy has open at once.
const maxSequences = 1024

// NewInstance makes a client of the servers; it connects with the first request.
func (*Backend) NewInstance(ctx context.Context, m *backend.Model, _ backend.Placement) (backend.Instance, error) {
	in, err := parse(m)
	if err != nil {
		return nil, err
	}
	in.watch(context.WithoutCancel(ctx))
	return in, nil
}

// instance is a client of all servers of a model.
type instance struct {
	model     string
	version   int64
	timeout   time.Duration
	retries   int
	wait      time.Duration
	servers   []*server
	inputs    map[string]bool
	outputs   map[string]tensor.DataType
	decoupled bool
	health    time.Duration // between checks; 0: none
	stop      context.CancelFunc
	checking  sync.WaitGroup
	prefix    uint64 // of our correlation ids, so that two of us do not meet in one server

	mu    sync.Mutex // guards next and homes
	next  int
	homes map[uint64]*server // of open sequences
}

func parse(m *backend.Model) (*instance, error) {
	in := &instance{
		model: m.Parameter("remote_model", m.Name), timeout: 30 * time.Second, retries: 2, wait: 20 * time.Millisecond, health: 2 * time.Second,
		inputs: map[string]bool{}, outputs: map[string]tensor.DataType{}, homes: map[uint64]*server{}, prefix: uint64(rand.Uint32()|1) << 32,
		decoupled: m.Config.GetModelTransactionPolicy().GetDecoupled(),
	}
	var faults []error
	number := func(key string, least int, set func(int)) {
		v := m.Parameter(key, "")
		if v == "" {
			return
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			faults = append(faults, fmt.Errorf("parameters[%s]: %q is not a number from %d", key, v, least))
			return
		}
		set(n)
	}
	number("remote_version", 1, func(n int) { in.version = int64(n) })
	number("timeout_ms", 1, func(n int) { in.timeout = time.Duration(n) * time.Millisecond })
	number("retries", 0, func(n int) { in.retries = n })
	number("health_check_ms", 0, func(n int) { in.health = time.Duration(n) * time.Millisecond })
	number("retry_wait_ms", 1, func(n int) { in.wait = time.Duration(n) * time.Millisecond })
	secure, err := tlsOf(m)
	if err != nil {
		faults = append(faults, err)
	}
	for word := range strings.SplitSeq(m.Parameter("url", ""), ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		s, err := newServer(word, secure, m.Config.GetSequenceBatching() == nil)
		if err != nil {
			faults = append(faults, fmt.Errorf("parameters[url]: %w", err))
			continue
		}
		if s.http != nil && in.decoupled {
			faults = append(faults, fmt.Errorf("parameters[url]: %q: a decoupled model answers over gRPC alone", word))
		}
		in.servers = append(in.servers, s)
	}
	if len(in.servers) == 0 && len(faults) == 0 {
		faults = append(faults, errors.New("parameters[url] names no server"))
	}
	for _, i := range m.Config.GetInput() {
		in.inputs[i.GetName()] = true
	}
	for _, o := range m.Config.GetOutput() {
		in.outputs[o.GetName()] = modelconfig.DataType(o.GetDataType())
	}
	if len(faults) > 0 {
		_ = in.Close() // nothing was sent
		return nil, fmt.Errorf("remote model %q: %w", m.Name, errors.Join(faults...))
	}
	return in, nil
}

// tlsOf reads the certificates; nil is plain text.
func tlsOf(m *backend.Model) (*tls.Config, error) {
	switch v := m.Parameter("tls", "false"); v {
	case "false":
		return nil, nil //nolint:nilnil // plain text
	case "true":
	default:
		return nil, fmt.Errorf("parameters[tls]: %q is not true or false", v)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	file := func(key string) (string, bool) {
		v := m.Parameter(key, "")
		return filepath.Join(m.Dir, filepath.Clean("/"+v)), v != ""
	}
	if path, given := file("ca_file"); given {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("parameters[ca_file]: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameters[ca_file]: %s has no certificate", path)
		}
	}
	if cert, given := file("cert_file"); given {
		key, _ := file("key_file")
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("parameters[cert_file], parameters[key_file]: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// everyAddress makes gRPC use all addresses a name has, in turns, not only the first that answers.
const everyAddress = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// newServer makes a client; it does not connect. Share spreads requests over the addresses of a name.
func newServer(address string, secure *tls.Config, share bool) (*server, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	s := &server{address: address}
	switch u.Scheme {
	case "http", "https":
		s.http = v2client.NewHTTP(strings.TrimSuffix(address, "/"), v2client.Config{TLS: secure})
		return s, nil
	case "grpc":
		if u.Port() == "" || u.Path != "" {
			return nil, fmt.Errorf("%q is not grpc://host:port", address)
		}
		var extra []grpc.DialOption
		if share {
			extra = append(extra, grpc.WithDefaultServiceConfig(everyAddress))
		}
		s.grpc, err = v2client.New(u.Host, v2client.Config{TLS: secure}, extra...)
	case "unix":
		s.grpc, err = v2client.New(address, v2client.Config{TLS: secure})
	default:
		return nil, fmt.Errorf("%q is not grpc://, http://, https:// or unix://", address)
	}
	return s, err
}

// Close ends the connections.
func (in *instance) Close() error {
	if in.stop != nil {
		in.stop()
		in.checking.Wait()
	}
	var faults []error
	for _, s := range in.servers {
		faults = append(faults, s.close())
	}
	return errors.Join(faults...)
}

// EndSequence forgets which server a sequence lives on.
func (in *instance) EndSequence(sequence uint64, _ backend.Cause) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.homes, sequence)
}
