package api_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

// manyVars returns 1,000 variables, close to the maximum size of a body.
func manyVars() []m {
	list := make([]m, 1000)
	for i := range list {
		b := make([]byte, 470)
		rand.Read(b)
		list[i] = m{"key": fmt.Sprint("V", i), "value": hex.EncodeToString(b)}
	}
	return list
}

// While one user's requests queue for the database's writer, another user's request waits for only one of them.
func TestOneUsersWritesDoNotDelayAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !w.db.Single() {
		t.Skip("PostgreSQL has a writer per connection; see TestTurnsBoundAShare")
	}
	_, greedy := w.user("a@example.test")
	_, other := w.user("b@example.test")
	id, theirs := w.site(greedy, "x"), w.site(other, "y")
	held, let := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // holds the writer while all requests arrive
		if err := w.db.Write(t.Context(), func(*db.Tx) error { close(held); <-let; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-held
	until := func(n int) {
		t.Helper()
		wait.Until(t, fmt.Sprint(n, " wait"), func() bool { return w.db.Waiting() >= n })
	}
	const many = 15
	for i := range many {
		wg.Go(func() { w.api("POST", "/sites/"+id+"/env", greedy, m{"key": fmt.Sprint("K", i), "value": "x"}) })
	}
	until(many)
	wg.Go(func() { w.api("POST", "/sites/"+theirs+"/env", other, m{"key": "MINE", "value": "x"}) })
	until(many + 1)
	close(let)
	wg.Wait()
	for i, e := range w.log() { // newest first
		if e.Detail == "MINE" {
			if i < many-1 {
				t.Errorf("another user's write came after %d of the greedy one's", many-i)
			}
			return
		}
	}
	t.Error("another user's write is not in the log")
}

// The same applies to many keys of one user at many sites, because turns are per owner.
func TestManyKeysAreOneTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !w.db.Single() {
		t.Skip("PostgreSQL has a writer per connection; see TestTurnsBoundAShare")
	}
	greedy, first := w.user("a@example.test")
	_, other := w.user("b@example.test")
	theirs := w.site(other, "y")
	const many = 12
	keys, ids := make([]string, many), make([]string, many)
	for i := range many {
		keys[i], ids[i] = w.key(greedy, account.NewKey{}), w.site(first, fmt.Sprint("x", i))
	}
	held, let := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.db.Write(t.Context(), func(*db.Tx) error { close(held); <-let; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-held
	for i := range many {
		wg.Go(func() {
			if i%2 == 0 {
				w.api("PATCH", "/sites/"+ids[i], keys[i], m{"name": fmt.Sprint("n", i)})
			} else {
				w.api("POST", "/sites/"+ids[i]+"/hooks", keys[i], m{"name": "h"})
			}
		})
	}
	wait.Until(t, "all wait", func() bool { return w.db.Waiting() >= many })
	wg.Go(func() { w.api("POST", "/sites/"+theirs+"/env", other, m{"key": "MINE", "value": "x"}) })
	wait.Until(t, "the other waits too", func() bool { return w.db.Waiting() > many })
	close(let)
	wg.Wait()
	after := 0
	for _, e := range w.log() { // newest first
		if e.Detail == "MINE" {
			break
		}
		after++
	}
	if after < many-1 {
		t.Errorf("another user's write came after %d of the greedy one's", many-after)
	}
}

// Setting a thousand variables takes a few statements, because other writers wait for them.
func TestManyVariablesAreFewStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	before := w.statements.Load()
	vars := manyVars()
	a := w.api("POST", "/sites/"+id+"/env", key, vars)
	if a.status != 201 {
		t.Fatal(a)
	}
	if n := w.statements.Load() - before; n > 40 {
		t.Errorf("1,000 variables are %d statements", n)
	}
	// Replacing each variable takes no more statements: when one for both targets is split, when two are merged, or
	// when nothing changes.
	targets := func(target ...string) []m {
		out := make([]m, 500)
		for i := range out {
			out[i] = m{"key": vars[i]["key"], "value": "x", "target": target}
		}
		return out
	}
	for _, list := range [][]m{targets("production"), targets("production", "preview"), targets("production", "preview"), vars} {
		before := w.statements.Load()
		if a := w.api("POST", "/sites/"+id+"/env", key, list); a.status != 201 {
			t.Fatal(a)
		}
		if n := w.statements.Load() - before; n > 40 {
			t.Errorf("replacing %d variables takes %d statements", len(list), n)
		}
	}
	list := a.json(t)["data"].([]any)
	if len(list) != 1000 || list[999].(m)["value"] != vars[999]["value"] {
		t.Errorf("%d variables in the answer", len(list))
	}
	if got := w.must(200, "GET", "/sites/"+id+"/env", key, nil)["data"].([]any); len(got) != 1000 {
		t.Errorf("%d variables are set", len(got))
	}
}

// A large response isn't stored again where it repeats its request, and its replay is the same to the byte.
func TestLargeAnswersDoNotFillTheDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	vars := manyVars()
	first := w.api("POST", "/sites/"+id+"/env", key, vars, "Idempotency-Key: k")
	again := w.api("POST", "/sites/"+id+"/env", key, strings.ReplaceAll(mustJSON(t, vars), ",", " ,\n"), "Idempotency-Key: k")
	if first.status != 201 || again.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("%s then %s", first, again)
	}
	var size int
	if err := w.db.QueryRow(
		t.Context(),
		"SELECT SUM(length(answer)) FROM idempotent_answers",
	).Scan(&size); err != nil || size > 100_000 || size == 0 {
		t.Errorf("an answer of %d bytes takes %d, %v", len(first.body), size, err)
	}
}

// Bodies that every parser reads the same way are the same request for an Idempotency-Key.
func TestIdempotencyKeyComparesMeaning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	const h = "Idempotency-Key: k"
	first := w.api("POST", "/sites/"+id+"/env", key, `{"key":"A","value":"é & <b>","n":1.0,"secret":false}`, h)
	if !strings.Contains(first.body, "é & <b>") {
		t.Errorf("characters are escaped: %s", first)
	}
	again := w.api(
		"POST",
		"/sites/"+id+"/env",
		key,
		" { \"secret\" : false, \"n\": 1, \"value\":\"\\u00e9 \\u0026 \\u003cb>\",\n\"key\":\"A\" } ",
		h,
	)
	if first.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s then %s", first, again)
	}
	if a := w.api("POST", "/sites/"+id+"/env", key, `{"key":"A","value":"é & <b>","n":2,"secret":false}`, h); a.status != 409 {
		t.Errorf("another number: %s", a)
	}
}

// The number of sites in a request is limited, and each is looked up once, because the transaction blocks others.
func TestNamedSitesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	body := func(path string, sites []string) m {
		return m{
			"url":     "https://receiver.test" + path,
			"events":  []string{"site.updated"},
			"secret":  "s3cret-value-of-16+",
			"siteIds": sites,
		}
	}
	got := w.must(201, "POST", "/webhooks", key, body("/one", slices.Repeat([]string{id}, 20_000)))
	if named := got["siteIds"].([]any); len(named) != 1 {
		t.Errorf("named %d times", len(named))
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprintf("site_%026d", i)
	}
	for _, r := range [][2]string{{"POST", "/webhooks"}, {"POST", "/webhook-listeners"}, {"PATCH", "/webhooks/" + got["id"].(string)}} {
		b := body("/two", many)
		if r[0] == "PATCH" {
			b = m{"siteIds": many}
		} else if r[1] == "/webhook-listeners" {
			delete(b, "url")
		}
		if a := w.api(r[0], r[1], key, b); a.status != 400 || !strings.Contains(a.body, "Too many sites in siteIds") {
			t.Errorf("%s %s: %s", r[0], r[1], a)
		}
	}
}
