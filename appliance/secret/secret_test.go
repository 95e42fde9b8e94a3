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
