package api_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

// working runs the jobs of backups.
func (w *world) working() {
	w.t.Helper()
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{backup.QueueName: 2, backup.VerifyQueue: 2},
		Poll:   20 * time.Millisecond,
		Drain:  time.Millisecond,
	})
	w.c.Backups.Work(jobs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); jobs.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// until polls path until done accepts the response, and returns it.
func (w *world) until(key, path string, done func(m) bool) m {
	w.t.Helper()
	var a m
	wait.Until(w.t, path+" is as wanted", func() bool {
		a = w.must(200, "GET", path, key, nil)
		return done(a)
	}, func() string { return fmt.Sprint(a) })
	return a
}

func TestBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.working()
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	w.must(201, "POST", "/sites/"+id+"/env", key, m{"key": "TOKEN", "value": "s3cr3t-value", "secret": true})
	b := w.must(201, "POST", "/sites/"+id+"/backups", key, m{"note": "by hand"})
	if b["status"] != "pending" || b["type"] != "manual" || b["note"] != "by hand" || b["sizeBytes"] != nil {
		t.Errorf("%v", b)
	}
	path := "/backups/" + b["id"].(string)
	b = w.until(key, path, func(b m) bool { return b["verifiedAt"] != nil })
	if b["status"] != "completed" || b["checksum"] == nil || b["storedBytes"] == nil || b["error"] != nil {
		t.Errorf("%v", b)
	}
	if list := w.must(200, "GET", "/sites/"+id+"/backups?type=manual", key, nil)["data"].([]any); len(list) != 1 {
		t.Errorf("%v", list)
	}
	if list := w.must(200, "GET", "/backups?siteId="+id+"&type=scheduled", key, nil)["data"].([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
	w.must(400, "GET", "/backups?type=other", key, nil)
	w.must(400, "POST", "/sites/"+id+"/backups", key, m{"includes": []string{"mail"}})
	w.must(400, "POST", "/sites/"+id+"/backups", key, m{"note": strings.Repeat("x", 501)})

	// The archive includes secrets only for callers that may read them.
	names := func(query, key string) (list []string, env string) {
		req, _ := http.NewRequest("GET", w.srv.URL+"/api/v1"+path+"/download"+query, nil)
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Content-Disposition"), `filename=x-`) {
			t.Fatal(resp.StatusCode, resp.Header, err)
		}
		z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			list = append(list, f.Name)
			if f.Name == "env.json" {
				r, _ := f.Open()
				text, _ := io.ReadAll(r)
				env = string(text)
			}
		}
		return list, env
	}
	list, env := names("?format=zip", key)
	if !slices.Equal(list, []string{
		"site.json",
		"env.json",
		"manifest.json",
	}) || strings.Contains(env, "s3cr3t") || !strings.Contains(env, "TOKEN") {
		t.Errorf("%q, %s", list, env)
	}
	if _, env := names("?format=zip&secrets=true", key); !strings.Contains(env, "s3cr3t-value") {
		t.Errorf("%s", env)
	}
	w.must(201, "POST", "/sites/"+id+"/env", key, m{"key": "PLAIN", "value": "pl41n-value"})
	again := w.must(201, "POST", "/sites/"+id+"/backups", key, nil)
	first := path
	path = "/backups/" + again["id"].(string)
	w.until(key, path, func(b m) bool { return b["verifiedAt"] != nil })
	for scopes, want := range map[string]bool{"backups:read": false, "backups:write": false, "backups:read env:read": true, "backups:read env:write": true} {
		other := w.must(201, "POST", "/keys", key, m{"name": "x", "scopes": strings.Fields(scopes)})["key"].(string)
		if _, env := names("?format=zip", other); strings.Contains(env, "pl41n") != want || strings.Contains(env, "s3cr3t") || !strings.Contains(env, "PLAIN") {
			t.Errorf("%s: %s", scopes, env)
		}
	}
	path = first
	reader := w.must(201, "POST", "/keys", key, m{"name": "reader", "scopes": []string{"backups:read"}})["key"].(string)
	names("?format=zip", reader)
	w.must(403, "GET", path+"/download?secrets=true", reader, nil)
	w.must(403, "POST", path+"/restore", reader, nil)
	w.must(400, "GET", path+"/download?format=rar", key, nil)

	// Verify and restore are operations. A restore first backs up the current content.
	op := w.must(202, "POST", path+"/verify", key, nil)
	ended := func(o m) bool { return o["completedAt"] != nil }
	if o := w.until(key, "/operations/"+op["id"].(string), ended); o["status"] != "success" || o["kind"] != "backup.verify" {
		t.Errorf("%v", o)
	}
	w.must(201, "POST", "/sites/"+id+"/env", key, m{"key": "TOKEN", "value": "changed", "secret": true})
	op = w.must(202, "POST", path+"/restore", key, m{"includes": []string{"config"}})
	o := w.until(key, "/operations/"+op["id"].(string), ended)
	if o["status"] != "success" || o["result"].(m)["backupId"] == nil {
		t.Errorf("%v", o)
	}
	if _, env := names("?format=zip&secrets=true", key); !strings.Contains(env, "s3cr3t-value") {
		t.Errorf("%s", env)
	}
	w.must(400, "POST", path+"/restore", key, m{"paths": []string{"../etc"}})
	w.must(400, "POST", path+"/restore", key, m{"newSite": m{"name": " "}})
	w.must(404, "POST", path+"/restore", key, m{"siteId": "site_nobody"})

	// A key restricted to one site can't restore to another.
	other := w.site(key, "other")
	one := w.must(201, "POST", "/keys", key, m{"name": "one", "scopes": []string{"*"}, "sites": []string{id}})["key"].(string)
	w.must(403, "POST", path+"/restore", one, m{"siteId": other})
	w.must(403, "POST", path+"/restore", one, m{"newSite": m{"name": "more"}})

	w.must(200, "DELETE", path, key, nil)
	w.must(404, "GET", path, key, nil)
}

func TestBackupSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	if s := w.must(200, "GET", "/sites/"+id, key, nil)["backups"].(m); s["every"] != "off" {
		t.Errorf("%v", s)
	}
	s := w.must(200, "PATCH", "/sites/"+id, key, m{"backups": m{"every": "daily", "keep": m{"weekly": 8}}})["backups"].(m)
	if s["every"] != "daily" || s["at"] != "03:00" || s["keep"].(m)["daily"] != 7. || s["keep"].(m)["weekly"] != 8. {
		t.Errorf("%v", s)
	}
	for _, bad := range []any{m{"every": "yearly"}, m{"at": "24:00"}, m{"keep": m{"daily": -1}}, nil} {
		w.must(400, "PATCH", "/sites/"+id, key, m{"backups": bad})
	}
}

// With backup=true a site is deleted once its backup is complete, and the backup is kept.
func TestDeleteWithBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.working()
	_, key := w.user("a@example.test")
	id := w.site(key, "x")
	w.must(400, "DELETE", "/sites/"+id+"?backup=please", key, nil)
	a := w.must(202, "DELETE", "/sites/"+id+"?backup=true", key, nil)
	o := w.until(key, "/operations/"+a["operation"].(m)["id"].(string), func(o m) bool { return o["completedAt"] != nil })
	if o["status"] != "success" || o["kind"] != "site.delete" {
		t.Errorf("%v", o)
	}
	w.must(404, "GET", "/sites/"+id, key, nil)
	list := w.must(200, "GET", "/backups?siteId="+id, key, nil)["data"].([]any)
	if len(list) != 1 || list[0].(m)["type"] != "before_delete" || list[0].(m)["expiresAt"] == nil {
		t.Errorf("%v", list)
	}
}

// Only a team's developers can read the contents of backups and databases. Viewers and contributors can only list
// backups.
func TestContentsAreForDevelopers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, ada := w.user("ada@example.test")
	team, key := w.teamOf(ada, "Acme")
	site := w.site(key, "shop")
	backup := w.must(201, "POST", "/sites/"+site+"/backups", key, nil)["id"].(string)
	database := w.must(201, "POST", "/sites/"+site+"/databases", key, m{"engine": "mariadb"})["id"].(string)
	for name, c := range map[string]struct {
		as   m
		want int // for an unfinished backup and a database that doesn't exist yet
	}{
		"viewer": {m{"role": "viewer"}, 403}, "contributor": {m{"role": "contributor"}, 403}, "developer": {m{"role": "developer"}, 409},
		"guest-viewer":      {m{"sites": []m{{"siteId": site, "role": "viewer"}}}, 403},
		"guest-contributor": {m{"sites": []m{{"siteId": site, "role": "contributor"}}}, 403},
		"guest-developer":   {m{"sites": []m{{"siteId": site, "role": "developer"}}}, 409},
	} {
		u, personal := w.user(name + "@example.test")
		w.join(key, team, name+"@example.test", personal, c.as)
		member := w.keyAs(w.acting(u, team), account.NewKey{Scopes: account.Scopes{account.BackupsRead}, Sites: []id.Site{id.Site(site)}})
		w.must(200, "GET", "/backups/"+backup, member, nil)
		for _, path := range []string{"/backups/" + backup + "/download", "/databases/" + database + "/dump"} {
			if a := w.api("GET", path, member, nil); a.status != c.want {
				t.Errorf("%s: %s: %s, want %d", name, path, a, c.want)
			}
		}
	}
}
