package api_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api"
	"slipway/internal/web/idempotency"
)

func TestPOSTActsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	_, other := w.user("b@example.test")
	body := m{"name": "once", "type": "static", "repository": "git.test/acme/site"}
	const h = "Idempotency-Key: one"
	var first atomic.Int64
	bodies := sync.Map{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a := w.api("POST", "/sites", key, body, h)
			common(t, "once", a)
			if a.status != 201 {
				t.Error(a)
			}
			if a.header.Get("Idempotent-Replayed") == "" {
				first.Add(1)
			}
			bodies.Store(a.body, true)
		})
	}
	wg.Wait()
	n := 0
	bodies.Range(func(any, any) bool { n++; return true })
	total := w.must(200, "GET", "/sites", key, nil)["pagination"].(m)["total"].(float64)
	if n != 1 || first.Load() != 1 || total != 1 {
		t.Fatalf("%d answers, %d first, %v sites; want one of each", n, first.Load(), total)
	}
	if a := w.api("POST", "/sites", other, body, h); a.status != 201 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("another user's key: %s", a)
	}
	changed := m{"name": "twice", "type": "static", "repository": "git.test/acme/site"}
	if a := w.api("POST", "/sites", key, changed, h); a.status != 409 || a.json(t)["code"] != "idempotency_key_reused" {
		t.Errorf("another body: %s", a)
	}
	if a := w.api("POST", "/sites?x=1", key, body, h); a.status != 409 {
		t.Errorf("another query: %s", a)
	}
	// Error responses aren't stored.
	bad := m{"name": " ", "type": "static", "repository": "git.test/acme/site"}
	for range 2 {
		if a := w.api("POST", "/sites", key, bad, "Idempotency-Key: two"); a.status != 400 || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("an error: %s", a)
		}
	}
	if a := w.api("POST", "/sites", key, body, "Idempotency-Key: two"); a.status != 201 {
		t.Errorf("after an error: %s", a)
	}
	for _, odd := range []string{"é", strings.Repeat("x", 256)} {
		if a := w.api("POST", "/sites", key, body, "Idempotency-Key: "+odd); a.status != 400 {
			t.Errorf("key %.9q: %s", odd, a)
		}
	}
	if a := w.api("POST", "/sites", key, body, h, "Idempotency-Key: second"); a.status != 400 {
		t.Errorf("two keys: %s", a)
	}
}

func TestReplayShowsNoMoreThanTheKeyMaySee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	const h = "Idempotency-Key: same"
	body := m{"name": "k", "scopes": []string{"sites:read"}}
	first := w.api("POST", "/keys", key, body, h)
	again := w.api("POST", "/keys", key, body, h)
	if first.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("%s then %s", first, again)
	}
	narrow := w.key(u, account.NewKey{Scopes: account.Scopes{account.KeysWrite, account.SitesRead}})
	if a := w.api("POST", "/keys", narrow, body, h); a.status != 201 || a.body == first.body {
		t.Errorf("another key is shown the secret of the first: %s", a)
	}
	// A key that lost its permission is refused before a replay.
	id := w.site(key, "x")
	other := w.site(key, "y")
	deploy := "/sites/" + id + "/deploy"
	if a := w.api("POST", deploy, key, nil, h); a.status != 200 {
		t.Fatal(a)
	}
	for who, k := range map[string]string{
		"without the scope": w.key(u, account.NewKey{Scopes: account.Scopes{account.SitesWrite}}),
		"for another site":  w.key(u, account.NewKey{Sites: []site.ID{site.ID(other)}}),
	} {
		if a := w.api("POST", deploy, k, nil, h); a.status != 403 {
			t.Errorf("a key %s: %s", who, a)
		}
	}
	if a := w.api("POST", deploy, w.key(u, account.NewKey{}), nil, h); a.status != 200 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("an equal key of the same user: %s", a)
	}
}

func TestEveryPOSTHonoursTheKey(t *testing.T) {
	t.Parallel()
	for _, r := range routesOf(newWorld(t)) {
		row, ok := matrix[r.ID]
		if r.Method != "POST" || r.Hook || !ok || row.status >= 400 || r.ID == "sendUploadBlobs" { // same bytes, no change
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			u, key := w.user("a@example.test")
			x := w.belongings(u, key)
			if row.team {
				x, key = w.team(u, key)
			}
			if row.prep != nil {
				row.prep(w, key, x)
			}
			first := w.api("POST", x.fill(row.path), key, row.body, "Idempotency-Key: k")
			again := w.api("POST", x.fill(row.path), key, row.body, "Idempotency-Key: k")
			if first.status != row.status || again.status != first.status || again.body != first.body ||
				again.header.Get("Idempotent-Replayed") != "true" ||
				first.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s then %s (replayed %q)", first, again, again.header.Get("Idempotent-Replayed"))
			}
		})
	}
}

func TestHookHonoursTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	hook := w.must(201, "POST", "/sites/"+id+"/hooks", key, m{"name": "ci"})["id"].(string)
	call := func(query string) answer {
		return w.send("POST", "/hooks/deploy/"+hook+query, "", nil, "Idempotency-Key: k")
	}
	first, again := call(""), call("")
	if first.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s then %s", first, again)
	}
	if a := call("?title=x"); a.status != 409 {
		t.Errorf("another query: %s", a)
	}
	// A deploy hook's body is any text and is compared byte for byte.
	for i, body := range []string{"hello", "{", `{"a":1} {"b":2}`, "\xff", "null"} {
		post := func(body string) answer {
			return w.send("POST", "/hooks/deploy/"+hook, "", body, fmt.Sprint("Idempotency-Key: text-", i), "Content-Type: text/plain")
		}
		first, again := post(body), post(body)
		if first.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%q: %s then %s", body, first, again)
		}
		if a := post(body + "x"); a.status != 409 {
			t.Errorf("%q with one character more: %s", body, a)
		}
	}
	var leaks int
	if err := w.db.QueryRow(
		t.Context(),
		"SELECT count(*) FROM idempotent_answers WHERE path LIKE '%dhk_%' OR scope LIKE '%dhk_%'",
	).Scan(&leaks); err != nil || leaks != 0 {
		t.Errorf("the hook's id is stored in the clear: %d, %v", leaks, err)
	}
	if strings.Contains(w.logs.String(), hook) {
		t.Error("the hook's id is in the log")
	}
}

// Stored responses are limited per user over all of the user's keys, hooks and paths, and failed requests store none.
// At the limit, requests without an Idempotency-Key, replays and other users' requests still work.
func TestStoredAnswersAreTheUsers(t *testing.T) {
	t.Parallel()
	const most = 6
	w := newWorld(t, func(c *api.Config) {
		s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		c.Answers = idempotency.New(idempotency.Config{DB: c.DB, Seal: s, Rows: most})
	})
	u, first := w.user("a@example.test")
	_, other := w.user("b@example.test")
	id := w.site(first, "x")
	hook := w.must(201, "POST", "/sites/"+id+"/hooks", first, m{"name": "h"})["url"].(string)
	hook = hook[strings.Index(hook, "/hooks/"):]
	rows := func() (n, bytes int) {
		t.Helper()
		if err := w.db.QueryRow(
			t.Context(),
			"SELECT count(*), COALESCE(SUM(length(answer) + length(path) + length(key) + length(scope)), 0) FROM idempotent_answers",
		).Scan(
			&n,
			&bytes,
		); err != nil {
			t.Fatal(err)
		}
		return n, bytes
	}
	long := strings.Repeat("k", 250)
	for i := range 20 { // errors of every kind
		w.api("POST", "/sites/"+id+"/env", first, `{"key": "1bad", "value": "x"}`, fmt.Sprint("Idempotency-Key: e", i))
		w.api("POST", "/sites/"+id+"/env", first, `{"key": `, fmt.Sprint("Idempotency-Key: e", i))
		w.api("POST", "/sites/site_none/env", first, m{"key": "A", "value": "x"}, fmt.Sprint("Idempotency-Key: e", i))
		w.api("POST", "/sites/"+id+"/env", "slw_none", m{"key": "A", "value": "x"}, fmt.Sprint("Idempotency-Key: e", i))
	}
	if n, _ := rows(); n != 0 {
		t.Fatalf("%d answers of requests that failed are stored", n)
	}
	keys := []string{first, w.key(u, account.NewKey{}), w.key(u, account.NewKey{Sites: []site.ID{site.ID(id)}})}
	made, refused := 0, 0
	for i := range 16 {
		k := fmt.Sprintf("Idempotency-Key: %s%d", long, i)
		var a answer
		switch i % 4 {
		case 0:
			a = w.send("POST", hook, "", "", k)
		case 1:
			a = w.api("POST", "/%73ites/"+id+"/env/", keys[0], m{"key": fmt.Sprint("A", i), "value": strings.Repeat("x", 30_000)}, k)
		default:
			a = w.api("POST", "/sites/"+id+"/env", keys[i%3], m{"key": fmt.Sprint("A", i), "value": "x"}, k)
		}
		switch {
		case a.status < 300:
			made++
		case a.status == 429 && a.json(t)["code"] == "too_many_idempotency_keys" && a.header.Get("Retry-After") != "":
			refused++
		default:
			t.Error(i, a)
		}
	}
	if n, bytes := rows(); made != most || refused != 16-most || n != most || bytes > most*2000 {
		t.Errorf("%d made, %d refused, %d rows, %d bytes", made, refused, n, bytes)
	}
	if a := w.api("POST", "/sites/"+id+"/env", first, m{"key": "B", "value": "x"}); a.status != 201 {
		t.Errorf("without a key: %s", a)
	}
	if a := w.send("POST", hook, "", "", "Idempotency-Key: "+long+"0"); a.status != 200 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a replay: %s", a)
	}
	if a := w.api("POST", "/sites", other, m{
		"name":       "y",
		"type":       "static",
		"repository": "git.test/acme/site",
	}, "Idempotency-Key: 1"); a.status != 201 {
		t.Errorf("another user: %s", a)
	}
}
