package secret_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vedette/vedette/appliance/secret"
)

func TestSealedSecretOpensWithTheSameKeyFileOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret.key")
	first, err := secret.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := first.Seal("pa55 wörd")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("pa55")) {
		t.Error("the sealed secret shows the plain one")
	}
	again, err := secret.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Unseal(sealed); err != nil || got != "pa55 wörd" {
		t.Errorf("Unseal gives %q, %v", got, err)
	}
	other, err := secret.Open(filepath.Join(dir, "other.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Unseal(sealed); err == nil {
		t.Error("another key opened the secret")
	}
	if _, err := again.Unseal(sealed[:len(sealed)-1]); err == nil {
		t.Error("a cut secret was opened")
	}
}

func TestKeyFileIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	if _, err := secret.Open(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %04o, want 0600", info.Mode().Perm())
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Open(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v does not say how to mend a readable key", err)
	}
}

func TestDamagedKeyIsRefusedWithoutShowingIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(path, []byte("AGE-SECRET-KEY-1CANARY\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := secret.Open(path)
	if err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("error %v", err)
	}
}

// systemd keeps a credential for the service's user by an access list, whose mask shows as the group's right to read.
func TestACredentialOfSystemdsIsNotTakenForExposed(t *testing.T) {
	if err := os.MkdirAll("/run/credentials", 0o755); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("/run/credentials", "vedette-test-") //nolint:usetesting // it has to be there
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	made := filepath.Join(t.TempDir(), "key")
	if _, err := secret.Open(made); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	for mode, taken := range map[os.FileMode]bool{0o400: true, 0o440: true, 0o444: false, 0o460: false} {
		path := filepath.Join(dir, mode.String())
		if err := os.WriteFile(path, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := secret.Open(path); (err == nil) != taken {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}
