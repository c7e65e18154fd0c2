package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

// `slipway try` creates a site and prints all URLs and commands. The printed commands work as pasted, a signal ends it
// with status 0, and a second start creates nothing again.
func TestFirstMinutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ports, err := world.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "SLIPWAY_LISTEN="+ports[0], "SLIPWAY_EDGE_HTTP="+ports[1], "SLIPWAY_EDGE_HTTPS="+ports[2])
	first := startTry(t, dir, env)
	screen := first.screen(t)
	for _, want := range []string{"Live site", "REST", "Reference", "Key", "hello.localhost"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen doesn't say %q:\n%s", want, screen)
		}
	}
	commands := regexp.MustCompile(`(?m)^  (curl|tar) .*$`).FindAllString(screen, -1)
	if len(commands) != 4 {
		t.Fatalf("%d commands, want 4:\n%s", len(commands), screen)
	}
	if !strings.Contains(commands[3], "local/you/my-site") { // a repository on this machine
		t.Errorf("the last line creates no site from a repository on this machine: %s", commands[3])
	}
	for i, want := range []string{`"name":"Hello"`, "It floats.", `"deploymentId":"dep_`} {
		if out := paste(t, dir, commands[i]); !strings.Contains(out, want) {
			t.Errorf("%s\nprints %.300s, without %s", commands[i], out, want)
		}
	}
	first.end(t)

	second := startTry(t, dir, env)
	again := second.screen(t)
	if strings.Contains(again, "created") || strings.Contains(again, "deployed") {
		t.Errorf("the second start makes something again:\n%s", again)
	}
	line := regexp.MustCompile(`(?m)^  (Key|Live site) .*$`)
	if a, b := strings.Join(line.FindAllString(screen, -1), "\n"), strings.Join(line.FindAllString(again, -1), "\n"); a != b {
		t.Errorf("the second start shows\n%s\nafter\n%s", b, a)
	}
	if out := paste(t, dir, commands[0]); strings.Count(out, `"id":"site_`) != 1 {
		t.Errorf("after the second start there is not one site: %s", out)
	}
	application(t, dir, ports[0])
	second.end(t)
	info, err := os.Stat(filepath.Join(dir, "slipway-data/try/memory.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the key: %v %v", info.Mode(), err)
	}
}

// On a machine without git, a compiler or any other program, slipway try creates a live HTTPS site.
func TestTryNeedsNoOtherProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ports, err := world.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	run := startTry(t, dir, []string{
		"PATH=" + t.TempDir(), "SLIPWAY_LISTEN=" + ports[0], "SLIPWAY_EDGE_HTTP=" + ports[1], "SLIPWAY_EDGE_HTTPS=" + ports[2],
	})
	run.screen(t)
	_, port, _ := strings.Cut(ports[2], ":")
	page := paste(t, dir, "curl -sS --cacert slipway-data/root.pem --resolve hello.localhost:"+port+":127.0.0.1 https://hello.localhost:"+port+"/")
	if !strings.Contains(page, "It floats.") {
		t.Errorf("the site's page is %q", page)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "slipway-data/try/serve.log")); err != nil || !strings.Contains(string(text), "git is not installed") {
		t.Errorf("the log doesn't warn that git is missing: %v\n%s", err, text)
	}
	run.end(t)
}

// slipway try doesn't create a user in an installation that it didn't create.
func TestTryLeavesOtherInstallations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user := exec.Command(binary, "user", "create", "--email", "ada@example.test", "--data-dir", "slipway-data")
	user.Dir = dir
	if out, err := user.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := tryCommand(dir, append(os.Environ(), "SLIPWAY_LISTEN=127.0.0.1:0", "SLIPWAY_EDGE_HTTP=127.0.0.1:0", "SLIPWAY_EDGE_HTTPS=127.0.0.1:0")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "slipway try didn't make") {
		t.Errorf("the command ended with %v and the output %s", err, out)
	}
	users := exec.Command(binary, "user", "list", "--data-dir", "slipway-data")
	users.Dir = dir
	if out, err := users.CombinedOutput(); err != nil || strings.Count(string(out), "@") != 1 {
		t.Errorf("%v, users:\n%s", err, out)
	}
}

// A start on a port in use prints one line and creates nothing.
func TestFirstMinutesPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	cmd := tryCommand(
		dir,
		append(os.Environ(), "SLIPWAY_LISTEN="+l.Addr().String(), "SLIPWAY_EDGE_HTTP=127.0.0.1:0", "SLIPWAY_EDGE_HTTPS=127.0.0.1:0"),
	)
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), l.Addr().String()) {
		t.Errorf("the command ended with %v and the output %q; want one line with the address", err, out)
	}
	if made, _ := os.ReadDir(dir); len(made) > 0 {
		t.Errorf("the command created %v", made)
	}
}

func tryCommand(dir string, env []string) *exec.Cmd {
	cmd := exec.Command(binary, "try")
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal, even if the tests run in one
	return cmd
}

type tryRun struct {
	cmd *exec.Cmd
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (r *tryRun) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *tryRun) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func startTry(t *testing.T, dir string, env []string) *tryRun {
	t.Helper()
	r := &tryRun{cmd: tryCommand(dir, env)}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cmd.Process.Kill() })
	return r
}

// screen waits until all output is printed.
func (r *tryRun) screen(t *testing.T) string {
	t.Helper()
	ctx, cancel := deadline()
	defer cancel()
	if err := world.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		return strings.Contains(
			r.text(),
			"Ctrl-C ends it",
		), nil
	}); err != nil {
		t.Fatalf("%v:\n%s", err, r.text())
	}
	return r.text()
}

func (r *tryRun) end(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, r.text())
	}
}

// paste runs a printed command in a shell.
func paste(t *testing.T, dir, line string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("this test pastes what is printed, and needs curl for it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return string(out)
}

// application adds a Node.js application to slipway try's installation and waits until it is live. The installation's
// data directory is a relative path, and the sandbox must find it.
func application(t *testing.T, dir, listen string) {
	t.Helper()
	var memory struct{ Key string }
	text, err := os.ReadFile(filepath.Join(dir, "slipway-data/try/memory.json"))
	if err == nil {
		err = json.Unmarshal(text, &memory)
	}
	repo := filepath.Join(dir, "slipway-data/try/you/app")
	if err == nil {
		err = world.WriteFiles(repo, map[string]string{
			"package.json": `{"name": "app", "scripts": {"start": "node server.js"}}`,
			"server.js":    "require('http').createServer((q, r) => r.end('up')).listen(process.env.PORT)",
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"git init -q --initial-branch=main",
		"git add -A",
		"git -c user.name=You -c user.email=you@example.test -c commit.gpgsign=false commit -q -m app",
	} {
		paste(t, repo, line)
	}
	curl := "curl -sS -H 'Authorization: Bearer " + memory.Key + "' http://" + listen + "/api/v1"
	var site struct{ Data struct{ ID string } }
	made := paste(t, dir, curl+`/sites --json '{"name": "app", "type": "static", "repository": "local/you/app", "branch": "main"}'`)
	if err := json.Unmarshal([]byte(made), &site); err != nil || site.Data.ID == "" {
		t.Fatalf("no site was made: %s, %v", made, err)
	}
	ctx, cancel := deadline()
	defer cancel()
	err = world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		now := paste(t, dir, curl+"/sites/"+site.Data.ID)
		if strings.Contains(now, `"status":"error"`) {
			t.Fatalf("the application is not live: %s", now)
		}
		return strings.Contains(now, `"status":"active"`), errors.New(now)
	})
	if err != nil {
		t.Error(err)
	}
}
