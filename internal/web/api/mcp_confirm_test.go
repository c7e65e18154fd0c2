package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
)

// asks calls a tool that needs a confirmation, and returns the confirmation's ID.
func (w *world) asks(s *sdk.ClientSession, tool string, args m) confirmation.ID {
	w.t.Helper()
	text, failed := w.useTool(s, tool, args)
	var got struct{ Code, ConfirmationURL string }
	if err := json.Unmarshal([]byte(text), &got); err != nil || !failed || got.Code != "confirmation_required" {
		w.t.Fatalf("%s %v asks for no confirmation: %s", tool, args, text)
	}
	id, ok := strings.CutPrefix(got.ConfirmationURL, w.c.BaseURL+"/confirmations/")
	if !ok || !strings.Contains(text, "Ask the user to open "+got.ConfirmationURL) {
		w.t.Fatalf("%s leads to %s", tool, text)
	}
	return confirmation.ID(id)
}

// decides approves or declines a confirmation, as the dashboard does.
func (w *world) decides(u account.UserID, which confirmation.ID, d confirmation.Decision) error {
	return w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		return confirmation.New(w.db).DecideTx(w.t.Context(), tx, u, which, d)
	})
}

// An irreversible tool call runs only after the agent's user has approved this very call: once, with these arguments,
// with this credential, within ten minutes.
func TestAgentsAreConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	eve, evesKey := w.user("eve@example.test")
	site := w.site(key, "one")
	address := w.serveAgents()
	agent := w.agent(address, key)
	exists := func() bool { return w.api("GET", "/sites/"+site, key, nil).status == 200 }
	variable := func(name string) bool {
		return strings.Contains(w.api("GET", "/sites/"+site+"/env", key, nil).body, `"`+name+`"`)
	}
	for _, name := range []string{"ONE", "TWO"} {
		if a := w.api("POST", "/sites/"+site+"/env", key, m{"key": name, "value": "x"}); a.status != 201 {
			t.Fatal(a)
		}
	}
	unset := func(name string) m { return m{"site": site, "key": name} }

	// Nothing happens before the approval, and a repeated call leads to the same confirmation.
	first := w.asks(agent, "unset_env", unset("ONE"))
	if again := w.asks(agent, "unset_env", unset("ONE")); again != first || !variable("ONE") {
		t.Errorf("asked again: %s, then %s; the variable is there: %v", first, again, variable("ONE"))
	}
	if err := w.decides(eve, first, confirmation.Approved); err == nil {
		t.Error("another user approves")
	}
	if err := w.decides(u, first, confirmation.Approved); err != nil {
		t.Fatal(err)
	}
	if err := w.decides(u, first, confirmation.Declined); err == nil {
		t.Error("a decision is changed")
	}

	// An approval applies only to the same arguments, tool and credential.
	w.asks(agent, "unset_env", unset("TWO"))
	w.asks(agent, "delete_site", m{"site": site, "backup": "false"})
	other := w.agent(address, w.key(u, account.NewKey{Scopes: account.Scopes{account.All}}))
	w.asks(other, "unset_env", unset("ONE"))
	if text, failed := w.useTool(w.agent(address, evesKey), "unset_env", unset("ONE")); !failed || !strings.Contains(text, "site_not_found") {
		t.Errorf("another user's agent: %s", text)
	}
	if !variable("ONE") || !variable("TWO") || !exists() {
		t.Fatal("an unapproved call was executed")
	}
	if text, failed := w.useTool(agent, "unset_env", unset("ONE")); failed || variable("ONE") {
		t.Fatalf("approved, the call is answered with %s", text)
	}
	var via string
	err := w.db.QueryRow(t.Context(), `SELECT MAX(via) FROM audit WHERE action = 'env.deleted' AND user_id = $1`, u).Scan(&via)
	if err != nil || !strings.HasSuffix(via, " (MCP)") {
		t.Errorf("the audit log says that it was done with %q, %v", via, err)
	}

	// An approval works once: deleting the same variable again needs another one.
	if a := w.api("POST", "/sites/"+site+"/env", key, m{"key": "ONE", "value": "y"}); a.status != 201 {
		t.Fatal(a)
	}
	if next := w.asks(agent, "unset_env", unset("ONE")); next == first || !variable("ONE") {
		t.Errorf("the approval %s is used again", first)
	}

	// Declined and expired confirmations approve nothing.
	refused := w.asks(agent, "delete_site", m{"site": site, "backup": "false"})
	if err := w.decides(u, refused, confirmation.Declined); err != nil {
		t.Fatal(err)
	}
	if text, failed := w.useTool(agent, "delete_site", m{"site": site, "backup": "false"}); !failed || !strings.Contains(text, "confirmation_declined") {
		t.Errorf("declined: %s", text)
	}
	late := w.asks(agent, "unset_env", unset("TWO"))
	if err := w.decides(u, late, confirmation.Approved); err != nil {
		t.Fatal(err)
	}
	if err := w.db.Admin(t.Context(), "UPDATE confirmations SET expires_at = 1"); err != nil {
		t.Fatal(err)
	}
	if next := w.asks(agent, "unset_env", unset("TWO")); next == late || !variable("TWO") || !exists() {
		t.Error("an expired approval is used")
	}
	if err := w.decides(u, refused, confirmation.Approved); err == nil {
		t.Error("an expired confirmation is approved")
	}

	// An approved call deletes the site. An agent that keeps asking is told to stop.
	last := w.asks(agent, "delete_site", m{"site": site, "backup": "false"})
	if err := w.decides(u, last, confirmation.Approved); err != nil {
		t.Fatal(err)
	}
	for n := range 30 {
		text, failed := w.useTool(agent, "unset_env", m{"site": site, "key": "K" + strings.Repeat("X", n)})
		if n == 29 && (!failed || !strings.Contains(text, "too_many_confirmations")) {
			t.Errorf("asked for 30 confirmations: %s", text)
		}
	}
	if text, failed := w.useTool(agent, "delete_site", m{"site": site, "backup": "false"}); failed || exists() {
		t.Errorf("the site is deleted with %s", text)
	}
}

// A read-only credential has no destructive tools and can't call them by name. No confirmation is created for a site
// that the credential can't access.
func TestReadersCantDestroy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, key := w.user("a@example.test")
	site, hidden := w.site(key, "one"), w.site(key, "two")
	address := w.serveAgents()
	destroying := strings.Fields("delete_site remove_domain unset_env restore_backup delete_backup run_command")
	for _, tool := range destroying {
		if !slices.Contains(w.tools(w.agent(address, key)), tool) {
			t.Errorf("there is no tool %s", tool)
		}
	}
	reader := w.mcpToken(u, account.SitesRead, account.EnvRead, account.BackupsRead, account.DomainsRead)
	for name, at := range map[string]string{"a token that reads": address, "an address that reads": address + "?mode=read"} {
		credential := reader
		if at != address {
			credential = key
		}
		listed := w.tools(w.agent(at, credential))
		for _, tool := range destroying {
			if slices.Contains(listed, tool) {
				t.Errorf("%s has %s", name, tool)
			}
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"site":"` + site + `"}}}`
			if a := post(t, at, credential, call); a.status != 403 {
				t.Errorf("%s calls %s: %s", name, tool, a)
			}
		}
	}
	one := w.agent(address, w.key(u, account.NewKey{Scopes: account.Scopes{account.SitesWrite}, Sites: []id.Site{id.Site(site)}}))
	if text, failed := w.useTool(one, "delete_site", m{"site": hidden, "backup": "false"}); !failed || !strings.Contains(text, "site_not_allowed") {
		t.Errorf("another site: %s", text)
	}
	var asked int
	if err := w.db.QueryRow(t.Context(), `SELECT COUNT(*) FROM confirmations`).Scan(&asked); err != nil || asked != 0 {
		t.Errorf("a person is asked %d times, %v", asked, err)
	}
}
