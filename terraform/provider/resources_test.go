package provider_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"slipway/e2e/world"
	"slipway/internal/tenant/domain/dnstest"
)

// Each resource must be created, its next plan must be empty, and it must be changed in place, imported, and deleted.
func TestResources(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	server := "http://" + w.Listen
	c := open(t, server, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	for name, tt := range map[string]struct {
		made, changed attrs
		id            string // the id for the import. Empty: its own
		taken         attrs  // further attributes that an import sets
	}{
		"domain": {
			made:    attrs{"site_id": site, "name": "shop.example.com"},
			changed: attrs{"site_id": site, "name": "shop.example.com", "redirect_to": "www.example.com"},
			id:      "shop.example.com",
		},
		"webhook": {
			made: attrs{"url": "https://example.com/a", "events": []string{"deployment.completed"}, "active": false, "secret_wo": "canary-one", "secret_wo_version": 1},
			changed: attrs{
				"url": "https://example.com/b", "events": []string{"deployment.completed", "deployment.failed"}, "site_ids": []string{site},
				"secret_wo": "canary-two", "secret_wo_version": 2,
			},
		},
		"deploy_hook": {
			made: attrs{"site_id": site, "name": "CI", "title": "From CI", "secret_wo": "canary-one", "secret_wo_version": 1, "active": false},
			changed: attrs{
				"site_id": site, "name": "Nightly", "addresses": []string{"203.0.113.0/24"}, "per_day": 5, "active": true,
				"secret_wo": "canary-two", "secret_wo_version": 2,
			},
			id: "harbor/Nightly",
		},
		"notification": {
			made: attrs{"kind": "slack", "name": "Chat", "target_wo": "https://hooks.example.com/canary-one", "target_wo_version": 1, "site_ids": []string{site}},
			changed: attrs{
				"kind": "slack", "name": "Chat", "target_wo": "https://hooks.example.com/canary-two", "target_wo_version": 2,
				"events": []string{"deployment.failed"}, "active": false,
			},
			id: "Chat",
		},
		"database": {
			made:    attrs{"site_id": site, "name": "orders"},
			changed: attrs{"site_id": site, "name": "orders", "deletion_protection": false},
			id:      "harbor/orders",
			taken:   attrs{"deletion_protection": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, server, key)
			nothing := func(when string, state *tfprotov6.DynamicValue, config attrs) {
				t.Helper()
				c = open(t, server, key)
				if state = c.refresh(name, state); state == nil {
					t.Fatalf("%s, it is not there", when)
				}
				if changes := c.changes(name, state, config); changes != nil {
					t.Errorf("%s, a plan changes %v", when, changes)
				}
			}
			state := c.apply(name, nil, tt.made)
			nothing("made", state, tt.made)
			state = c.apply(name, state, tt.changed)
			nothing("changed", state, tt.changed)
			if bytes.Contains(state.MsgPack, []byte("canary-")) {
				t.Error("a secret is in the state")
			}
			id := tt.id
			if id == "" {
				id = c.text(name, state, "id")
			}
			config := maps.Clone(tt.changed)
			delete(config, "secret_wo") // an import cannot know of it
			delete(config, "secret_wo_version")
			delete(config, "target_wo")
			delete(config, "target_wo_version")
			maps.Copy(config, tt.taken)
			nothing("imported", c.take(name, id), config)
			if said := c.destroy(name, state); said != "" {
				t.Error(said)
			}
			if c = open(t, server, key); c.refresh(name, state) != nil {
				t.Error("it is still there")
			}
			if len(c.said) > 0 {
				t.Errorf("warns %v", c.said)
			}
		})
	}
}

// The dns and verification attributes of a domain must be those that the server returns.
func TestDomainRecords(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	c := open(t, "http://"+w.Listen, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	state := c.apply("domain", nil, attrs{"site_id": site, "name": "shop.example.com"})
	var now struct{ DNS, Verification []map[string]any }
	if err := w.Call(t.Context(), key, "GET", "/domains/"+c.text("domain", state, "id"), nil, &now); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]map[string]any{"dns": now.DNS, "verification": now.Verification} {
		if len(want) == 0 {
			t.Fatalf("the server names no %s", name)
		}
		if got := c.values("domain", state)[name].String(); !strings.Contains(got, want[0]["value"].(string)) {
			t.Errorf("%s: got %s, want %v", name, got, want)
		}
	}
}

// A site with a repository must wait for its first deployment if configured so, so that its variables are part of it.
func TestFirstDeployment(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	dir := t.TempDir()
	if err := world.WriteFiles(dir, map[string]string{"package.json": `{"name": "quay", "private": true, "scripts": {"build": "mkdir -p dist && echo $GREETING > dist/index.html"}}`}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("acme/quay", "main", dir, "A commit"); err != nil {
		t.Fatal(err)
	}
	c := open(t, "http://"+w.Listen, key)
	config := attrs{
		"name": "Quay", "repository": "git.test/acme/quay", "branch": "main", "deploy_on_create": false, "build": attrs{"output": "dist"},
		"backups": attrs{"every": "weekly"},
	}
	state := c.apply("site", nil, config)
	site := c.text("site", state, "id")
	deployments := func() (all []string) {
		t.Helper()
		var got struct{ Data []struct{ ID string } }
		if err := w.Call(t.Context(), key, "GET", "/sites/"+site+"/deployments", nil, &got); err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Data {
			all = append(all, d.ID)
		}
		return all
	}
	if all := deployments(); len(all) != 0 || c.text("site", state, "source") != "git" {
		t.Fatalf("a new site, of %s, has the deployments %v", c.text("site", state, "source"), all)
	}
	c.apply("env", nil, attrs{"site_id": site, "key": "GREETING", "value": "ahoy"})
	made := c.apply("deployment", nil, attrs{"site_id": site})
	if all := deployments(); len(all) != 1 || all[0] != c.text("deployment", made, "id") || c.text("deployment", made, "status") != "success" {
		t.Errorf("the deployments are %v", all)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.Site(t.Context(), browser, world.Request{Method: "GET", URL: c.text("site", state, "url")})
	if err != nil || string(a.Body) != "ahoy\n" {
		t.Errorf("the site answers %q, %v", a.Body, err)
	}
	c = open(t, "http://"+w.Listen, key)
	if changes := c.changes("site", c.refresh("site", state), config); changes != nil {
		t.Errorf("a plan changes %v", changes)
	}
}

// The resource must wait until a domain is active and has its certificate, but not longer than configured.
func TestDomainVerification(t *testing.T) {
	t.Parallel()
	zone := dnstest.New(t)
	w, key := start(t, "--dns-resolver", zone.Addr)
	c := open(t, "http://"+w.Listen, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	made := c.apply("domain", nil, attrs{"site_id": site, "name": "shop.example.com"})
	id := c.text("domain", made, "id")
	planned, encoded := c.plan("domain_verification", nil, attrs{"domain_id": id, "timeout_seconds": 0})
	if said := c.create("domain_verification", planned, encoded); !strings.Contains(said, "shop.example.com is pending") {
		t.Errorf("without its records: %s", said)
	}
	var now struct {
		Verification []struct{ Type, Name, Value string }
	}
	if err := w.Call(t.Context(), key, "GET", "/domains/"+id, nil, &now); err != nil {
		t.Fatal(err)
	}
	zone.Set("shop.example.com", "A 127.0.0.1")
	for _, r := range now.Verification {
		if r.Type == "TXT" {
			zone.Set(r.Name, `TXT "`+r.Value+`"`)
		}
	}
	config := attrs{"domain_id": id}
	state := c.apply("domain_verification", nil, config)
	if c.text("domain_verification", state, "status") != "active" || c.text("domain_verification", state, "ssl_status") != "active" {
		t.Errorf("waited for %v", c.values("domain_verification", state))
	}
	c = open(t, "http://"+w.Listen, key)
	if changes := c.changes("domain_verification", c.take("domain_verification", "shop.example.com"), config); changes != nil {
		t.Errorf("imported, a plan changes %v", changes)
	}
	if said := c.destroy("domain_verification", state); said != "" {
		t.Error(said)
	}
	if c = open(t, "http://"+w.Listen, key); c.refresh("domain", made) == nil {
		t.Error("the domain is gone with it")
	}
}

// When the resource is created, its folder must be uploaded and live. Another content must give another deployment, and
// deleting the resource must change nothing. If a deployment fails, the error must say why.
func TestDeployment(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	c := open(t, "http://"+w.Listen, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("index.html", "ahoy")
	config := attrs{"site_id": site, "directory": dir, "content_hash": "1", "prebuilt": true, "title": "First"}
	state := c.apply("deployment", nil, config)
	live := func() string {
		t.Helper()
		var s struct{ DeploymentID string }
		if err := w.Call(t.Context(), key, "GET", "/sites/"+site, nil, &s); err != nil {
			t.Fatal(err)
		}
		return s.DeploymentID
	}
	id := c.text("deployment", state, "id")
	if got := live(); got != id || c.text("deployment", state, "status") != "success" {
		t.Errorf("live is %s, made was %s", got, id)
	}
	c = open(t, "http://"+w.Listen, key)
	state = c.refresh("deployment", state)
	if changes := c.changes("deployment", state, config); changes != nil {
		t.Errorf("a plan changes %v", changes)
	}
	config["content_hash"] = "2"
	if planned, _ := c.plan("deployment", state, config); len(planned.RequiresReplace) != 1 {
		t.Errorf("another content replaces it for %v", planned.RequiresReplace)
	}
	if said := c.destroy("deployment", state); said != "" || live() != id {
		t.Errorf("deleted: %s", said)
	}
	dir = t.TempDir()
	write("package.json", `{"scripts": {"build": "exit 3"}}`)
	broken := attrs{"site_id": site, "directory": dir, "content_hash": "1"}
	planned, encoded := c.plan("deployment", nil, broken)
	if said := c.create("deployment", planned, encoded); !strings.Contains(said, " failed: ") {
		t.Errorf("a build that fails: %s", said)
	}
}

// between starts a proxy in front of an installation that changes its answers, and returns the proxy's address.
func between(t *testing.T, to string, meddle func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	next := httputil.NewSingleHostReverseProxy(u)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { meddle(w, r, next) }))
	t.Cleanup(s.Close)
	return s.URL
}

// The provider must wait for the end of a rate limit and for a server that restarts, and must create nothing twice.
func TestWaits(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	var asked atomic.Int64
	server := between(t, "http://"+w.Listen, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch n := asked.Add(1); {
		case n <= 2 || n == 5:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error": "Too many requests", "code": "rate_limited"}`)
		case n == 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
	c := open(t, server, key)
	c.apply("site", nil, attrs{"name": "Harbor"})
	var sites struct{ Data []any }
	if err := w.Call(t.Context(), key, "GET", "/sites", nil, &sites); err != nil || len(sites.Data) != 1 {
		t.Errorf("there are %d sites: %v", len(sites.Data), err)
	}
}

// Answers of a newer server must be kept: fields that the provider does not know must do no harm and must stay, and a
// value that it does not know must be in the state, with a warning.
func TestNewerServer(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	server := between(t, "http://"+w.Listen, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := httptest.NewRecorder()
		r.Header.Del("Accept-Encoding")
		next.ServeHTTP(rec, r)
		text := strings.NewReplacer(`"status":"pending"`, `"status":"hibernating","mood":{"calm":true}`).Replace(rec.Body.String())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(rec.Code)
		_, _ = io.WriteString(w, text)
	})
	c := open(t, server, key)
	config := attrs{"name": "Harbor"}
	state := c.apply("site", nil, config)
	c = open(t, server, key)
	state = c.refresh("site", state)
	if got := c.text("site", state, "status"); got != "hibernating" {
		t.Errorf("the status is %q", got)
	}
	if !slices.ContainsFunc(c.said, func(s string) bool { return strings.Contains(s, `"hibernating"`) }) {
		t.Errorf("the warnings are %q", c.said)
	}
	if changes := c.changes("site", state, config); changes != nil {
		t.Errorf("a plan changes %v", changes)
	}
}

// A plan of a hundred variables must request their list once, and a plan of many sites must read the list of sites.
func TestListsAreReadOnce(t *testing.T) {
	t.Parallel()
	w, key := start(t)
	c := open(t, "http://"+w.Listen, key)
	site := c.text("site", c.apply("site", nil, attrs{"name": "Harbor"}), "id")
	var states []*tfprotov6.DynamicValue
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		states = append(states, c.apply("env", nil, attrs{"site_id": site, "key": name, "value": name}))
	}
	var asked atomic.Int64
	server := between(t, "http://"+w.Listen, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		asked.Add(1)
		next.ServeHTTP(w, r)
	})
	c = open(t, server, key)
	for _, s := range states {
		c.refresh("env", s)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d requests for five variables", n)
	}
	asked.Store(0)
	sites := c.take("site", site)
	for range 40 {
		c.refresh("site", sites)
	}
	if n := asked.Load(); n > 10 {
		t.Errorf("%d requests for 41 sites", n)
	}
	text, err := json.Marshal(states)
	if err != nil || bytes.Contains(text, []byte(key)) {
		t.Errorf("the token is in a state: %v", err)
	}
}
