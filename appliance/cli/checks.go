package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/vedette/vedette/appliance/fleet"
)

// checks tell what is wrong with the value of a setting beyond its type, "" when nothing is. What changes from one moment
// to the next, such as whether a port is free, is found out by the doctor and by the start; a box without ONNX Runtime runs,
// and the doctor says what it lacks.
//
//nolint:gochecknoglobals // a constant table
var checks = map[string]func(value string) string{
	"http": address, "grpc": address, "infer-http": address, "infer-grpc": address, "infer-metrics": address,
	"keep-days": upTo(1e6), "keep-media-days": upTo(1e6), "keep-gib": upTo(1e6), "min-free-gib": upTo(1e6), "trace-ratio": upTo(1),
	"follow-interval": interval, "inference-timeout": interval, "trace-otlp": webAddress, "hub": webAddress,
	"tls-cert": readable, "tls-key": readable, "tls-client-ca": authorities, "follow-key": publicKey, "hub-token": readable,
	"models": folder,
}

// meaning tells what is wrong with a setting that has a value of its type. An empty one stands for the default, or for off.
func meaning(name, value string) string {
	if check := checks[name]; check != nil && value != "" {
		if fault := check(value); fault != "" {
			return fmt.Sprintf("%q: %s", value, fault)
		}
	}
	return ""
}

// together tells by name what is wrong with settings beside each other.
func together(values map[string]string) map[string]string {
	cert, key := values["tls-cert"], values["tls-key"]
	switch {
	case cert != "" && key == "":
		return map[string]string{"tls-cert": "it needs tls-key beside it"}
	case key != "" && cert == "":
		return map[string]string{"tls-key": "it needs tls-cert beside it"}
	case cert != "" && readable(cert) == "" && readable(key) == "":
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil && !errors.Is(err, fs.ErrPermission) {
			return map[string]string{"tls-cert": fmt.Sprintf("%s with %s: %v", cert, key, err)}
		}
	}
	return nil
}

// judge tells every fault of the settings that the chosen command runs with, wherever they were given.
func judge(kctx *kong.Context) error {
	switch kctx.Selected().Name {
	case "run", "serve":
	default:
		return nil
	}
	values, faults := map[string]string{}, map[string]string{}
	for _, f := range kctx.Flags() {
		values[f.Name] = fmt.Sprint(f.Target.Interface())
		if fault := meaning(f.Name, values[f.Name]); fault != "" {
			faults[f.Name] = fault
		}
	}
	maps.Copy(faults, together(values))
	list := make([]string, 0, len(faults))
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		list = append(list, fmt.Sprintf("--%s %s", name, faults[name]))
	}
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(list, "; "))
}

func address(value string) string {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return "it is not host:port, such as 127.0.0.1:8080"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "its port is not a number up to 65535"
	}
	return ""
}

func upTo(most float64) func(string) string {
	return func(value string) string {
		if v, err := strconv.ParseFloat(value, 64); err != nil || !(v >= 0 && v <= most) {
			return fmt.Sprintf("it is not within 0 and %.0f", most)
		}
		return ""
	}
}

func interval(value string) string {
	if d, err := time.ParseDuration(value); err != nil || d <= 0 {
		return "it is no time such as 30s"
	}
	return ""
}

func webAddress(value string) string {
	if u, err := url.Parse(value); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "it is no address of the form http://host:port or https://host:port"
	}
	return ""
}

// readable finds fault with a file that is not there. One that this user may not read is not judged.
func readable(path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return ""
	case err != nil:
		return "there is no such file"
	case info.IsDir():
		return "it is a folder, where a file belongs"
	}
	return ""
}

func folder(path string) string {
	if info, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrPermission) || err == nil && !info.IsDir() {
		return "there is no such folder"
	}
	return ""
}

func authorities(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return readable(path)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return "there is no certificate in it"
	}
	return ""
}

func publicKey(path string) string {
	_, err := fleet.ReadPublicKey(path)
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return ""
	}
	if fault := readable(path); fault != "" {
		return fault
	}
	return err.Error()
}
