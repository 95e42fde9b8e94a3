package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// documents are the Markdown files an operator reads.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "models/README.md"}
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		files = append(files, filepath.Join("docs", filepath.Base(f)))
	}
	docs := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		docs[f] = string(b)
	}
	return docs
}

var (
	fence  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	inline = regexp.MustCompile("`(vedette [a-z][^`]*)`")
)

// Every command of the program that the documents show is one: the verbs exist, and take the flags they are given.
func TestTheCommandsInTheDocumentsExist(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	helps := map[string]string{}
	help := func(verbs string) string {
		if _, asked := helps[verbs]; !asked {
			out, err := exec.Command(filepath.Join(dir, "vedette"), append(strings.Fields(verbs), "--help")...).CombinedOutput()
			if err != nil {
				out = nil
			}
			helps[verbs] = string(out)
		}
		return helps[verbs]
	}
	checked := 0
	for file, text := range documents(t) {
		var commands []string
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(m[2], "\\\n", " ")) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				line = strings.TrimPrefix(strings.TrimPrefix(line, "sudo "), "bin/")
				if strings.HasPrefix(line, "vedette ") {
					commands = append(commands, line)
				}
			}
		}
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			commands = append(commands, m[1])
		}
		for _, c := range commands {
			words := strings.Fields(c)[1:]
			var verbs, flags []string
			for _, w := range words {
				switch {
				case strings.HasPrefix(w, "--"):
					name, _, _ := strings.Cut(w, "=")
					flags = append(flags, strings.TrimRight(name, ".,:;"))
				case len(flags) == 0 && len(verbs) < 2 && regexp.MustCompile(`^[a-z][a-z-]+$`).MatchString(w):
					verbs = append(verbs, w)
				}
			}
			if strings.ContainsAny(c, "|…") || len(verbs) == 0 {
				continue // a summary of several, or no command
			}
			text := help(strings.Join(verbs, " "))
			if text == "" && len(verbs) == 2 { // the second word is an argument
				text = help(verbs[0])
			}
			if text == "" {
				t.Errorf("%s: there is no command %q", file, c)
				continue
			}
			for _, f := range flags {
				if !regexp.MustCompile(regexp.QuoteMeta(f) + `[=\s,\[]`).MatchString(text) {
					t.Errorf("%s: %q: there is no flag %s", file, c, f)
				}
			}
			checked++
		}
	}
	if checked < 30 {
		t.Errorf("only %d commands were found in the documents", checked)
	}
}

func TestTheTargetsInTheDocumentsExist(t *testing.T) {
	var targets []string
	for _, f := range []string{"Makefile", "systemd/package.mk"} {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z -]*):`).FindAllSubmatch(b, -1) {
			targets = append(targets, strings.Fields(string(m[1]))...)
		}
	}
	for file, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)").FindAllStringSubmatch(text, -1) {
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s: there is no target %s", file, m[1])
			}
		}
	}
}

// What the documents mark as shell is run, on the demo, as they say.
func TestTheShellCommandsInTheDocumentsRun(t *testing.T) {
	p := launch(t, t.TempDir(), "--demo", "--onnxruntime", onnxruntime(t))
	p.until("the first track", 60*time.Second, func() bool { return len(p.tracks("")) > 0 })
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(work, "bin")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for file, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			// The examples of the API build on one another; appliance/api runs them.
			if m[1] != "sh" || !strings.HasPrefix(file, "docs") || file == "docs/api.md" {
				continue
			}
			for line := range strings.Lines(m[2]) {
				line = strings.ReplaceAll(strings.TrimSpace(line), "127.0.0.1:8080", p.http())
				line = strings.ReplaceAll(line, "curl -s ", "curl -sf ")
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				cmd := exec.CommandContext(ctx, "bash", "-c", line)
				cmd.Dir, cmd.Env = work, append(os.Environ(), "VEDETTE_DATA_DIR="+p.data)
				out, err := cmd.CombinedOutput()
				cancel()
				if err != nil || (len(out) == 0 && !strings.Contains(line, "-o ")) {
					t.Errorf("%s: %s: %v\n%s", file, line, err, out)
				}
				ran++
			}
		}
	}
	if ran < 5 {
		t.Errorf("only %d commands were run", ran)
	}
}

// The examples of the API that take a whole box, or a client of gRPC that is not ours, are run as docs/api.md has them.
func TestTheExamplesOfTheAPIRunOnABox(t *testing.T) {
	c := truthCamera(t)
	p := launch(t, t.TempDir(), "--grpc-reflection", "--onnxruntime", onnxruntime(t))
	p.cli("camera", "add", "hall", c.URL())
	p.until("the first track", 60*time.Second, func() bool { return len(p.tracks("")) > 0 })
	work, text := t.TempDir(), documents(t)["docs/api.md"]
	build := exec.CommandContext(t.Context(), "go", "build", "-modfile=tools.mod", "-o", filepath.Join(work, "grpcurl"), "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	api, err := filepath.Abs(filepath.Join(root, "api"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(p.data, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`(?m)^\s+gRPC\s+(\S+)`).FindStringSubmatch(p.output())
	if address == nil {
		t.Fatalf("no gRPC address in:\n%s", p.output())
	}
	blocks := regexp.MustCompile("(?s)```sh( box)?\n(.*?)```").FindAllStringSubmatch(text, -1)
	script, ran := "set -xeuo pipefail\n"+blocks[0][2], 0
	for _, b := range blocks {
		if b[1] != "" {
			script += b[2]
			ran++
		}
	}
	script += `grpcurl -plaintext -H "Authorization: Bearer $TOKEN" $GRPC list | grep vedette.v1.CameraService >/dev/null` + "\n! grpcurl -plaintext $GRPC list\n"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "PATH="+work+":"+os.Getenv("PATH"), "VEDETTE=http://"+p.http(), "GRPC="+address[1], "API="+api,
		"TOKEN="+strings.TrimSpace(string(token)), "CAMERA="+c.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-4000):])
	}
	if ran < 10 {
		t.Errorf("only %d examples were run", ran)
	}
	for _, name := range []string{"video.json", "unmasked.json", "packets.json"} {
		if info, err := os.Stat(filepath.Join(work, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSiteHasNoDeadLinksAndTheReferenceIsNew(t *testing.T) {
	out, err := exec.Command("go", "run", "github.com/vedette/vedette/docs/site", "-root", root, "-out", t.TempDir()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	reference, err := exec.Command(filepath.Join(dir, "vedette"), "config", "reference").Output()
	if err != nil {
		t.Fatal(err)
	}
	if documents(t)["docs/configuration.md"] != string(reference) {
		t.Error("docs/configuration.md is old: make docs-site")
	}
}
