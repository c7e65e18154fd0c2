package dashboard

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/webhook"
	happened "slipway/internal/tenant/webhook/event"
)

// hooked creates a webhook of Ada's with one failed delivery per event.
func hooked(t *testing.T, w *world, events ...happened.Event) (hook webhook.Webhook, path string) {
	t.Helper()
	ada := w.users["ada@example.test"]
	hook, err := w.dash.Webhooks.Create(t.Context(), ada.Owner, webhook.NewWebhook{
		URL:    "https://hooks.example.com/in",
		Events: []string{"site.created", "site.deleted"},
	})
	must(t, err)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for _, e := range events {
			if err := w.dash.Webhooks.EmitTx(t.Context(), tx, ada.Owner, e); err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), `UPDATE webhook_deliveries SET state = 'failed', finished_at = $1`, db.Now())
		return err
	}))
	return hook, "/webhooks/" + string(hook.ID)
}

func TestWebhookAttempts(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	hook, path := hooked(t, w)
	b.get(path).want(t, 200, "Attempts over time in the last 7 days: no attempts")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		now := time.Now().Unix() / 3600
		for ago, n := range map[int64][2]int{0: {90, 6}, 30: {3, 1}, 20 * 24: {100, 0}, 40 * 24: {7, 7}} {
			if _, err := tx.Exec(
				t.Context(),
				`INSERT INTO webhook_hours (hook_id, hour, succeeded, failed) VALUES ($1, $2, $3, $4)`,
				hook.ID,
				now-ago,
				n[0],
				n[1],
			); err != nil {
				return err
			}
		}
		return nil
	}))
	b.get(path).want(t, 200, "in the last 7 days: 100 attempts, 93.0% succeeded", `class="s-ok"`, `class="s-server"`)
	b.get(path+"?span=24h").want(t, 200, "in the last 24 hours: 96 attempts, 93.8% succeeded")
	b.get(path+"?span=30d").want(t, 200, "in the last 30 days: 200 attempts, 96.5% succeeded")
	b.get(path+"?span=nonsense").want(t, 200, "in the last 7 days")
}

func TestWebhookFilter(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	_, path := hooked(
		t,
		w,
		happened.SiteCreated(happened.Site{ID: "site_1", Name: "one"}),
		happened.SiteDeleted(happened.Site{ID: "site_1", Name: "one"}),
	)
	for query, want := range map[string][2]int{
		"":                    {1, 1},
		"?state=failed":       {1, 1},
		"?state=succeeded":    {0, 0},
		"?event=site.created": {1, 0},
		"?event=ping":         {0, 0},
		"?since=1h&state=failed&event=site.deleted":    {0, 1},
		"?state=x&event=x&since=x&page=x&redelivery=x": {1, 1},
	} {
		p := b.get(path+query).want(t, 200)
		if got := [2]int{
			strings.Count(p.body, "</span><code>site.created</code>"),
			strings.Count(p.body, "</span><code>site.deleted</code>"),
		}; got != want {
			t.Errorf("%q lists %v, want %v", query, got, want)
		}
	}
	b.get(path+"?state=succeeded").want(t, 200, "No matching deliveries", `value="succeeded" selected`, "follow?state=succeeded")
}

func TestWebhookRedelivery(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	hook, path := hooked(t, w, happened.SiteCreated(happened.Site{ID: "site_1", Name: "one"}))
	one := linkOn(t, b.get(path), path+"/deliveries/")
	again := b.post(one+"/redeliver").to(t, path+"/deliveries/dlv_")
	if again == one {
		t.Error("the redelivery is no delivery of its own")
	}
	b.get(again).want(t, 200, "Redelivery of", strings.TrimPrefix(one, path+"/deliveries/"), "No attempts yet")
	w.user("eve@example.test", false)
	w.as("eve@example.test").post(one+"/redeliver").want(t, 404)

	to := b.post(path+"/redeliver", "since", "24h").to(t, path+"?redelivery=op_")
	b.get(to).want(t, 200, `data-test="redelivery"`, "Redelivering…")
	b.get(path).want(t, 200, "Redelivering…") // also for a direct request
	b.post(path+"/redeliver", "since", "24h").want(t, 409, "already running")
	id, _, _ := strings.Cut(strings.TrimPrefix(to, path+"?redelivery="), "#")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		ops := operation.New(operation.Config{DB: w.db})
		if err := ops.AdvanceTx(t.Context(), tx, operation.ID(id), .5, "", "500 deliveries queued"); err != nil {
			return err
		}
		return nil
	}))
	b.get(to).want(t, 200, "500 deliveries queued", `aria-valuenow="50"`)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		return operation.New(operation.Config{DB: w.db}).EndTx(t.Context(), tx, operation.ID(id), "1000 deliveries queued", "", nil)
	}))
	b.get(to).want(t, 200, "Redelivery finished: 1000 deliveries queued.")
	if p := b.get(path); strings.Contains(p.body, `data-test="redelivery"`) {
		t.Error("a finished redelivery is shown")
	}
	b.post(path+"/redeliver", "since", "nonsense").want(t, 422, "Missing since")

	// Enabling a webhook that the service disabled redelivers what it missed.
	b.post(path+"/switch", "to", "off").to(t, path)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE webhooks SET reason = 'failing' WHERE id = $1`, hook.ID)
		return err
	}))
	b.get(path).want(t, 200, "Disabled: all deliveries failed for 5 days", `value="5d" selected`)
	b.get("/webhooks").want(t, 200, "Disabled: all deliveries failed for 5 days")
	b.post(path+"/switch", "to", "on", "redeliver", "5d").to(t, path+"?redelivery=op_")
}

func TestWebhookRotation(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	hook, path := hooked(t, w)
	owner := w.users["ada@example.test"].Owner
	before, err := w.dash.Webhooks.Reveal(t.Context(), owner, hook.ID)
	must(t, err)
	b.post(path+"/rotate", "overlap", "3600").to(t, path)
	b.get(path).want(t, 200, `data-test="rotating"`, "both secrets sign until")
	b.get("/webhooks").want(t, 200, "both secrets sign until")
	if after, err := w.dash.Webhooks.Reveal(t.Context(), owner, hook.ID); err != nil || after == before {
		t.Errorf("the secret is the same: %v", err)
	}
	b.post(path+"/rotate", "overlap", "3600").want(t, 409, "The secret is being rotated")
	b.post(path+"/rotate", "overlap", "0", "secret", "one of their own").to(t, path)
	if p := b.get(path).want(
		t,
		200,
		"You provided the secret",
	); strings.Contains(p.body, "rotating") || strings.Contains(p.body, "one of their own") {
		t.Error("a rotation at once still has an overlap, or shows the secret")
	}
	b.post(path+"/rotate", "secret", strings.Repeat("x", 300)).want(t, 422, "Invalid webhook secret")
	b.post(path+"/rotate", "overlap", "9999999").want(t, 422, "overlapSeconds")
	w.user("eve@example.test", false)
	w.as("eve@example.test").post(path+"/rotate", "overlap", "0").want(t, 404)
}

// A webhook can be limited to sites, and its page warns when the endpoint doesn't respond.
func TestWebhookSitesAndWarnings(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	owner := w.users["ada@example.test"].Owner
	eve := w.user("eve@example.test", false)
	theirs := w.site(eve, "Eve's own")
	path := b.post(
		"/webhooks/new", "form-events", "1", "url", "https://hooks.example.com/some", "events", "site.deleted",
		"sites",
		string(s.ID),
	).to(t, "/webhooks/hook_")
	id := webhook.ID(strings.TrimPrefix(path, "/webhooks/"))
	got, err := w.dash.Webhooks.Get(t.Context(), owner, id)
	must(t, err)
	if len(got.SiteIDs) != 1 || got.SiteIDs[0] != string(s.ID) {
		t.Errorf("sites %v", got.SiteIDs)
	}
	b.get(path).want(t, 200, `value="`+string(s.ID)+`" checked`)
	b.post(path, "form-events", "1", "url", got.URL, "events", "site.deleted", "sites", string(theirs.ID)).want(t, 422, "Unknown site")
	b.post(
		"/webhooks/new", "form-events", "1", "url", "https://hooks.example.com/theirs", "events", "site.deleted",
		"sites",
		string(theirs.ID),
	).want(t, 422, "Unknown site")
	if p := b.get(path); strings.Contains(p.body, "s own<") {
		t.Error("another's site is listed")
	}
	b.post(path, "form-events", "1", "url", got.URL, "events", "site.deleted").to(t, path)
	if got, _ = w.dash.Webhooks.Get(t.Context(), owner, id); len(got.SiteIDs) != 0 {
		t.Errorf("sites %v, want all", got.SiteIDs)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE webhooks SET failing_since = $2, timeouts = 5 WHERE id = $1`, id, db.Now().Add(-time.Hour))
		return err
	}))
	b.get(path).want(t, 200, `data-test="failing"`, "The endpoint does not respond: one delivery a minute is attempted")
	b.get("/webhooks").want(t, 200, "The endpoint does not respond. All deliveries have failed since")
}
