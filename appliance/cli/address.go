package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
)

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
