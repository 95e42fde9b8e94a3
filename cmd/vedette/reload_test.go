package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSettingsAreReadAgain(t *testing.T) {
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "vedette.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log-level: info\n")
	p := launch(t, data, "--config", file, "--onnxruntime", onnxruntime(t))
	hangUp := func() {
		t.Helper()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	says := func(text string) {
		t.Helper()
		p.until(text, 60*time.Second, func() bool { return strings.Contains(p.output(), text) })
	}
	write("log-level: shout\nhttpp: x\n")
	hangUp()
	says("settings cannot be used; the ones before stay")
	if out := p.output(); !strings.Contains(out, "shout") || !strings.Contains(out, "httpp") {
		t.Errorf("not every fault is told:\n%s", out)
	}
	write("log-level: debug\n")
	hangUp()
	says("nothing has to be started again")
	write("log-level: debug\ndemo: true\n")
	hangUp()
	says("the appliance starts again")
	p.until("the demo's camera", 60*time.Second, func() bool {
		out, err := p.tryCLI("camera", "list")
		return err == nil && strings.Contains(out, "street")
	})
	p.until("the dashboard at the address that was told last", 60*time.Second, func() bool {
		_, err := p.text("/v1/cameras/street")
		return err == nil
	})
	// What cannot come up gives way to what ran before.
	write("log-level: debug\nsecret-key: /nowhere/secret.key\ndemo: true\n")
	hangUp()
	says("the ones before are used")
	p.until("the appliance again", 60*time.Second, func() bool { _, err := p.tryCLI("camera", "list"); return err == nil })
	if err := p.interrupt(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}
