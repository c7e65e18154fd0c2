package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// One command imports another platform's sites with their environment variables, which the first build gets, and their
// domains. It reports what it couldn't import, and running it again imports that after the cause is fixed. A third run
// changes nothing.
func TestImportFromPlatform(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--git-host", "github.com="+w.Git.URL, "--base-url", "http://"+w.Listen)
	dir := filepath.Join(t.TempDir(), "files")
	if err := world.WriteFiles(dir, map[string]string{"web/package.json": `{"name": "harbor", "private": true, "scripts": {"build": "mkdir -p dist && echo \"$GREETING from $API_TOKEN\" > dist/index.html"}}`}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("acme/harbor", "main", dir, "A commit"); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"/sites": `[{"id": "n1", "name": "harbor", "account_id": "a1", "custom_domain": "harbor.example", "domain_aliases": ["www.harbor.example", "new.localhost"],
			"build_settings": {"repo_url": "https://github.com/acme/harbor", "repo_branch": "main", "cmd": "npm run build", "dir": "web/dist", "base": "web"}}]`,
		"/accounts/a1/env": `[{"key": "GREETING", "values": [{"value": "hello", "context": "all"}]}, {"key": "API_TOKEN", "values": [{"value": "t0ken", "context": "production"}]},
			{"key": "HIDDEN", "is_secret": true, "values": [{"value": "", "context": "all"}]}]`,
		"/sites/n1/forms": `[]`, "/sites/n1/snippets": `[]`,
	}
	netlify := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if answers[r.URL.Path] == "" || r.Header.Get("Authorization") != "Bearer nfp_x" {
			rw.WriteHeader(http.StatusNotFound)
		}
		_, _ = rw.Write([]byte(answers[r.URL.Path]))
	}))
	t.Cleanup(netlify.Close)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	call := func(key, method, path string, body, out any) {
		t.Helper()
		if err := w.Call(t.Context(), key, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	run := func(args ...string) (out, said string, err error) {
		ctx, done := context.WithTimeout(t.Context(), world.Patience(2*time.Minute))
		defer done()
		cmd := exec.CommandContext(ctx, w.Binary, append([]string{"import", "netlify", "--api", netlify.URL, "--server", "http://" + w.Listen}, args...)...)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "SLIPWAY_TOKEN="+key, "NETLIFY_AUTH_TOKEN=nfp_x", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
		var o, e strings.Builder
		cmd.Stdout, cmd.Stderr = &o, &e
		err = cmd.Run()
		return o.String(), e.String(), err
	}
	sites := func() (list struct {
		Data []struct {
			ID, Name string
			Domains  []struct{ Name string }
		}
	},
	) {
		t.Helper()
		call(key, "GET", "/sites", nil, &list)
		return list
	}

	out, said, err := run("--plan")
	if err != nil || !strings.Contains(out, "+ 2 variables: API_TOKEN, GREETING") || !strings.Contains(out, "not carried: 1 secret variable") || strings.Contains(out, "t0ken") {
		t.Fatalf("the plan: %v\n%s%s", err, out, said)
	}
	if _, said, err := run(); err == nil || !strings.Contains(said, "--yes") {
		t.Errorf("without an answer: %v %s", err, said)
	}
	if n := len(sites().Data); n != 0 {
		t.Fatalf("the plan made %d sites", n)
	}
	out, said, err = run("--yes")
	if err == nil || !strings.Contains(said, "new.localhost was not added") || !strings.Contains(said, "run the same command again") || !strings.Contains(out, "harbor") {
		t.Fatalf("with a domain that is the installation's: %v\n%s%s", err, out, said)
	}
	list := sites()
	if len(list.Data) != 1 {
		t.Fatalf("got %+v", list)
	}
	id := list.Data[0].ID
	if err := world.Until(t.Context(), 100*time.Millisecond, func() (bool, error) {
		var s struct{ Status string }
		err := w.Call(t.Context(), key, "GET", "/sites/"+id, nil, &s)
		if s.Status == "error" {
			t.Fatal("its first deployment failed")
		}
		return s.Status == "active", err
	}); err != nil {
		t.Fatal(err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	if a, err := w.Site(t.Context(), browser, world.Request{Method: "GET", URL: "https://harbor.localhost/"}); err != nil || string(a.Body) != "hello from t0ken\n" {
		t.Errorf("the site: %v %d %s", err, a.Status, a.Body)
	}
	answers["/sites"] = strings.Replace(answers["/sites"], `, "new.localhost"`, "", 1)
	call(key, "POST", "/sites/"+id+"/env", map[string]string{"key": "GREETING", "value": "changed here"}, nil)
	for range 2 {
		if out, said, err := run("--yes"); err != nil {
			t.Fatalf("again: %v\n%s%s", err, out, said)
		}
		if list := sites(); len(list.Data) != 1 || list.Data[0].ID != id || len(list.Data[0].Domains) != 2 {
			t.Fatalf("after it was run again: %+v", list)
		}
	}
	var env struct{ Data []struct{ Key, Value string } }
	call(key, "GET", "/sites/"+id+"/env", nil, &env)
	if len(env.Data) != 2 || env.Data[1].Key != "GREETING" || env.Data[1].Value != "changed here" {
		t.Errorf("variables: %+v", env.Data)
	}
	// A site that was deleted here is imported again.
	call(key, "DELETE", "/sites/"+id, nil, nil)
	if out, said, err := run("--yes"); err != nil {
		t.Fatalf("after it was deleted: %v\n%s%s", err, out, said)
	}
	if list := sites(); len(list.Data) != 1 || list.Data[0].ID == id {
		t.Errorf("after it was deleted: %+v", list)
	}
}
