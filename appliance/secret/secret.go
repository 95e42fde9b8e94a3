// Package secret keeps what operators entrust to the box unreadable at rest: cameras' passwords and the like are
// sealed to a key that lives in a file of its own, readable by the appliance alone.
package secret

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// Box seals and opens secrets. Safe for concurrent use.
type Box struct {
	key *age.X25519Identity
}

// Open reads the key file, and makes one (mode 0600) when there is none. A file that others can read is refused.
func Open(path string) (*Box, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret key: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the secret key: %w", err)
	}
	if exposed(path, info.Mode()) {
		return nil, fmt.Errorf("secret key %s can be read by others (mode %04o): chmod 600 it, and change the cameras' passwords if others had access",
			path, info.Mode().Perm())
	}
	key, err := age.ParseX25519Identity(string(bytes.TrimSpace(text)))
	if err != nil {
		// The parser's error may quote the key.
		return nil, fmt.Errorf("secret key %s is damaged: restore it from a backup, or remove it and enter the cameras' passwords again", path)
	}
	return &Box{key: key}, nil
}

// exposed tells whether others may have read a key file. A credential of systemd's is kept for the service's user by an
// access list, whose mask shows in the mode as the group's right to read.
func exposed(path string, mode fs.FileMode) bool {
	if strings.HasPrefix(path, "/run/credentials/") {
		return mode.Perm()&0o037 != 0
	}
	return mode.Perm()&0o077 != 0
}

func create(path string) (*Box, error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("make a secret key: %w", err)
	}
	// A crash between write and rename must not leave half a key under the final name.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return nil, fmt.Errorf("make the secret key file: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = io.WriteString(tmp, key.String()+"\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, fmt.Errorf("write the secret key file: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		return nil, fmt.Errorf("write the secret key file: %w", err)
	}
	return &Box{key: key}, nil
}

// ID names the holder of the key among others: 16 hexadecimal digits that follow from its public half.
func (b *Box) ID() string {
	sum := sha256.Sum256([]byte("vedette box " + b.key.Recipient().String()))
	return hex.EncodeToString(sum[:8])
}

// Seal encrypts a secret.
func (b *Box) Seal(plain string) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, b.key.Recipient())
	if err != nil {
		return nil, fmt.Errorf("seal a secret: %w", err)
	}
	if _, err = io.WriteString(w, plain); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("seal a secret: %w", err)
	}
	return out.Bytes(), nil
}

// Unseal decrypts what Seal made.
func (b *Box) Unseal(sealed []byte) (string, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), b.key)
	if err != nil {
		return "", fmt.Errorf("open a sealed secret: %w (was it sealed with another key file?)", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return "", fmt.Errorf("open a sealed secret: %w", err)
	}
	return string(plain), nil
}
