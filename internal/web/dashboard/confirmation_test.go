package dashboard

import (
	"fmt"
	"net/netip"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/tenant/team"
)

// agentOf returns the caller of an agent with a key of the user.
func agentOf(u account.User) account.Caller {
	c := u.Caller()
	c.Key, c.Via = "key_agent", "Ada's agent (MCP)"
	return c
}

// A user reads what an agent wants to do and approves it with the password. Other users don't see it, and a decision is
// final.
func TestConfirmAgentsCall(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	ctx := t.Context()
	w.user("eve@example.test", false)
	eve := w.as("eve@example.test")
	calls := confirmation.New(w.db)
	take := func(tool string) confirmation.Confirmation {
		t.Helper()
		c, err := calls.Take(ctx, agentOf(w.users["ada@example.test"]), confirmation.Call{
			Tool: tool, Title: "Delete a site", Arguments: []byte(`{"site":"x"}`), Addr: netip.MustParseAddr("203.0.113.9"),
			About: []confirmation.Line{{Label: "Name", Value: "<b>" + s.Name}},
		})
		must(t, err)
		return c
	}
	asked := take("delete_site")
	at := "/confirmations/" + string(asked.ID)
	b.get(at).want(t, 200, "Delete a site?", "Ada&#39;s agent (MCP)", "203.0.113.9", "&lt;b&gt;"+s.Name, "Approve", "Decline")
	eve.get(at).want(t, 404)
	eve.post(at, "decision", "approve").want(t, 404)
	// A GET doesn't approve, and a session that isn't fresh needs the password.
	b.get(at+"?decision=approve").want(t, 200, "Delete a site?")
	must(t, w.db.Admin(ctx, fmt.Sprintf("UPDATE sessions SET proven_at = 1 WHERE user_id = '%s'", w.users["ada@example.test"].ID)))
	b.post(at, "decision", "approve", "current", "wrong").want(t, 403, "Wrong password")
	if got := take("delete_site"); got.Decision != "" {
		t.Fatalf("with a wrong password the call is %s", got.Decision)
	}
	b.post(at, "decision", "approve", "current", password).to(t, at)
	b.get(at).want(t, 200, "Approved", "once")
	b.post(at, "decision", "decline").want(t, 404)
	if got := take("delete_site"); got.Decision != confirmation.Approved || got.ID != asked.ID {
		t.Errorf("approved, the call is %+v", got)
	}
	b.get(at).want(t, 200, "The agent has made the call")
	if got := take("delete_site"); got.Decision != "" || got.ID == asked.ID {
		t.Errorf("a second call is %+v", got)
	}

	declined := take("restore_backup")
	b.post("/confirmations/"+string(declined.ID), "decision", "decline").to(t, "/confirmations/"+string(declined.ID))
	b.get("/confirmations/"+string(declined.ID)).want(t, 200, "Declined", "Nothing was changed")
	if got := take("restore_backup"); got.Decision != confirmation.Declined {
		t.Errorf("declined, the call is %+v", got)
	}
	if w.logged("agent_call.approved") != 1 || w.logged("agent_call.declined") != 1 {
		t.Error("the audit log misses a decision")
	}
}

// A user who has left a team can't approve calls for it.
func TestConfirmAfterLeaving(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	ctx := t.Context()
	boss := w.user("boss@example.test", false)
	var crew team.Team
	must(t, w.db.Write(ctx, func(tx *db.Tx) (err error) {
		crew, err = w.dash.Teams.CreateTx(ctx, tx, boss, team.NewTeam{Name: "Crew"})
		return err
	}))
	by := agentOf(w.users["ada@example.test"])
	by.Owner = crew.Owner
	c, err := confirmation.New(w.db).Take(ctx, by, confirmation.Call{Tool: "delete_site", Title: "Delete a site"})
	must(t, err)
	if p := b.post("/confirmations/"+string(c.ID), "decision", "approve", "current", password); p.status < 400 {
		t.Errorf("approved for a team that the user has left: %d", p.status)
	}
	if c, err := confirmation.New(w.db).Find(ctx, w.users["ada@example.test"].ID, c.ID); err != nil || c.Decision != "" {
		t.Errorf("the call is %+v, %v", c, err)
	}
}
