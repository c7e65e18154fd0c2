package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // driver "sqlite"

	"slipway/e2e/world"
)

// crashWords is part of the error of a deployment during which the program was killed too often.
const crashWords = "stopped unexpectedly"

// redeploy deploys again if the error asks the owner to.
func (k *killing) redeploy(t *testing.T, l *ledger) {
	for _, s := range l.sites {
		var got struct{ Status, StatusReason string }
		if s.gone || k.world.Call(
			t.Context(),
			k.key,
			"GET",
			"/sites/"+s.id,
			nil,
			&got,
		) != nil || got.Status != "error" || !strings.Contains(got.StatusReason, crashWords) {
			continue
		}
		var d crashDeployment
		var asked struct{ DeploymentID string }
		if err := k.world.Call(t.Context(), k.key, "POST", "/sites/"+s.id+"/deploy", nil, &asked); err != nil {
			t.Errorf("redeploy %s: %v", s.id, err)
			continue
		}
		ctx, cancel := deadline()
		err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			err := k.world.Call(ctx, k.key, "GET", "/deployments/"+asked.DeploymentID, nil, &d)
			return err == nil && d.Status == "success", fmt.Errorf("%+v: %w", d, err)
		})
		cancel()
		if err != nil {
			t.Errorf("redeploy %s: %v", s.id, err)
		}
	}
}

// verify compares the installation with the ledger after all work is done.
func (k *killing) verify(t *testing.T) {
	l := &k.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	k.verifyDeployments(t, l)
	k.redeploy(t, l)
	k.verifySites(t, l)
	k.verifyEvents(t, l)
	ctx, cancel := deadline()
	defer cancel()
	if err := k.world.Stop(ctx); err != nil {
		t.Errorf("the last life doesn't end well: %v", err)
	}
	k.verifyDatabase(t)
	k.verifyProcesses(t)
	t.Logf("%d kills, %d requests acknowledged, %d without an answer, %d sites, %d deployments, %d pushes, %d deliveries",
		*kills, l.acks, l.unknown, len(l.sites), len(l.deploys), l.pushes, len(k.world.Hooks.All()))
}

type crashDeployment struct{ ID, SiteID, Status, Trigger, Error string }

// I2: every deployment, also an unacknowledged one, ends within 60 s of the last restart. I1: acknowledged deployments
// exist as long as their site.
func (k *killing) verifyDeployments(t *testing.T, l *ledger) {
	since := time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), world.Patience(60*time.Second), fmt.Errorf("I2: deployments hang"))
	defer cancel()
	ended := func(s string) bool { return s == "success" || s == "failed" || s == "canceled" }
	for id, s := range l.deploys {
		if s.leaving {
			continue
		}
		var d crashDeployment
		err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			err := k.world.Call(ctx, k.key, "GET", "/deployments/"+id, nil, &d)
			return err == nil && ended(d.Status), err
		})
		if err != nil {
			t.Errorf("deployment %s of %s is %q: %v", id, s.id, d.Status, err)
			continue
		}
		// A later call may supersede a hook's deployment. A deployment during which the program was killed twice has
		// crashWords in its error.
		if d.Status == "failed" && !strings.Contains(d.Error, crashWords) || d.SiteID != s.id {
			t.Errorf("I1: deployment %s of %s ended as %+v", id, s.id, d)
		}
	}
	for _, s := range l.sites {
		err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			var list struct{ Data []crashDeployment }
			a, err := k.world.Do(ctx, world.Request{Method: "GET", Path: "/sites/" + s.id + "/deployments?limit=100", Key: k.key})
			if err == nil && a.Status == 404 && s.leaving { // otherwise the deletion never arrived, and the site remains
				return true, nil
			}
			if err = errors.Join(err, a.Err()); err == nil {
				err = a.JSON(&list)
			}
			if err != nil {
				return false, err
			}
			return !slices.ContainsFunc(list.Data, func(d crashDeployment) bool { return !ended(d.Status) }), fmt.Errorf("%+v", list.Data)
		})
		if err != nil {
			t.Errorf("deployments of %s: %v", s.id, err)
		}
	}
	t.Logf("all deployments had ended %s after the clients", time.Since(since).Round(time.Millisecond))
}

// I1: acknowledged sites exist, in the last acknowledged state or a later one. I5: no idempotency key and no name
// created two sites.
func (k *killing) verifySites(t *testing.T, l *ledger) {
	ctx := t.Context()
	settled, cancel := context.WithTimeoutCause(ctx, world.Patience(60*time.Second), fmt.Errorf("it hangs"))
	defer cancel()
	for _, s := range l.sites {
		var a world.Answer
		var got struct{ Name, Status, StatusReason string }
		// After the first deployment of a site has failed, a later push may still make the site active.
		err := world.Until(settled, 50*time.Millisecond, func() (_ bool, err error) {
			if a, err = k.world.Do(ctx, world.Request{Method: "GET", Path: "/sites/" + s.id, Key: k.key}); err != nil {
				return false, err
			}
			moving := a.Err() == nil && a.JSON(&got) == nil && (got.Status == "pending" || got.Status == "provisioning")
			return !moving, fmt.Errorf("it is %s", got.Status)
		})
		switch {
		case err != nil:
			t.Errorf("I1: site %s: %v", s.id, err)
		case s.leaving && a.Status == 404:
		case s.gone:
			t.Errorf("I1: site %s was deleted, and answers %d", s.id, a.Status)
		case a.Err() != nil || a.JSON(&got) != nil:
			t.Errorf("I1: site %s was acknowledged: %v", s.id, a.Err())
		case got.Name != s.name || got.Status != "active":
			all, err := k.world.Do(ctx, world.Request{Method: "GET", Path: "/sites/" + s.id + "/deployments", Key: k.key})
			t.Errorf(
				"I1: site %s %q is %q, %s (%s) with the deployments %s, %v", s.id, s.name, got.Name, got.Status,
				got.StatusReason, all.Body, err,
			)
		default:
			k.verifyEnv(t, s)
			page, err := k.world.Site(ctx, k.browser, world.Request{Method: "GET", URL: s.url + "/"})
			if err != nil || !strings.Contains(string(page.Body), "<h1>"+s.repository+"</h1>") {
				t.Errorf("I8: %s serves %v %.200s", s.url, err, page.Body)
			}
		}
	}
	names := map[string]int{}
	for page := 1; ; page++ {
		var list struct{ Data []struct{ Name string } }
		if err := k.world.Call(ctx, k.key, "GET", fmt.Sprintf("/sites?limit=100&page=%d", page), nil, &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Data {
			names[s.Name]++
		}
		if len(list.Data) == 0 {
			break
		}
	}
	for name, n := range names {
		if n != 1 {
			t.Errorf("I5: %d sites are called %q", n, name)
		}
	}
	for key, ids := range l.keys {
		if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 1 {
			t.Errorf("I5: idempotency key %s made %v", key, ids)
		}
	}
	var hooks struct{ Data []struct{ ID string } }
	if err := k.world.Call(ctx, k.key, "GET", "/webhooks", nil, &hooks); err != nil {
		t.Fatal(err)
	}
	for id := range l.webhooks {
		if !slices.ContainsFunc(hooks.Data, func(h struct{ ID string }) bool { return h.ID == id }) {
			t.Errorf("I1: webhook %s is not there", id)
		}
	}
}

func (k *killing) verifyEnv(t *testing.T, s *crashSite) {
	var list struct{ Data []struct{ Key, Value string } }
	if err := k.world.Call(t.Context(), k.key, "GET", "/sites/"+s.id+"/env", nil, &list); err != nil {
		t.Errorf("I1: env of %s: %v", s.id, err)
		return
	}
	have := map[string]string{}
	for _, v := range list.Data {
		have[v.Key] = v.Value
	}
	for key, may := range s.env {
		if !slices.Contains(may, have[key]) {
			t.Errorf("I1: %s of %s is %q, may be %q", key, s.id, have[key], may)
		}
	}
}

// I3: each event of an acknowledged change is delivered to each endpoint that subscribed to it. I4: an event is
// delivered twice only because of a kill, and then with the same bytes.
func (k *killing) verifyEvents(t *testing.T, l *ledger) {
	expected := slices.Clone(l.heard)
	for id, s := range l.deploys {
		if s.leaving {
			continue
		}
		var d crashDeployment
		if err := k.world.Call(t.Context(), k.key, "GET", "/deployments/"+id, nil, &d); err != nil {
			continue // checked already
		}
		if d.Status == "success" {
			expected = append(expected, expectation{
				crashEvents,
				"deployment.started",
				id,
			}, expectation{crashEvents, "deployment.completed", id})
		} else {
			expected = append(expected, expectation{crashEvents, "deployment.failed", id})
		}
	}
	for _, e := range slices.Clone(expected) {
		if e.path == crashEvents && slices.Contains(crashNames, e.event) {
			for n := range crashEndpoints {
				expected = append(expected, expectation{fmt.Sprintf("/each/%d", n), e.event, e.id})
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), world.Patience(60*time.Second), fmt.Errorf("the minute for deliveries is over"))
	defer cancel()
	have, seen := map[expectation]bool{}, 0
	missing := func() (out []expectation) {
		all := k.world.Hooks.All()
		for _, d := range all[seen:] {
			have[expectation{d.Path, d.Event, subject(d)}] = true
		}
		seen = len(all)
		for _, e := range expected {
			if !have[e] {
				out = append(out, e)
			}
		}
		return out
	}
	if err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) { return len(missing()) == 0, nil }); err != nil {
		for i, e := range missing() {
			if i == 10 {
				t.Errorf("I3: and %d more", len(missing())-10)
				break
			}
			t.Errorf("I3: %s of %s never reached %s", e.event, e.id, e.path)
		}
	}

	first := map[string]world.Delivery{} // endpoint and webhook-id → first delivery
	event := map[string][]byte{}         // webhook-id → body, which is the same for all endpoints
	extra := map[string]int{}
	ids := map[expectation]map[string]bool{}
	for _, d := range k.world.Hooks.All() {
		id := d.Header.Get("Webhook-Id")
		if d.Header.Get("X-Service-Signature") != world.Signature(crashSecret, d.Body) {
			t.Errorf("I4: %s of %s is signed wrongly", id, d.Event)
		}
		e := expectation{d.Path, d.Event, subject(d)}
		if ids[e] == nil {
			ids[e] = map[string]bool{}
		}
		ids[e][id] = true
		if event[id] == nil {
			event[id] = d.Body
		} else if !bytes.Equal(event[id], d.Body) {
			t.Errorf("I4: %s came as %s and as %s", id, event[id], d.Body)
		}
		if _, again := first[d.Path+id]; !again {
			first[d.Path+id] = d
		} else {
			extra[d.Path]++
		}
	}
	for e, found := range ids {
		if len(found) > 1 {
			t.Errorf("I4: %s of %s was told to %s under %d ids", e.event, e.id, e.path, len(found))
		}
	}
	const inFlight = 4 // per endpoint
	total := 0
	for path, n := range extra {
		total += n
		if n > inFlight*k.killed {
			t.Errorf("I4: %d duplicates at %s after %d kills", n, path, k.killed)
		}
	}
	t.Logf(
		"%d duplicates in %d deliveries to %d endpoints, %d expected; %d kills",
		total,
		len(k.world.Hooks.All()),
		crashEndpoints+1,
		len(expected),
		k.killed,
	)
}

// subject returns the ID of an event's deployment, or else of its site.
func subject(d world.Delivery) string {
	var data struct{ Site, Deployment struct{ ID string } }
	json.Unmarshal(d.Data, &data)
	if strings.HasPrefix(d.Event, "deployment.") {
		return data.Deployment.ID
	}
	return data.Site.ID
}

// I6: SQLite's integrity and foreign key checks pass.
func (k *killing) verifyDatabase(t *testing.T) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.Join(k.world.Data, "slipway.db")}).EscapedPath(), RawQuery: "mode=ro"}
	d, err := sql.Open("sqlite", file.String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var verdict string
	if err := d.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("I6: integrity_check: %v %s", err, verdict)
	}
	rows, err := d.Query("PRAGMA foreign_key_check")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if rows.Next() {
		t.Error("I6: a foreign key has no row")
	}
	if err := rows.Err(); err != nil {
		t.Errorf("I6: %v", err)
	}
}

// I7: no process still uses the data folder.
func (k *killing) verifyProcesses(t *testing.T) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(k.world.Data)) {
			t.Errorf("I7: still running: %s", bytes.ReplaceAll(text, []byte{0}, []byte(" ")))
		}
	}
}
