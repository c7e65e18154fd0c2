package e2e

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// The action in the folder action deploys a directory with GitHub's identity token as its only credential. The API key
// that it gets in return is limited to one site. Runs on other branches make previews, and an identity token can't be
// used twice.
func TestGitHubAction(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	base := "http://" + w.Listen
	w.Flags = append(w.Flags, "--base-url", base, "--actions-issuer", w.Hooks.URL)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Data struct{ ID, URL string } }
	if err := w.Call(ctx, key, "POST", "/sites", map[string]any{"name": "Harbor", "type": "static", "source": "upload"}, &made); err != nil {
		t.Fatal(err)
	}
	site := made.Data.ID
	allow := map[string]any{"workflows": map[string]any{"repository": "acme/site"}}
	if err := w.Call(ctx, key, "PATCH", "/sites/"+site+"/git", allow, nil); err != nil {
		t.Fatal(err)
	}

	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	serve := func(path string, v any) {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.Hooks.Serve(path, text)
	}
	serve("/.well-known/openid-configuration", map[string]any{"issuer": w.Hooks.URL, "jwks_uri": w.Hooks.URL + "/keys"})
	serve("/keys", map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "kid": "1", "alg": "RS256", "n": b64(private.N.Bytes()), "e": b64(big.NewInt(int64(private.E)).Bytes()),
	}}})
	identify := func(ref string) {
		t.Helper()
		now := time.Now()
		header, _ := json.Marshal(map[string]any{"alg": "RS256", "kid": "1"})
		claims, err := json.Marshal(map[string]any{
			"iss": w.Hooks.URL, "aud": base, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "repository": "acme/site",
			"repository_id": "74", "ref": ref, "event_name": "push", "run_id": "1658821493",
		})
		if err != nil {
			t.Fatal(err)
		}
		text := b64(header) + "." + b64(claims)
		sum := sha256.Sum256([]byte(text))
		signature, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		serve("/identity", map[string]any{"value": text + "." + b64(signature)})
	}
	// The workflow in examples/github-actions builds and deploys the example.
	example := t.TempDir()
	if err := os.CopyFS(example, os.DirFS(filepath.Join(world.Root(), "examples/github-actions"))); err != nil {
		t.Fatal(err)
	}
	workflow, err := os.ReadFile(filepath.Join(example, ".github/workflows/deploy.yml"))
	if err != nil || !strings.Contains(string(workflow), "run: sh build.sh") || !strings.Contains(string(workflow), "directory: dist\n          kind: output") {
		t.Fatalf("the example's workflow: %v\n%s", err, workflow)
	}
	build := exec.CommandContext(ctx, "sh", "build.sh")
	if build.Dir = example; build.Run() != nil {
		t.Fatal("the example can't be built")
	}
	dir := filepath.Join(example, "dist")
	if err := world.WriteFiles(dir, map[string]string{".env": "PASSWORD=canary", ".git/HEAD": "ref"}); err != nil {
		t.Fatal(err)
	}
	run := func(target, ref, site string) (outputs map[string]string, log string, err error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "outputs")
		cmd := exec.CommandContext(ctx, "sh", filepath.Join(world.Root(), "action", "deploy.sh"))
		cmd.Env = append(os.Environ(), "SLIPWAY_SERVER="+base+"/", "SLIPWAY_SITE="+site, "DIRECTORY="+dir, "KIND=output", "TARGET="+target, "BRANCH=",
			"ACTIONS_ID_TOKEN_REQUEST_URL="+w.Hooks.URL+"/identity?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=of-the-run", "SLIPWAY_TOKEN=",
			"GITHUB_OUTPUT="+file, "GITHUB_REF_NAME="+strings.TrimPrefix(ref, "refs/heads/"), "GITHUB_RUN_ID="+rand.Text(),
			"CURL_CA_BUNDLE="+w.Hooks.CA, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err = cmd.Run()
		text, _ := os.ReadFile(file) // the file doesn't exist if the step failed
		outputs = map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			outputs[name] = value
		}
		return outputs, out.String(), err
	}

	identify("refs/heads/main")
	out, log, err := run("production", "refs/heads/main", site)
	if err != nil || out["url"] == "" {
		t.Fatalf("the action ends with %v\n%s", err, log)
	}
	var d struct {
		Target    string
		IsCurrent bool
	}
	if err := w.Call(ctx, key, "GET", "/deployments/"+out["deployment-id"], nil, &d); err != nil || d.Target != "production" || !d.IsCurrent {
		t.Errorf("the deployment is %+v, %v", d, err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	visit := func(path string) (int, string) {
		t.Helper()
		answer, err := browser.Get(made.Data.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if status, page := visit("/"); status != 200 || !strings.Contains(page, "deployed by a workflow in 2") {
		t.Errorf("the site answers %d with %s", status, page)
	}
	if status, text := visit("/.env"); status == 200 || strings.Contains(text, "canary") {
		t.Errorf("/.env is answered with %d: %s", status, text)
	}
	if _, log, err = run("production", "refs/heads/main", site); err == nil || !strings.Contains(log, "was used before") {
		t.Errorf("an identity that was used gets %v\n%s", err, log)
	}

	identify("refs/heads/topic")
	if _, log, err = run("production", "refs/heads/topic", site); err == nil || !strings.Contains(log, "deployments:write") {
		t.Errorf("another branch deploys to production: %v\n%s", err, log)
	}
	identify("refs/heads/topic")
	if out, log, err = run("preview", "refs/heads/topic", site); err != nil || !strings.Contains(out["url"], "topic") {
		t.Errorf("a preview is at %q: %v\n%s", out["url"], err, log)
	}
	identify("refs/heads/main")
	var other struct{ Data struct{ ID string } }
	if err := w.Call(ctx, key, "POST", "/sites", map[string]any{"name": "Other", "type": "static", "source": "upload"}, &other); err != nil {
		t.Fatal(err)
	}
	if _, log, err = run("production", "refs/heads/main", other.Data.ID); err == nil || !strings.Contains(log, "may not deploy this site") {
		t.Errorf("a site that allows no workflow: %v\n%s", err, log)
	}
}

// ShellCheck reports no problem in the action's POSIX shell script.
func TestActionScript(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "shellcheck", filepath.Join(world.Root(), "action", "deploy.sh")).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
