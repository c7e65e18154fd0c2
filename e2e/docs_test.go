package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/web/docs"
)

// The reference's examples work when pasted into a shell. Each scenario runs in order, with the text from the served
// pages, and each call returns its documented status.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	server := mailtest.New(t, mailtest.Config{})
	w.Flags = append(w.Flags, "--git-host", "github.com="+w.Git.URL, "--smtp", server.Addr, "--smtp-from", "Slipway <slipway@example.test>", "--base-url", "http://"+w.Listen)
	var commit string
	for _, branch := range []struct {
		repository, name string // a repository's first branch is its default branch
		files            map[string]string
	}{
		{"acme/site", "main", map[string]string{"index.html": "hello", "_redirects": "/old-page /new-page"}},
		{"acme/site", "redesign", map[string]string{"index.html": "new"}},
		{"acme/app", "main", map[string]string{
			"package.json": `{"name": "app", "private": true, "scripts": {"start": "node server.js"}}`,
			"server.js":    "require('http').createServer((q, r) => r.end('up')).listen(process.env.PORT)",
			"slipway.toml": "[[cron]]\nname = \"cleanup\"\nschedule = \"0 3 * * *\"\ncommand = \"node --version\"\n",
		}},
	} {
		dir := filepath.Join(t.TempDir(), "files")
		if err := world.WriteFiles(dir, branch.files); err != nil {
			t.Fatal(err)
		}
		hash, err := w.Git.Commit(branch.repository, branch.name, dir, "A commit")
		if err != nil {
			t.Fatal(err)
		}
		if branch.repository == "acme/site" && branch.name == "main" {
			commit = hash
		}
	}
	w.Hooks.Serve("/api/v1/user", []byte(`{"login": "ada"}`))
	w.Hooks.Serve("/api/v1/user/repos", []byte(`[]`))
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	member, err := w.User(invited)
	if err != nil {
		t.Fatal(err)
	}
	x := outside{w, server, map[string]int{}}
	for _, s := range docs.Scenarios() {
		if s.Name == "wordpress" || s.Name == "billing" { // e2e/wordpress and TestDocumentedBilling run them
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			key, err := w.User(s.Name + "@example.test")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			digest, err := folder(dir)
			if err != nil {
				t.Fatal(err)
			}
			err = w.RunScenario(t.Context(), dir, s, map[string]string{
				"SLIPWAY_KEY": key, "GITEA_URL": w.Hooks.URL, "GITEA_TOKEN": "a-token", "SLACK_WEBHOOK_URL": w.Hooks.URL + "/slack",
				"COMMIT": commit, "MEMBER_KEY": member, "EMAIL": s.Name + "@example.test", "DIGEST": digest,
			}, x.lookup)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// folder writes the files of the upload examples: a page, its manifest and its batch. It returns the page's digest.
func folder(dir string) (digest string, err error) {
	const page = "<h1>hello</h1>\n"
	sum := sha256.Sum256([]byte(page))
	batch := append(sum[:], 0, 0, 0, 0, 0, 0, 0, byte(len(page)))
	digest = hex.EncodeToString(sum[:])
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	file, err := z.Create("index.html")
	if err == nil {
		_, err = io.WriteString(file, page)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return "", err
	}
	return digest, world.WriteFiles(dir, map[string]string{
		"index.html":      page,
		"manifest.ndjson": fmt.Sprintf(`{"path": "index.html", "sha256": "%s", "size": %d}`+"\n", digest, len(page)),
		"files.blobs":     string(batch) + page,
		"site.zip":        archive.String(),
	})
}

// The examples in the other languages work as shown, with and without a body.
func TestDocumentedLanguages(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	for language, run := range map[string][]string{
		"go":         {"main.go", "go", "run"},
		"javascript": {"main.mjs", "node"},
		"php":        {"main.php", "php"},
	} {
		for operation, want := range map[string]string{"createKey": `"key":"slw_`, "getAccount": `"email":"ada@example.test"`} {
			page := map[string]string{"createKey": "keys", "getAccount": "account"}[operation]
			source, err := w.Example(ctx, page+"?lang="+language, operation)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := world.WriteFiles(dir, map[string]string{run[0]: source}); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(ctx, run[1], append(run[2:], run[0])...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "SLIPWAY_KEY="+key, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s in %s: %v: %s", operation, language, err, out)
			}
		}
	}
}

// outside looks up values that readers don't get from the API, but from an email or a page of the dashboard.
type outside struct {
	w    *world.World
	mail *mailtest.Server
	read map[string]int // variable → number of emails read for it
}

// invited is the user that the scenarios invite, whose key is $MEMBER_KEY.
const invited = "grace@example.com"

var mailed = map[string]*regexp.Regexp{
	"INVITATION_TOKEN": regexp.MustCompile(`/invitations/([\w-]+)`),
	"TRANSFER_CODE":    regexp.MustCompile(`(?m)^([\w-]{20,})$`),
}

func (o outside) lookup(name string, env map[string]string) (string, error) {
	switch {
	case mailed[name] != nil:
		return o.fromMail(name)
	case name == "GRANT_ID":
		return o.authorize(env)
	case name == "IDENTITY_ID":
		return o.linked(env)
	}
	return "", fmt.Errorf("no step and nothing else gives %s", name)
}

// fromMail waits for an email to the invited user and returns a variable's value from it.
func (o outside) fromMail(name string) (string, error) { return o.mailedTo(invited, name) }

// mailedTo waits for an email to an address and returns a variable's value from it.
func (o outside) mailedTo(address, name string) (found string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience(time.Minute))
	defer cancel()
	err = world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		all := o.mail.All()
		for i := o.read[name]; i < len(all); i++ {
			if m := mailed[name].FindStringSubmatch(all[i].Text); m != nil && all[i].To == address && found == "" {
				found, o.read[name] = m[1], i+1
			}
		}
		return found != "", nil
	})
	return found, err
}

// linked stores a provider account that the user has linked, and returns its ID.
func (o outside) linked(env map[string]string) (string, error) {
	_, err := o.w.CLI("secret\n", "sso", "add", "--kind", "google", "--client-id", "client", "--base-url", "http://"+o.w.Listen)
	if err != nil {
		return "", err
	}
	d, err := sql.Open("sqlite", filepath.Join(o.w.Data, "slipway.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return "", err
	}
	defer d.Close()
	const id = "idn_25o5kzh3mc7yw4tn6pqd2xlfae"
	_, err = d.Exec(`INSERT INTO sso_identities (owner_id, issuer, subject, id, user_id, email, created_at, used_at)
		SELECT '', 'https://accounts.google.com', '1', $1, id, email, 1, 0 FROM users WHERE email = $2`, id, env["EMAIL"])
	return id, err
}

// authorize grants the app access through the device flow, and returns the grant's ID.
func (o outside) authorize(env map[string]string) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Jar: jar, Timeout: world.Patience(20 * time.Second)}
	post := func(path string, form url.Values, out any) error {
		a, err := world.Read(client.PostForm("http://"+o.w.Listen+path, form))
		if err == nil {
			err = a.Err()
		}
		if err == nil && out != nil {
			err = a.JSON(out)
		}
		return err
	}
	app := url.Values{"client_id": {env["APP_ID"]}, "client_secret": {env["CLIENT_SECRET"]}, "scope": {"sites:read"}}
	var device struct {
		Secret string `json:"device_code"`
		Code   string `json:"user_code"`
	}
	if err := post("/sign-in", url.Values{"email": {env["EMAIL"]}, "password": {world.Password}}, nil); err != nil {
		return "", err
	}
	if err := post("/oauth/device", app, &device); err != nil {
		return "", err
	}
	allow := url.Values{"code": {device.Code}, "decision": {"allow"}, "scopes": {"sites:read"}, "reach": {"all"}, "expires": {"1d"}}
	if err := post("/device", allow, nil); err != nil {
		return "", err
	}
	app.Set("grant_type", "urn:ietf:params:oauth:grant-type:device_code")
	app.Set("device_code", device.Secret)
	if err := post("/oauth/token", app, nil); err != nil {
		return "", err
	}
	var grants struct{ Data []struct{ ID string } }
	if err := o.w.Call(context.Background(), env["SLIPWAY_KEY"], "GET", "/oauth/grants", nil, &grants); err != nil {
		return "", err
	}
	if len(grants.Data) != 1 {
		return "", fmt.Errorf("%d grants, not 1", len(grants.Data))
	}
	return grants.Data[0].ID, nil
}
