package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/api"
)

// say writes lines to a deployment's log as its worker does.
func (w *world) say(dep string, n int, lines ...string) {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		for i, l := range lines {
			if _, err := tx.Exec(
				w.t.Context(),
				`INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES ($1, $2, $3, 'info', 'build', $4, '')`,
				dep,
				n+i,
				db.Now(),
				l,
			); err != nil {
				return err
			}
		}
		tx.Notify("deployment/" + dep)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// nextEvent reads a stream's next event: its ID, name and data.
func nextEvent(t *testing.T, s *bufio.Scanner) (id, name, text string) {
	t.Helper()
	for s.Scan() {
		field, value, _ := strings.Cut(s.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			text = value
		case "":
			if text != "" {
				return id, name, text
			}
		}
	}
	t.Fatal("the stream ended", s.Err())
	return
}

func (w *world) open(dep, key string, headers ...string) (*http.Response, *bufio.Scanner) {
	w.t.Helper()
	return w.openPath("/deployments/"+dep+"/logs", key, headers...)
}

func (w *world) openPath(path, key string, headers ...string) (*http.Response, *bufio.Scanner) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", w.srv.URL+"/api/v1"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp, bufio.NewScanner(resp.Body)
}

func TestFollowLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	dep := w.must(200, "POST", "/sites/"+w.site(key, "x")+"/deploy", key, nil)["deploymentId"].(string)
	w.say(dep, 1, "one", "two\nlines")
	resp, s := w.open(dep, key)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-RateLimit-Limit") == "" {
		t.Fatal(resp.StatusCode, resp.Header)
	}
	for i, want := range []string{"one", "two\nlines", "three"} {
		if i == 2 {
			w.say(dep, 3, "three")
		}
		id, _, text := nextEvent(t, s)
		var line struct {
			N                         int
			Timestamp, Level, Message string
		}
		if err := json.Unmarshal(
			[]byte(text),
			&line,
		); err != nil || line.Message != want || id != fmt.Sprint(i+1) || line.N != i+1 || line.Level != "info" {
			t.Fatalf("%q %q, %v; want %q", id, text, err, want)
		}
	}
	_, resumed := w.open(dep, key, "Last-Event-ID: 2")
	if id, _, _ := nextEvent(t, resumed); id != "3" {
		t.Fatalf("resumed at %s, want 3", id)
	}
	w.must(200, "POST", "/deployments/"+dep+"/cancel", key, nil)
	for {
		_, name, text := nextEvent(t, s)
		if name == "end" {
			if text != `{"status":"canceled"}` {
				t.Fatalf("ended with %s", text)
			}
			break
		}
	}
	if s.Scan() && s.Text() != "" || s.Scan() {
		t.Error("the stream continues after its end")
	}
}

func TestStreamsEndAndAreBounded(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	ready.Store(true)
	w := newWorld(t, func(c *api.Config) { c.Ready = &ready })
	_, key := w.user("a@example.test")
	dep := w.must(200, "POST", "/sites/"+w.site(key, "x")+"/deploy", key, nil)["deploymentId"].(string)
	w.say(dep, 1, "one")
	var open []*bufio.Scanner
	for range 20 {
		_, s := w.open(dep, key)
		nextEvent(t, s)
		open = append(open, s)
	}
	resp, _ := w.open(dep, key)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the 21st stream: %d", resp.StatusCode)
	}
	ready.Store(false)
	w.say(dep, 2, "two") // wakes the streams
	deadline := time.AfterFunc(10*time.Second, func() { w.srv.CloseClientConnections() })
	defer deadline.Stop()
	for _, s := range open {
		for s.Scan() {
		}
		if s.Err() != nil {
			t.Fatal("a stream did not end when the service stopped: ", s.Err())
		}
	}
}

func TestLogPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	dep := w.must(200, "POST", "/sites/"+w.site(key, "x")+"/deploy", key, nil)["deploymentId"].(string)
	const all = 10_500
	for n := 1; n <= all; n += 1500 {
		lines := make([]string, 1500)
		w.say(dep, n, lines...)
	}
	after, seen := "", 0
	for range 3 {
		a := w.must(200, "GET", "/deployments/"+strings.Replace(dep, "dep_", "dpl_", 1)+"/logs"+after, key, nil)
		seen += len(a["logs"].([]any))
		if a["next"] == nil {
			break
		}
		after = fmt.Sprintf("?after=%.0f", a["next"])
	}
	if seen != all {
		t.Errorf("%d lines, want %d", seen, all)
	}
	for _, q := range []string{"after=-1", "after=x", "after=1.5"} {
		if a := w.api("GET", "/deployments/"+dep+"/logs?"+q, key, nil); a.status != 400 {
			t.Errorf("%s: %s", q, a)
		}
	}
	resp, _ := w.open(dep, key, "Last-Event-ID: x")
	if resp.StatusCode != 400 {
		t.Errorf("an odd Last-Event-ID: %d", resp.StatusCode)
	}
}

// A stream ends soon after its key is revoked or expires or its user is suspended. Streams of other keys continue.
func TestStreamsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	admin, err := w.c.Accounts.CreateUser(t.Context(), "op@example.test", "", true)
	if err != nil {
		t.Fatal(err)
	}
	dep := w.must(200, "POST", "/sites/"+w.site(key, "x")+"/deploy", key, nil)["deploymentId"].(string)
	w.say(dep, 1, "one")
	made := w.must(201, "POST", "/keys", key, m{"name": "short", "scopes": []string{"deployments:read"}})
	revoked, expiring := made["key"].(string), w.key(u, account.NewKey{Expires: db.Now().Add(time.Hour)})
	streams := map[string]*bufio.Scanner{}
	for name, k := range map[string]string{"revoked": revoked, "expired": expiring, "suspended": key} {
		_, streams[name] = w.open(dep, k)
		nextEvent(t, streams[name])
	}
	ended := func(name string) {
		t.Helper()
		done := make(chan bool)
		go func() {
			for streams[name].Scan() {
			}
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("the stream of a key that was %s doesn't end", name)
		}
	}
	w.must(200, "DELETE", "/keys/"+made["id"].(string), key, nil)
	ended("revoked")
	if err := w.db.Admin(t.Context(), fmt.Sprintf("UPDATE api_keys SET expires_at = %d WHERE expires_at <> 0", db.Now())); err != nil {
		t.Fatal(err)
	}
	ended("expired")
	w.say(dep, 2, "two")
	if id, _, text := nextEvent(t, streams["suspended"]); id != "2" {
		t.Errorf("the stream of another key: %s %s", id, text)
	}
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.c.Accounts.SuspendTx(t.Context(), tx, audit.Actor{User: admin.ID}, u, "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ended("suspended")
}

// Every stream of the API ends within seconds of its key, its user or its subject. A stream of another key continues.
func TestEveryStreamEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, u account.UserID, keyID string, x things, admin string){
		"key revoked": func(w *world, _ account.UserID, keyID string, _ things, admin string) {
			w.must(200, "DELETE", "/keys/"+keyID, admin, nil)
		},
		"key expired": func(w *world, _ account.UserID, keyID string, _ things, _ string) {
			if err := w.db.Admin(
				w.t.Context(),
				fmt.Sprintf("UPDATE api_keys SET expires_at = %d WHERE id = '%s'", db.Now(), keyID),
			); err != nil {
				w.t.Fatal(err)
			}
		},
		"user suspended": func(w *world, u account.UserID, _ string, _ things, _ string) {
			op, err := w.c.Accounts.CreateUser(w.t.Context(), "op@example.test", "", true)
			if err == nil {
				err = w.db.Write(w.t.Context(), func(tx *db.Tx) error {
					_, err := w.c.Accounts.SuspendTx(w.t.Context(), tx, audit.Actor{User: op.ID}, u, "")
					return err
				})
			}
			if err != nil {
				w.t.Fatal(err)
			}
		},
		"gone": func(w *world, _ account.UserID, _ string, x things, admin string) {
			w.must(200, "DELETE", "/sites/"+x["site"], admin, nil)
			w.must(200, "DELETE", "/webhook-listeners/"+x["listener"], admin, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			u, admin := w.user("a@example.test")
			x := things{"site": w.site(admin, "x")}
			x["deployment"] = w.must(200, "POST", "/sites/"+x["site"]+"/deploy", admin, nil)["deploymentId"].(string)
			x["listener"] = w.must(201, "POST", "/webhook-listeners", admin, m{
				"secret": "a secret of twenty-four",
				"events": []string{"site.created"},
			})["id"].(string)
			made := w.must(201, "POST", "/keys", admin, m{"name": "short", "scopes": []string{"*"}})
			paths := []string{
				"/sites/" + x["site"] + "/logs",
				"/deployments/" + x["deployment"] + "/logs",
				"/webhook-listeners/" + x["listener"] + "/deliveries",
			}
			if n := strings.Count(w.send("GET", "/api/v1/openapi.json", "", nil).body, `"text/event-stream"`); n != len(paths) {
				t.Fatalf("%d operations stream, this test knows %d", n, len(paths))
			}
			for _, path := range paths {
				resp, s := w.openPath(path, made["key"].(string))
				if resp.StatusCode != 200 || !s.Scan() || !strings.HasPrefix(s.Text(), "retry: ") {
					t.Fatalf("%s: %s %q", path, resp.Status, s.Text())
				}
				over := make(chan bool)
				go func() {
					for s.Scan() {
					}
					close(over)
				}()
				defer func() {
					t.Helper()
					select {
					case <-over:
					case <-time.After(time.Minute):
						t.Errorf("%s doesn't end", path)
					}
				}()
			}
			end(w, u, made["id"].(string), x, admin)
		})
	}
}
