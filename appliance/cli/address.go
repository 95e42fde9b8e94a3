package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// splitUser takes the user and password out of an address, where people like to put them. Characters that do not
// belong there are taken as they are, as long as it is certain what they belong to.
func splitUser(address string) (uri, user, password string, err error) {
	address = strings.TrimSpace(address)
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		if strings.HasPrefix(address, "file:") {
			return address, "", "", nil
		}
		return "", "", "", errors.New("the address begins with no scheme: write it whole, such as rtsp://192.168.1.20/stream1")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "@") && scheme != "file" {
		return "", "", "", errors.New("there is an @ after the first / or ? or # of the address: if it ends the password, give user and password by " +
			"--username and --password-file (or %-escape them: / is %2F, ? is %3F, # is %23, @ is %40); if it belongs to the path, write %40")
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ = strings.Cut(authority[:i], ":")
		user, password, authority = unescaped(user), unescaped(password), authority[i+1:]
	}
	return scheme + "://" + authority + path, user, password, nil
}

// unescaped is s without its %-escapes, or s when it holds a % that begins none.
func unescaped(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// maxPassword is more than any camera takes.
const maxPassword = 4 << 10

// readPassword reads a password from a file, or from in when the file is called -. One line ending is not part of it.
func readPassword(path string, in io.Reader) (string, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxPassword+1))
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(b) > maxPassword || strings.ContainsAny(text, "\r\n\x00") {
		return "", fmt.Errorf("--password-file: %s holds more than one line: it must hold the password alone", path)
	}
	return text, nil
}
