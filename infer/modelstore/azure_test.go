package modelstore_test

import (
	"bufio"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// azblob runs Azurite, which make test-azure installs, with the account that every installation of it has.
func azblob(t *testing.T) *server {
	t.Helper()
	program, err := filepath.Abs("azurite/node_modules/.bin/azurite-blob")
	if err == nil {
		_, err = exec.LookPath(program)
	}
	if err != nil {
		t.Skipf("no Azure to talk to, make test-azure installs one: %v", err)
	}
	const account, key = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	cmd := exec.Command(program, "--skipApiVersionCheck", "--inMemoryPersistence", "--disableTelemetry", "--blobPort", "0", "--blobHost", "127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // what does not start must not hang the test
	defer kill.Stop()
	var host string
	for lines := bufio.NewScanner(out); host == "" && lines.Scan(); {
		if _, at, ok := strings.Cut(lines.Text(), "listens on http://"); ok {
			host = strings.TrimSpace(at)
		}
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		t.Fatalf("Azurite did not start: %v", err)
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", account)
	t.Setenv("AZURE_STORAGE_KEY", key)
	login, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential("http://"+host+"/"+account+"/models", login, nil)
	if err == nil {
		_, err = c.Create(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	query := "?protocol=http&localemu=true&domain=" + host
	return &server{
		url: "azblob://models/some/prefix" + query,
		put: func(files map[string]string) { fill(t, "azblob://models"+query, files) },
	}
}
