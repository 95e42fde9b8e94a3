package cameras

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
	"github.com/vedette/vedette/internal/address"
)

// source copies what is registered of a source; its password travels apart.
func source(s *vedettev1.Source) *vedettev1.Source {
	c := &vedettev1.Source{}
	if s != nil {
		c = proto.CloneOf(s)
	}
	c.Password, c.PasswordSet = "", false
	return c
}

// takenApart returns the camera with user and password in their fields when its addresses held them as they were pasted.
// An address that cannot be taken apart, or whose user is not the one given, stays as it is for validation to refuse.
func takenApart(c *vedettev1.Camera) *vedettev1.Camera {
	if c.GetSource() == nil {
		return c
	}
	c = proto.CloneOf(c)
	SplitSource(c.Source)
	return c
}

// SplitSource moves user and password from where they were pasted in a source's addresses to their fields, and reports
// whether there were some.
func SplitSource(s *vedettev1.Source) (found bool) {
	for _, at := range []*string{&s.Uri, &s.MainUri} {
		uri, user, password, err := address.Split(*at)
		switch {
		case err != nil:
		case user == "" && password == "":
			*at = uri // without spaces around, its scheme in small letters
		case (s.GetUsername() == "" || s.GetUsername() == user) && (s.GetPassword() == "" || password == "" || s.GetPassword() == password):
			*at, s.Username, found = uri, user, true
			if password != "" {
				s.Password = password
			}
		}
	}
	return found
}

// withCredentials adds the paths of user and password to those of an update whose address held them.
func withCredentials(paths []string) []string {
	if !slices.Contains(paths, "source.uri") && !slices.Contains(paths, "source.main_uri") {
		return paths
	}
	return append(slices.Clone(paths), "source.username", "source.password")
}

// Limits of a source.
const (
	maxCA      = 64 << 10
	maxPreRoll = 256 << 20
	maxMasks   = 32
	maxPoints  = 64
)

// ValidateSource takes a source that is not part of a registration apart and checks it; field is its path in the request.
func ValidateSource(field string, s *vedettev1.Source) error {
	faults := &InvalidError{}
	if s != nil {
		SplitSource(s)
	}
	validateSource(faults, field, s, s.GetPassword())
	if len(faults.Violations) > 0 {
		return faults
	}
	return nil
}

// validateDecoding checks how a stream is to be decoded.
func validateDecoding(faults *InvalidError, field string, s *vedettev1.Source) {
	if n := len(s.GetDecoders()); n > 8 {
		faults.add(field+".decoders", "%d decoders, at most 8", n)
	}
	for i, name := range s.GetDecoders() {
		if !slices.Contains(decoders, name) {
			faults.add(fmt.Sprintf("%s.decoders[%d]", field, i), "%q is none of %s", name, strings.Join(decoders, ", "))
		}
	}
	if _, ok := vedettev1.Isolation_name[int32(s.GetIsolation())]; !ok {
		faults.add(field+".isolation", "%d is no such isolation", s.GetIsolation())
	}
}

// decoders are those ingest knows.
var decoders = []string{"auto", "software", "nvdec", "cuda", "vaapi", "v4l2", "drm", "qsv", "vulkan"} //nolint:gochecknoglobals // a constant of a kind Go has not

func validateSource(faults *InvalidError, field string, s *vedettev1.Source, password string) {
	validateURI(faults, field+".uri", s.GetUri(), []string{"rtsp", "rtsps", "http", "https", "v4l2", "file"})
	if s.GetMainUri() != "" {
		validateURI(faults, field+".main_uri", s.GetMainUri(), []string{"rtsp", "rtsps"})
	} else if s.GetKeepMain() {
		faults.add(field+".keep_main", "there is no main_uri to keep connected")
	}
	if len(s.GetUsername()) > 256 {
		faults.add(field+".username", "%d bytes, at most 256", len(s.GetUsername()))
	}
	if len(password) > 1024 {
		faults.add(field+".password", "%d bytes, at most 1024", len(password))
	}
	if password != "" && s.GetUsername() == "" && !strings.Contains(s.GetUri(), "{password}") {
		faults.add(field+".username", "missing: a password without a user is of no use")
	}
	validateDecoding(faults, field, s)
	if _, ok := vedettev1.Transport_name[int32(s.GetTransport())]; !ok {
		faults.add(field+".transport", "%d is no such transport", s.GetTransport())
	}
	if ca := s.GetTls().GetCaPem(); ca != "" && (len(ca) > maxCA || !x509.NewCertPool().AppendCertsFromPEM([]byte(ca))) {
		faults.add(field+".tls.ca_pem", "holds no certificate in PEM, or more than 64 KiB")
	}
	if pin := s.GetTls().GetCertificateSha256(); pin != "" {
		if b, err := hex.DecodeString(strings.ReplaceAll(pin, ":", "")); err != nil || len(b) != sha256.Size {
			faults.add(field+".tls.certificate_sha256", "is not 64 hexadecimal digits (colons allowed)")
		}
	}
	if n := s.GetPreRollBytes(); n > maxPreRoll {
		faults.add(field+".pre_roll_bytes", "%d, at most %d", n, maxPreRoll)
	}
}

func validateURI(faults *InvalidError, field, uri string, schemes []string) {
	if uri == "" {
		faults.add(field, "missing: the camera's address, for example rtsp://192.168.1.20/stream1")
		return
	}
	if len(uri) > 2048 {
		faults.add(field, "%d bytes, at most 2048", len(uri))
		return
	}
	_, user, password, err := address.Split(uri)
	if err != nil { // it repeats nothing of the address, which may hold a password
		faults.add(field, "%s", err)
		return
	}
	if user != "" || password != "" {
		faults.add(field, "holds another user or password than username and password say: give them once")
		return
	}
	u, err := url.Parse(uri)
	if err != nil {
		faults.add(field, "is not an address (characters other than letters and digits in it may need %%-escaping)")
		return
	}
	if u.Scheme == "v4l2" {
		if _, err := address.ParseDevice(uri); err != nil {
			faults.add(field, "%s", err)
		}
	}
	if u.Scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")) {
		faults.add(field, "a file's address is file:/// and an absolute path")
	}
	if !slices.Contains(schemes, u.Scheme) {
		last := len(schemes) - 1
		faults.add(field, "scheme %q is none of %s and %s", u.Scheme, strings.Join(schemes[:last], ", "), schemes[last])
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			faults.add(field, "port %q is not within 1 and 65535", port)
		}
	}
}

func validateMasks(faults *InvalidError, list string, masks []*vedettev1.PrivacyMask) {
	if len(masks) > maxMasks {
		faults.add(list, "%d masks, at most %d", len(masks), maxMasks)
		return
	}
	for i, m := range masks {
		field := list + "[" + strconv.Itoa(i) + "]"
		if n := len(m.GetPoints()); n < 3 || n > maxPoints {
			faults.add(field, "%d points: 3 to %d make an area", n, maxPoints)
			continue
		}
		for j, p := range m.GetPoints() {
			if !(p.GetX() >= 0 && p.GetX() <= 1 && p.GetY() >= 0 && p.GetY() <= 1) {
				faults.add(field+".points["+strconv.Itoa(j)+"]", "(%v, %v) is not within 0 and 1", p.GetX(), p.GetY())
			}
		}
	}
}
