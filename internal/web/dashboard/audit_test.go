package dashboard

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/audit"
	accountpages "slipway/internal/web/dashboard/account"
)

// did writes an audit entry as the REST API does.
func (w *world) did(by audit.Actor, d audit.Event) {
	w.t.Helper()
	by.Addr = netip.MustParseAddr("203.0.113.9")
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error { return w.dash.Accounts.AuditTx(w.t.Context(), tx, by, d) }))
}

// Actions of API keys look like actions in the dashboard, name the key, and can be filtered by key, user and action.
func TestAuditNarrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	w.user("root@example.test", true)
	ci := audit.Actor{User: ada.ID, Key: "key_ci", Via: "CI <b> (slw_abcdef…)"}
	w.did(ci, audit.Event{Action: "deployment.triggered", Subject: "dep_by_ci"})
	w.did(audit.Actor{
		User: ada.ID,
		Key:  "key_other",
		Via:  "Other (slw_zzzzzz…)",
	}, audit.Event{Action: "env.set", Subject: "site_1", Detail: "TOKEN"})
	w.did(audit.Actor{
		User: ada.ID,
		Via:  "deploy hook Nightly",
	}, audit.Event{Action: "deployment.triggered", Subject: "dep_by_hook"})
	w.did(audit.Actor{
		User: eve.ID,
		Key:  "key_eve",
		Via:  "Eve's (slw_eeeeee…)",
	}, audit.Event{Action: "site.created", Subject: "site_eve", Detail: "Eve's site"})
	w.did(audit.Actor{Via: "the command line"}, audit.Event{Action: "user.suspended", Subject: string(eve.ID), About: eve.ID})
	b, root := w.as("ada@example.test"), w.as("root@example.test")
	b.get("/account/audit").want(
		t, 200, "key <a class=\"quiet\" href=\"/account/audit?key=key_ci\">CI &lt;b&gt; (slw_abcdef…)</a>",
		"deploy hook Nightly", "dep_by_hook", "TOKEN", "203.0.113.9",
	)
	for path, want := range map[string][2]string{ // shown text, hidden text
		"/account/audit?key=key_ci":                                 {"dep_by_ci", "dep_by_hook"},
		"/account/audit?key=key_ci&what=deployment":                 {"dep_by_ci", "TOKEN"},
		"/account/audit?what=env.set":                               {"TOKEN", "dep_by_ci"},
		"/account/audit?key=key_eve":                                {"No events", "Eve&#39;s site"},
		"/account/audit?user=" + string(eve.ID):                     {"dep_by_ci", "Eve&#39;s site"},
		"/account/audit?key=%00%ff":                                 {"No events", "dep_by_ci"},
		"/operator/audit?user=" + string(eve.ID):                    {"Eve&#39;s site", "dep_by_ci"},
		"/operator/audit?what=user.suspended":                       {"the command line", "dep_by_ci"},
		"/operator/audit?user=" + string(ada.ID) + "&key=key_other": {"TOKEN", "dep_by_ci"},
		"/operator/audit?user=usr_nobody":                           {"No events", "dep_by_ci"},
	} {
		who := b
		if strings.HasPrefix(path, "/operator") {
			who = root
		}
		if p := who.get(path).want(t, 200, want[0]); strings.Contains(p.body, want[1]) {
			t.Errorf("%s holds %q", path, want[1])
		}
	}
	p := root.get("/operator/audit?key=key_ci&user="+string(ada.ID)).want(
		t, 200, `data-test="narrowed"`, "ada@example.test", `href="/operator/audit?key=key_ci"`,
		`href="/operator/audit?user=`+string(ada.ID)+`"`,
	)
	if !strings.Contains(p.body, "format=csv&amp;key=key_ci&amp;user="+string(ada.ID)) {
		t.Error("the download ignores the page's filter")
	}
}

// A download holds every entry that matches the filter, no other user's, and nothing that a spreadsheet would execute.
func TestAuditDownload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	b := w.as("ada@example.test")
	const lines = 2*accountpages.AuditRead + 7
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range lines {
			if err := w.dash.Accounts.AuditTx(t.Context(), tx, audit.Actor{
				User: ada.ID,
				Key:  "key_ci",
				Via:  `=cmd|' /C calc'!A0`,
			}, audit.Event{Action: "env.set", Subject: fmt.Sprint("site_", i), Detail: "a,\"b\"\nc"}); err != nil {
				return err
			}
		}
		return w.dash.Accounts.AuditTx(t.Context(), tx, audit.Actor{
			User: eve.ID,
			Key:  "key_ci",
		}, audit.Event{Action: "env.set", Subject: "site_eve"})
	}))
	p := b.get("/account/audit/download?format=csv&what=env&key=key_ci").want(t, 200)
	rows, err := csv.NewReader(strings.NewReader(p.body)).ReadAll()
	must(t, err)
	if len(rows) != lines+1 || rows[0][0] != "time" || rows[1][4] != fmt.Sprint(
		"site_",
		lines-1,
	) || rows[lines][4] != "site_0" || rows[1][5] != "a,\"b\"\nc" {
		t.Fatalf("%d rows, the first %q", len(rows), rows[:2])
	}
	if rows[1][9] != `'=cmd|' /C calc'!A0` {
		t.Errorf("a formula: %q", rows[1][9])
	}
	if !strings.Contains(p.header.Get("Content-Disposition"), "slipway-audit.csv") || strings.Contains(p.body, "site_eve") {
		t.Error("wrong headers, or another user's entries")
	}
	var list []map[string]string
	must(t, json.Unmarshal([]byte(b.get("/account/audit/download?format=json&what=env").want(t, 200).body), &list))
	if len(list) != lines || list[0]["with"] != `=cmd|' /C calc'!A0` || list[0]["email"] != "ada@example.test" {
		t.Errorf("%d lines, the first %v", len(list), list[0])
	}
	must(t, json.Unmarshal([]byte(b.get("/account/audit/download?format=json&what=nothing").want(t, 200).body), &list))
	if len(list) != 0 {
		t.Errorf("nothing is %v", list)
	}
	b.get("/account/audit/download?format=xml").want(t, 400)
}
