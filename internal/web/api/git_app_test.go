package api_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/web/api"
)

// appStandIn is a fake GitHub like forgeStandIn that also creates apps from manifests, with the webhook secret
// app-hook-secret.
type appStandIn struct{ key []byte }

func (s appStandIn) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := 201, ""
	switch r.URL.Host + r.URL.Path {
	case "api.github.com/app-manifests/made/conversions":
		body = fmt.Sprintf(
			`{"slug": "slipway-test", "name": "Slipway test", "client_id": "Iv1.x", "client_secret": "s", "webhook_secret": "app-hook-secret", "pem": %q}`,
			s.key,
		)
	case "github.com/login/oauth/access_token":
		status, body = 200, `{"access_token": "good-token", "expires_in": 28800, "refresh_token": "r"}`
	default:
		return forgeStandIn{}.RoundTrip(r)
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// appWorld returns a world with a GitHub App, and the path of the app's webhook.
func appWorld(t *testing.T) (w *world, hook string, connect func(owner account.OwnerID) connection.Connection) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	w = newWorld(t, func(c *api.Config) {
		k, err := seal.Load(filepath.Join(t.TempDir(), "key"))
		check(t, err)
		c.Connections = connection.New(connection.Config{
			DB:    c.DB,
			Seal:  k,
			Out:   &http.Client{Transport: appStandIn{bytes.TrimSpace(text)}},
			Base:  "http://slipway.test",
			Hooks: "http://slipway.test",
		})
	})
	cs, ctx := w.c.Connections, t.Context()
	var made connection.Creation
	check(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		made, err = cs.CreationTx(ctx, tx, "ses_op", connection.NewGitHubApp{})
		return err
	}))
	u, err := url.Parse(made.To)
	check(t, err)
	app, err := cs.Created(ctx, "ses_op", url.Values{"code": {"made"}, "state": {u.Query().Get("state")}})
	check(t, err)
	var a connection.App
	check(t, w.db.Write(ctx, func(tx *db.Tx) (err error) { a, err = cs.StoreAppTx(ctx, tx, app); return err }))
	var m connection.Manifest
	check(t, json.Unmarshal([]byte(made.Manifest), &m))
	hook = strings.TrimPrefix(m.Hook["url"].(string), "http://slipway.test")
	return w, hook, func(owner account.OwnerID) (c connection.Connection) {
		var to string
		check(t, w.db.Write(ctx, func(tx *db.Tx) (err error) { to, err = cs.BeginTx(ctx, tx, "ses_1", a.ID, true); return err }))
		u, err := url.Parse(to)
		check(t, err)
		k, _, err := cs.Finish(ctx, "ses_1", url.Values{"code": {"x"}, "state": {u.Query().Get("state")}})
		check(t, err)
		check(t, w.db.Write(ctx, func(tx *db.Tx) (err error) { c, err = cs.CreateTx(ctx, tx, owner, k); return err }))
		return c
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A GitHub App's webhook serves all sites of the repository whose owner connected an account with the app, and no
// others.
func TestGitHubAppEvents(t *testing.T) {
	t.Parallel()
	w, hook, connect := appWorld(t)
	repo := m{"full_name": "octo/site", "clone_url": "https://github.com/octo/site.git", "default_branch": "main"}
	n := 0
	send := func(event, secret string, payload m) answer {
		n++
		payload["n"] = n
		b, err := json.Marshal(payload)
		check(t, err)
		return w.send(
			"POST",
			hook,
			"",
			string(b),
			"Content-Type: application/json",
			"X-GitHub-Event: "+event,
			fmt.Sprint("X-GitHub-Delivery: a-", n),
			"X-Hub-Signature-256: sha256="+hexMAC(secret, string(b)),
		)
	}
	push := func(branch, sha string) m {
		return m{
			"ref":          "refs/heads/" + branch,
			"before":       shaB,
			"after":        sha,
			"repository":   repo,
			"commits":      []m{},
			"head_commit":  m{"id": sha, "message": "change"},
			"installation": m{"id": 77},
		}
	}
	ada, key := w.user("a@example.test")
	eve, others := w.user("e@example.test")
	u, err := w.c.Accounts.User(t.Context(), ada)
	check(t, err)
	con := connect(u.Owner)
	site := func(key, name, repository string, more m) string {
		body := m{"name": name, "type": "static", "repository": repository, "branch": "main"}
		for k, v := range more {
			body[k] = v
		}
		return w.must(201, "POST", "/sites", key, body)["data"].(m)["id"].(string)
	}
	first := site(key, "One", "github.com/octo/site", m{"connectionId": string(con.ID)})
	second := site(key, "Two", "github.com/Octo/Site", m{"connectionId": string(con.ID)})
	site(key, "Other", "github.com/octo/other", m{"connectionId": string(con.ID)})
	without := site(key, "Without", "github.com/octo/site", nil)
	stranger := site(others, "Stranger's", "github.com/octo/site", nil)
	count := func(key, site string) int {
		return len(w.must(200, "GET", "/sites/"+site+"/deployments", key, nil)["data"].([]any))
	}
	before := map[string]int{first: count(key, first), second: count(key, second), without: count(key, without)}

	wants(t, "a ping", send("ping", "app-hook-secret", m{"zen": "x", "hook": m{}}), 200, `"skipped":true`)
	wants(t, "a wrong signature", send("push", "wrong", push("main", shaA)), 401, "invalid_signature")
	wants(
		t,
		"an unknown webhook",
		w.send("POST", "/hooks/github/"+strings.Repeat("x", 43), "", "{}", "X-GitHub-Event: push"),
		404,
		"not found",
	)
	a := send("push", "app-hook-secret", push("main", shaA))
	wants(t, "a push", a, 200, first, second, "pending")
	if strings.Contains(a.body, stranger) || strings.Contains(a.body, without) {
		t.Errorf("the push deploys sites that don't use the app: %s", a)
	}
	for _, id := range []string{first, second} {
		list := w.must(200, "GET", "/sites/"+id+"/deployments", key, nil)["data"].([]any)
		if d := list[0].(m); len(list) != before[id]+1 || d["commitHash"] != shaA || d["trigger"] != "push" || d["target"] != "production" {
			t.Errorf("the newest of %d deployments: %v", len(list), d)
		}
	}
	if count(key, without) != before[without] {
		t.Error("a site without the account was deployed")
	}
	n-- // the same delivery again
	wants(t, "the same delivery", send("push", "app-hook-secret", push("main", shaA)), 200, "handled before")

	w.must(200, "PATCH", "/sites/"+first+"/git", key, m{"previews": "pull_requests"})
	pull := m{
		"action":     "opened",
		"number":     9,
		"repository": repo,
		"pull_request": m{
			"title": "Cart",
			"state": "open",
			"user":  m{"login": "octo"},
			"head":  m{"ref": "cart", "sha": shaB, "repo": repo},
		},
	}
	wants(t, "a pull request", send("pull_request", "app-hook-secret", pull), 200, "pending", "previews are set to off")
	if d := w.must(
		200,
		"GET",
		"/sites/"+first+"/deployments",
		key,
		nil,
	)["data"].([]any)[0].(m); d["target"] != "preview" || d["commitHash"] != shaB {
		t.Errorf("the pull request's deployment: %v", d)
	}

	h := w.gitHook(key, second) // a site with both hooks gets the same push twice
	wants(t, "by the app", send("push", "app-hook-secret", push("main", shaB)), 200, "pending")
	own := push("main", shaB)
	wants(t, "by the site's own hook", h.github("push", own), 200, "was triggered already")
	wants(t, "again, after another commit", send("push", "app-hook-secret", push("main", shaA)), 200, "pending")
	wants(t, "back to the commit before", h.github("push", push("main", shaB)), 200, "pending")

	check(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Accounts.SuspendTx(t.Context(), tx, audit.Actor{User: eve}, ada, "")
		return err
	}))
	wants(t, "for a suspended user", send("push", "app-hook-secret", push("main", shaB)), 200, `"skipped":true`)
}
