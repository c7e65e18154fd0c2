// Package builds owns the end-to-end tests of builds with the real program: real projects from the real registry, the
// queue, and malicious builds.
package builds

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/e2e/world"
)

var binary string

// asVar makes this test binary drop to another uid and exec the program: "uid:program". The world itself can't start
// its program as another user.
const asVar = "SLIPWAY_E2E_AS"

// plainUID is the unprivileged user that runs the program when the tests run as root.
const plainUID = 61_234

func TestMain(m *testing.M) {
	if as := os.Getenv(asVar); as != "" {
		become(as)
	}
	// These tests spend half of their time waiting for limits, the queue and the registry, so run more of them in
	// parallel.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(world.Main(m, &binary))
}

// become changes the uid and replaces this process with the program.
func become(as string) {
	uid, program, _ := strings.Cut(as, ":")
	id, err := strconv.Atoi(uid)
	if err == nil {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(id), syscall.Setuid(id))
	}
	if err == nil { // changing the uid clears the parent-death signal
		err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
	}
	if err == nil {
		err = syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "become", as, err)
	os.Exit(1)
}

// harness is an installation with one user.
type harness struct {
	*world.World
	t       testing.TB
	key     string
	uid     int // of the program
	browser *http.Client
}

// newHarness starts an installation whose builds can reach the registry; no flag opens loopback addresses. as is the
// uid of the program, 0 for the current user.
func newHarness(t testing.TB, as int, flags ...string) *harness {
	t.Helper()
	dir := t.TempDir()
	w, err := world.New(binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	w.Flags = slices.Concat([]string{
		"--git-host",
		"git.test=" + w.Git.URL,
		"--rate-limit",
		"1000000",
		"--registry",
		"local",
		"--browser", // no screenshots in these tests
		"none",
	}, mirror(t), flags)
	h := &harness{World: w, t: t, uid: os.Geteuid()}
	if as != 0 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		h.uid, w.Binary, w.Env = as, self, append(w.Env, asVar+"="+strconv.Itoa(as)+":"+binary)
		if err := errors.Join(os.Chown(dir, as, as), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	h.key = h.user("ada@example.test")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.browser, err = w.Browser(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.browser.CloseIdleConnections)
	return h
}

// modes runs a test as the current user and, if that is root, in parallel as an unprivileged user.
func modes(t *testing.T, test func(t *testing.T, as int)) {
	if os.Geteuid() != 0 {
		t.Run("plain", func(t *testing.T) { test(t, 0) })
		return
	}
	t.Run("root", func(t *testing.T) { t.Parallel(); test(t, 0) })
	t.Run("plain", func(t *testing.T) { t.Parallel(); test(t, plainUID) })
}

// mirror returns the flags with which the program reaches the npm registry.
func mirror(t testing.TB) []string {
	t.Helper()
	f, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// registryHost returns the host name of the npm registry.
func registryHost(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname()
}

func (h *harness) user(email string) string {
	h.t.Helper()
	key, err := h.User(email)
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

// commit commits files to a repository's main branch as its complete tree.
func (h *harness) commit(repo string, files map[string]string) {
	h.t.Helper()
	h.commitTo(repo, "main", files)
}

func (h *harness) commitTo(repo, branch string, files map[string]string) {
	h.t.Helper()
	dir := h.t.TempDir()
	if err := world.WriteFiles(dir, files); err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Git.Commit(repo, branch, dir, "made by a test"); err != nil {
		h.t.Fatal(err)
	}
}

// shell returns a repository whose build is a shell script that needs no toolchain.
func shell(script string) map[string]string {
	return map[string]string{
		"slipway.toml": "[build]\ncommand = \"sh ./build.sh\"\noutput = \"dist\"\n",
		"build.sh":     script,
	}
}

// node returns a repository whose build is a Node.js program without dependencies.
func node(program string) map[string]string {
	return map[string]string{
		"slipway.toml": "[build]\ncommand = \"node build.cjs\"\noutput = \"dist\"\n",
		"build.cjs":    program,
	}
}

// aSite holds a site and its owner's key.
type aSite struct {
	ID, URL string
	key     string
}

// site creates a site from a repository, which starts its first deployment.
func (h *harness) site(repo string, more map[string]any) aSite {
	h.t.Helper()
	return h.siteOf(h.key, repo, more)
}

func (h *harness) siteOf(key, repo string, more map[string]any) aSite {
	h.t.Helper()
	body := map[string]any{"name": filepath.Base(repo), "type": "static", "repository": "git.test/" + repo, "branch": "main"}
	for k, v := range more {
		body[k] = v
	}
	var out struct{ Data aSite }
	h.call(key, "POST", "/sites", body, &out)
	out.Data.key = key
	return out.Data
}

func (h *harness) call(key, method, path string, body, out any) {
	h.t.Helper()
	if err := h.Call(context.Background(), key, method, path, body, out); err != nil {
		h.t.Fatal(err)
	}
}

// deployment is an API response.
type deployment struct {
	ID, Status, Error, Framework, URL string
	Trigger                           string
	Queue                             *struct {
		Position int
		Reason   string
	}
	Plan   json.RawMessage
	Stages []struct {
		Name, Status           string
		StartedAt, CompletedAt time.Time
	}
}

func (d deployment) ended() bool {
	return d.Status == "success" || d.Status == "failed" || d.Status == "canceled"
}

// stage returns the status of a stage, or "".
func (d deployment) stage(name string) string {
	for _, s := range d.Stages {
		if s.Name == name {
			return s.Status
		}
	}
	return ""
}

// running returns the name of the running stage, or "".
func (d deployment) running() string {
	for _, s := range d.Stages {
		if s.Status == "running" {
			return s.Name
		}
	}
	return ""
}

func (h *harness) get(s aSite, id string) deployment {
	h.t.Helper()
	var d deployment
	h.call(s.key, "GET", "/deployments/"+id, nil, &d)
	return d
}

// first returns the ID of a new site's first deployment.
func (h *harness) first(s aSite) string {
	h.t.Helper()
	var id string
	h.until(20*time.Second, "a first deployment", func() bool {
		var list struct{ Data []deployment }
		h.call(s.key, "GET", "/sites/"+s.ID+"/deployments", nil, &list)
		if len(list.Data) > 0 {
			id = list.Data[len(list.Data)-1].ID
		}
		return id != ""
	})
	return id
}

// deploy starts another deployment.
func (h *harness) deploy(s aSite, body map[string]any) string {
	h.t.Helper()
	var out struct{ DeploymentID string }
	var wish any // no request body if body is nil
	if body != nil {
		wish = body
	}
	h.call(s.key, "POST", "/sites/"+s.ID+"/deploy", wish, &out)
	return out.DeploymentID
}

func (h *harness) cancel(s aSite, id string) {
	h.t.Helper()
	h.call(s.key, "POST", "/deployments/"+id+"/cancel", nil, nil)
}

// patience is the shortest limit for waiting. Only a broken program uses it up.
const patience = time.Minute

// until polls ok until it is true, and fails the test after most (longer on a busy machine).
func (h *harness) until(most time.Duration, what string, ok func() bool) {
	h.t.Helper()
	h.waits(world.Until, 20*time.Millisecond, most, what, ok)
}

// soon is until for a condition that may hold only briefly: it polls often.
func (h *harness) soon(what string, ok func() bool) {
	h.t.Helper()
	h.waits(world.Watch, 5*time.Millisecond, patience, what, ok)
}

func (h *harness) waits(wait world.Wait, pause, most time.Duration, what string, ok func() bool) {
	h.t.Helper()
	most = max(most, patience)
	start := time.Now()
	err := wait(context.Background(), pause, func() (bool, error) {
		if took := time.Since(start); took > most && took > world.Patience(most) {
			h.t.Fatalf("no %s in %s", what, took)
		}
		return ok(), nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// wait waits until a deployment has ended and returns it.
func (h *harness) wait(s aSite, id string) deployment {
	h.t.Helper()
	var d deployment
	h.until(3*time.Minute, "end of the deployment "+id, func() bool { d = h.get(s, id); return d.ended() })
	return d
}

// built waits for a deployment that must succeed.
func (h *harness) built(s aSite, id string) deployment {
	h.t.Helper()
	d := h.wait(s, id)
	if d.Status != "success" {
		h.t.Fatalf("deployment %s: %s\n%s", d.Status, d.Error, h.log(s, id))
	}
	return d
}

// failed waits for a deployment that must fail with this text in its error.
func (h *harness) failed(s aSite, id, why string) deployment {
	h.t.Helper()
	d := h.wait(s, id)
	if d.Status != "failed" || !strings.Contains(strings.ToLower(d.Error), strings.ToLower(why)) {
		log := h.log(s, id)
		h.t.Errorf("deployment is %s with %q, want failed with %q\n%s", d.Status, d.Error, why, log[max(0, len(log)-4000):])
	}
	return d
}

// log returns a deployment's log as text: stage, level, message.
func (h *harness) log(s aSite, id string) string {
	h.t.Helper()
	var text strings.Builder
	for after := 0; ; {
		var out struct {
			Logs []struct{ Level, Stage, Message string }
			Next int
		}
		h.call(s.key, "GET", fmt.Sprintf("/deployments/%s/logs?after=%d", id, after), nil, &out)
		for _, l := range out.Logs {
			fmt.Fprintf(&text, "%-8s %-5s %s\n", l.Stage, l.Level, l.Message)
		}
		if len(out.Logs) == 0 || out.Next <= after {
			return text.String()
		}
		after = out.Next
	}
}

// page requests a page of a site.
func (h *harness) page(address string) world.Answer {
	h.t.Helper()
	a, err := h.Site(context.Background(), h.browser, world.Request{Method: http.MethodGet, URL: address})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

// shows waits until a URL returns 200 with a text. The edge switches to a new release a moment after the deployment has
// ended.
func (h *harness) shows(address, text string) world.Answer {
	h.t.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		a, err := h.Site(context.Background(), h.browser, world.Request{Method: http.MethodGet, URL: address})
		if err == nil && a.Status == 200 && strings.Contains(string(a.Body), text) {
			return a
		}
		if took := time.Since(start); took > patience && took > world.Patience(patience) {
			h.t.Fatalf("%s answers %d without %q: %v\n%.1000s", address, a.Status, text, err, a.Body)
		}
	}
}
