package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"slipway/e2e/world"
)

// The public libraries that receivers use (standardwebhooks and svix, for Node.js and Go) verify every delivery of the
// real program, before and during a rotation of the secret, and reject changed bodies and signatures.
func TestPublicLibraries(t *testing.T) {
	t.Parallel()
	world.Long(t)
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	call := func(method, path string, body, out any) {
		t.Helper()
		if err := w.Call(ctx, key, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	const plain, encoded, next = "a secret of ümlauts & spaces", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "the secret that follows"
	var hook struct{ ID string }
	events := []string{"site.created", "site.updated", "site.deleted"}
	call("POST", "/webhooks", map[string]any{"url": w.Hooks.URL + "/encoded", "events": events, "secret": encoded}, nil)
	call("POST", "/webhooks", map[string]any{"url": w.Hooks.URL + "/plain", "events": events, "secret": plain}, &hook)
	change := func(name string) {
		t.Helper()
		var made struct{ Data struct{ ID string } }
		call("POST", "/sites", map[string]string{"name": name, "type": "wordpress"}, &made)
		call("PATCH", "/sites/"+made.Data.ID, map[string]string{"name": name + " \U0001F680 <b>\"'&\\ \u2028"}, nil)
	}
	wait := func(name string) (all []world.Delivery) { // at least the events created and updated, at both endpoints
		t.Helper()
		for _, path := range []string{"/encoded", "/plain"} {
			got, err := w.Hooks.Wait(ctx, 2, func(d world.Delivery) bool {
				return d.Path == path && bytes.Contains(d.Body, []byte(`"name":"`+name))
			})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, got...)
		}
		return all
	}
	change("first")
	before := wait("first")
	call("POST", "/webhooks/"+hook.ID+"/rotate-secret", map[string]any{"secret": next, "overlapSeconds": 3600}, nil)
	change("second")

	type testCase struct {
		Secret  string
		Headers map[string]string
		Body    []byte
	}
	var cases []testCase
	want := ""
	rotated := 0
	for _, d := range append(before, wait("second")...) {
		headers := map[string]string{}
		for name := range d.Header {
			headers[strings.ToLower(name)] = d.Header.Get(name)
		}
		add := func(letter, secret string, body []byte, changed ...string) {
			h := maps.Clone(headers)
			for j := 0; j < len(changed); j += 2 {
				h[changed[j]] = changed[j+1]
			}
			if !strings.HasPrefix(secret, "whsec_") { // as described in docs/webhooks.md
				secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(secret))
			}
			cases, want = append(cases, testCase{secret, h, body}), want+letter
		}
		secret := encoded
		if d.Path == "/plain" {
			secret = plain
			letter := "n"
			if d.Header.Get("X-Service-Signature-Next") != "" {
				letter = "y"
				rotated++
			}
			add(letter, next, d.Body)
		}
		add("y", secret, d.Body)
		add("n", "somebody else's secret", d.Body)
		add("n", secret, append([]byte(" "), d.Body...))
		add("n", secret, bytes.Replace(d.Body, []byte("site_"), []byte("sitf_"), 1))
		add("n", secret, d.Body, "webhook-id", "evt_other")
		add("n", secret, d.Body, "webhook-timestamp", "1767225600")
		add("n", secret, d.Body, "webhook-signature", "v1,AAAA")
	}
	matchesCatalogue(t, w, key)
	if rotated < 2 {
		t.Errorf("%d deliveries are signed with both secrets, want those of the second site", rotated)
	}
	got := ""
	for _, c := range cases {
		h := http.Header{}
		for name, v := range c.Headers {
			h.Set(name, v)
		}
		library, err := standard.NewWebhook(c.Secret)
		if err == nil {
			err = library.Verify(c.Body, h)
		}
		got += map[bool]string{true: "y", false: "n"}[err == nil]
	}
	if got != want {
		t.Errorf("standardwebhooks for Go says %s, want %s", got, want)
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	run := func(what, dir string, args ...string) {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...) // the first run downloads and compiles dependencies
		cmd.Dir, cmd.Stdin, cmd.Stderr = dir, bytes.NewReader(input), &errs
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%s: %v %s\nsays %s\nwant %s", what, err, &errs, out, want)
		}
	}
	receivers := filepath.Join(world.Root(), "e2e", "libraries")
	run("svix for Go", receivers, "go", "run", ".")
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "main.js"} {
		text, err := os.ReadFile(filepath.Join(receivers, "node", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	run("standardwebhooks for Node", dir, "node", "main.js", "standardwebhooks")
	run("svix for Node", dir, "node", "main.js", "svix")
}

// matchesCatalogue checks each delivery's body against the schema in GET /webhooks/events.
func matchesCatalogue(t *testing.T, w *world.World, key string) {
	t.Helper()
	var list struct {
		Data []struct {
			Name   string
			Schema json.RawMessage
		}
	}
	if err := w.Call(t.Context(), key, "GET", "/webhooks/events?limit=100", nil, &list); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	of := map[string]*jsonschema.Schema{}
	for _, e := range list.Data {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Schema))
		if err == nil {
			err = c.AddResource(e.Name, doc)
		}
		if err == nil {
			of[e.Name], err = c.Compile(e.Name)
		}
		if err != nil {
			t.Fatalf("schema of %s: %v", e.Name, err)
		}
	}
	for _, d := range w.Hooks.All() {
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.Body))
		if err != nil || of[d.Event] == nil {
			t.Fatalf("%s: %v: %s", d.Event, err, d.Body)
		}
		if err := of[d.Event].Validate(body); err != nil {
			t.Errorf("%s: %v", d.Body, err)
		}
	}
}
