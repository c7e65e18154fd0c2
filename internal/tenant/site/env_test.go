package site_test

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

func (r world) setEnv(t *testing.T, id site.ID, vars ...site.NewVar) []site.Var {
	t.Helper()
	var out []site.Var
	r.write(t, func(tx *db.Tx) (err error) { out, err = r.SetEnvTx(t.Context(), tx, anna, id, vars); return err })
	return out
}

func TestEnvIsSealedAndSecretsStaySecret(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "x")
	r.activate(t, s.ID, "dep_1")
	set := r.setEnv(t, s.ID, site.NewVar{
		Key:    "TOKEN",
		Value:  "hunter2",
		Secret: true,
	}, site.NewVar{Key: "MODE", Value: "fast", Target: []string{"build"}})
	if set[0].Key != "TOKEN" || set[0].Value != "" || set[1].Value != "fast" {
		t.Fatalf("set %+v; want them in the order sent and no secret value", set)
	}
	var stored string
	if err := r.db.QueryRow(ctx, `SELECT value FROM env WHERE key = 'MODE'`).Scan(&stored); err != nil || strings.Contains(stored, "fast") {
		t.Fatalf("stored as %q, %v", stored, err)
	}
	list, err := r.Env(ctx, anna, s.ID)
	if err != nil || len(list) != 2 || list[0].Key != "MODE" || list[1].Value != "" || !list[1].Secret {
		t.Fatalf("list %+v, %v", list, err)
	}
	build, err := r.Variables(ctx, s.ID, "build", "production", "main")
	if err != nil || len(build) != 2 || build[1].Value != "hunter2" {
		t.Fatalf("build sees %+v, %v", build, err)
	}
	if runtime, _ := r.Variables(ctx, s.ID, "runtime", "preview", "dev"); len(runtime) != 1 || runtime[0].Key != "TOKEN" {
		t.Fatalf("runtime sees %+v", runtime)
	}
	if got, _ := r.Get(ctx, anna, s.ID); !got.NeedsRedeploy {
		t.Error("the site does not say that it needs a redeploy")
	}
	updated := func() (at int64) {
		t.Helper()
		if err := r.db.QueryRow(ctx, `SELECT updated FROM run_settings WHERE site_id = $1`, s.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := updated()
	for db.Now() <= db.Time(before) {
		time.Sleep(time.Millisecond)
	}
	again := r.setEnv(t, s.ID, site.NewVar{Key: "TOKEN", Value: "new", Secret: true})
	if updated() <= before {
		t.Error("what runs the site doesn't see that its variables changed")
	}
	if again[0].ID != set[0].ID || again[0].CreatedAt != set[0].CreatedAt {
		t.Error("replacing a variable made another one")
	}
}

func TestSecretCannotBeBroughtBackToLight(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "x")
	r.setEnv(t, s.ID, site.NewVar{Key: "TOKEN", Value: "hunter2", Secret: true})
	no, value := false, "public"
	update := func(p site.PatchVar) (v site.Var, err error) {
		err = r.db.Write(ctx, func(tx *db.Tx) (err error) { v, err = r.UpdateEnvTx(ctx, tx, anna, s.ID, "TOKEN", p); return err })
		return v, err
	}
	if _, err := update(site.PatchVar{Secret: &no}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("got %v, want Conflict", err)
	}
	if v, err := update(site.PatchVar{Secret: &no, Value: &value}); err != nil || v.Value != "public" || v.Secret {
		t.Fatalf("got %+v, %v", v, err)
	}
}

func TestEnvRefusesAllWhenOneIsBad(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "x")
	for name, v := range map[string]site.NewVar{
		"space in key":   {Key: "1 BAD"},
		"empty key":      {},
		"key with =":     {Key: "A=B"},
		"newline in key": {Key: "A\n"},
		"ours":           {Key: "slipway_site"},
		"too long":       {Key: "A", Value: strings.Repeat("x", 32<<10+1)},
		"NUL":            {Key: "A", Value: "a\x00b"},
		"no UTF-8":       {Key: "A", Value: "\xff"},
		"target":         {Key: "A", Target: []string{"staging"}},
		"no target":      {Key: "A", Target: []string{}},
	} {
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.SetEnvTx(t.Context(), tx, anna, s.ID, []site.NewVar{{Key: "GOOD", Value: "x"}, v})
			return err
		})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	if n := r.count(t, `SELECT count(*) FROM env`); n != 0 {
		t.Errorf("%d variables were kept, want none", n)
	}
	r.setEnv(t, s.ID, site.NewVar{Key: "A", Value: strings.Repeat("x", 32<<10)})
	if err := r.db.Write(t.Context(), func(tx *db.Tx) error {
		return r.DeleteEnvTx(t.Context(), tx, anna, s.ID, "B")
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("deleting an unknown variable: %v, want NotFound", err)
	}
	r.write(t, func(tx *db.Tx) error { return r.DeleteEnvTx(t.Context(), tx, anna, s.ID, "A") })
}

func TestDeployHookLife(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "x")
	var h site.Hook
	r.write(t, func(tx *db.Tx) (err error) {
		h, err = r.CreateHookTx(ctx, tx, anna, s.ID, site.NewHook{Name: "ci", Branch: "main"})
		return err
	})
	if len(h.ID.Reveal()) != len("dhk_")+52 || strings.Contains(h.ID.String(), h.ID.Reveal()) {
		t.Fatalf("id %d characters long, shown as %s; want 256 bits, redacted", len(h.ID.Reveal()), h.ID)
	}
	if n := r.count(
		t,
		`SELECT count(*) FROM deploy_hooks WHERE digest LIKE '%' || $1 || '%' OR sealed LIKE '%' || $1 || '%'`,
		h.ID.Reveal(),
	); n != 0 {
		t.Fatal("the secret isn't encrypted in the table")
	}
	find := func(id site.HookID) (got site.Hook, err error) {
		err = r.db.Write(ctx, func(tx *db.Tx) (err error) {
			if got, err = r.Hook(ctx, tx, id); err == nil {
				err = r.HookUsedTx(ctx, tx, id, "dep_1")
			}
			return err
		})
		return got, err
	}
	if got, err := find(h.ID); err != nil || got.Site != s.ID || got.Branch != "main" {
		t.Fatalf("got %+v, %v", got, err)
	}
	list, err := r.Hooks(ctx, anna, s.ID)
	if err != nil || len(list) != 1 || list[0].ID != h.ID || list[0].Triggered != 1 || list[0].LastDeployment != "dep_1" {
		t.Fatalf("list %+v, %v", list, err)
	}
	old, off := h.ID, false
	r.write(t, func(tx *db.Tx) (err error) {
		h, err = r.UpdateHookTx(ctx, tx, anna, h.ID, site.PatchHook{Rotate: true})
		return err
	})
	if _, err := find(old); !fault.Is(err, fault.NotFound) {
		t.Fatalf("the rotated id: %v, want NotFound", err)
	}
	r.write(t, func(tx *db.Tx) error {
		_, err := r.UpdateHookTx(ctx, tx, anna, h.ID, site.PatchHook{Active: &off})
		return err
	})
	if _, err := find(h.ID); !fault.Is(err, fault.Gone) {
		t.Fatalf("turned off: %v, want Gone", err)
	}
	r.write(t, func(tx *db.Tx) error { return r.DeleteHookTx(ctx, tx, anna, h.ID) })
	if _, err := find(h.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("deleted: %v, want NotFound", err)
	}
}

func TestUpdateKeepsTheAddressAndMarksARedeploy(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	s := r.create(t, anna, "old name")
	r.activate(t, s.ID, "dep_1")
	update := func(p site.Patch) (got site.Site, err error) {
		err = r.db.Write(ctx, func(tx *db.Tx) (err error) { got, err = r.UpdateTx(ctx, tx, anna, s.ID, p); return err })
		return got, err
	}
	name, out, empty := "new name", "dist", ""
	if got, err := update(site.Patch{Name: &name}); err != nil || got.Name != name || got.Slug != s.Slug || got.NeedsRedeploy {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got, err := update(site.Patch{
		Build: &site.Build{Output: &out},
	}); err != nil || got.Build.Output == nil || *got.Build.Output != "dist" || !got.NeedsRedeploy {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got, err := update(site.Patch{Build: &site.Build{Output: &empty}}); err != nil || got.Build.Output != nil {
		t.Fatalf("an empty setting left %+v, %v; want it back to detection", got.Build, err)
	}
	if _, err := update(site.Patch{Credential: &fetch.Credential{Token: "ghp_secret"}}); err != nil {
		t.Fatal(err)
	}
	now, err := r.Get(ctx, anna, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.CredentialOf(t.Context(), now); err != nil || c.Token != "ghp_secret" {
		t.Fatalf("credential %v, %v", c, err)
	}
	if n := r.count(t, `SELECT count(*) FROM sites WHERE credential LIKE '%ghp_secret%'`); n != 0 {
		t.Fatal("the token isn't encrypted in the table")
	}
	if got, err := update(site.Patch{Credential: &fetch.Credential{}}); err != nil || got.Credential {
		t.Fatalf("removing it left %v, %v", got.Credential, err)
	}
	bad := "../x"
	if _, err := update(site.Patch{Build: &site.Build{Root: &bad}}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("root %q: %v, want Invalid", bad, err)
	}
}

// Previews never get production-only variables. A key has one value per environment, or one for both.
func TestEnvTargets(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "One")
	ctx := t.Context()
	see := func(of, scope string) string {
		t.Helper()
		vars, err := r.Variables(ctx, s.ID, of, scope, "main")
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, v := range vars {
			text += v.Key + "=" + v.Value + " "
		}
		return text
	}
	check := func(what, production, preview string) {
		t.Helper()
		if got := see("build", "production"); got != production {
			t.Errorf("%s: production sees %q, want %q", what, got, production)
		}
		if got := see("build", "preview"); got != preview {
			t.Errorf("%s: previews see %q, want %q", what, got, preview)
		}
	}
	r.setEnv(t, s.ID, site.NewVar{Key: "K", Value: "both", Secret: true})
	check("both", "K=both ", "K=both ")
	r.setEnv(t, s.ID, site.NewVar{Key: "K", Value: "live", Secret: true, Target: []string{"production"}})
	check("production alone takes the place of both", "K=live ", "")
	out := r.setEnv(t, s.ID, site.NewVar{Key: "K", Value: "test", Target: []string{"build", "preview"}})
	check("one for each", "K=live ", "K=test ")
	if see("runtime", "preview") != "" || see("runtime", "production") != "K=live " {
		t.Error("a build-only variable is set at runtime")
	}
	value := "test 2"
	update := func(name string, p site.PatchVar) error {
		return r.db.Write(ctx, func(tx *db.Tx) error { _, err := r.UpdateEnvTx(ctx, tx, anna, s.ID, name, p); return err })
	}
	if err := update("K", site.PatchVar{Value: &value}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a change of one of two: %v", err)
	}
	if err := update(out[0].ID, site.PatchVar{Value: &value}); err != nil {
		t.Error(err)
	}
	check("changed by its id", "K=live ", "K=test 2 ")
	both := []site.NewVar{{Key: "X", Value: "1"}, {Key: "X", Value: "2", Target: []string{"preview"}}}
	if _, err := r.SealEnv(s.ID, both); !fault.Is(err, fault.Invalid) {
		t.Errorf("both and one at once: %v", err)
	}
	r.setEnv(t, s.ID, site.NewVar{
		Key:    "X",
		Value:  "1",
		Target: []string{"production"},
	}, site.NewVar{Key: "X", Value: "2", Target: []string{"preview"}})
	check("two at once", "K=live X=1 ", "K=test 2 X=2 ")
	r.setEnv(t, s.ID, site.NewVar{Key: "X", Value: "3", Target: []string{"production", "preview"}})
	check("both again", "K=live X=3 ", "K=test 2 X=3 ")
	r.write(t, func(tx *db.Tx) error { return r.DeleteEnvTx(ctx, tx, anna, s.ID, "K") })
	check("deleted by its key", "X=3 ", "X=3 ")
}

// A branch-specific value applies to previews of matching branches and overrides the general one. The longest pattern
// wins.
func TestEnvBranches(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "One")
	ctx := t.Context()
	see := func(scope, branch string) (out string) {
		t.Helper()
		vars, err := r.Variables(ctx, s.ID, "build", scope, branch)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vars {
			out += v.Key + "=" + v.Value + " "
		}
		return out
	}
	out := r.setEnv(t, s.ID, site.NewVar{
		Key:    "K",
		Value:  "all",
		Secret: true,
	}, site.NewVar{Key: "K", Value: "feature", Branch: "feature/*"},
		site.NewVar{Key: "K", Value: "cart", Branch: "feature/cart*"}, site.NewVar{Key: "ONLY", Value: "x", Branch: "staging"},
		site.NewVar{Key: "ODD", Value: "x", Branch: "fix(*)-日本"})
	for _, tt := range []struct{ scope, branch, want string }{
		{"production", "feature/cart", "K=all "},
		{"preview", "main", "K=all "},
		{"preview", "feature/x/y", "K=feature "},
		{"preview", "feature/cart-2", "K=cart "},
		{"preview", "staging", "K=all ONLY=x "},
		{"preview", "staging2", "K=all "},
		{"preview", "fix(ui)-日本", "K=all ODD=x "},
		{"preview", "xstaging", "K=all "},
		{"production", "staging", "K=all "},
	} {
		if got := see(tt.scope, tt.branch); got != tt.want {
			t.Errorf("%s of %s sees %q, want %q", tt.scope, tt.branch, got, tt.want)
		}
	}
	r.setEnv(t, s.ID, site.NewVar{Key: "K", Value: "live", Target: []string{"production"}})
	if a, b := see("preview", "main"), see("preview", "feature/a"); a != "" || b != "K=feature " {
		t.Errorf("a value for production took more than the place of both: %q, %q", a, b)
	}
	branch := "release/*"
	r.write(t, func(tx *db.Tx) error {
		_, err := r.UpdateEnvTx(ctx, tx, anna, s.ID, out[1].ID, site.PatchVar{Branch: &branch})
		return err
	})
	if a, b := see("preview", "feature/x"), see("preview", "release/1"); a != "" || b != "K=feature " {
		t.Errorf("after the pattern changed: %q, %q", a, b)
	}
	for name, bad := range map[string]site.NewVar{
		"production": {Key: "K", Branch: "x", Target: []string{"production"}},
		"a space":    {Key: "K", Branch: "a b"},
		"a colon":    {Key: "K", Branch: "a:b"},
		"a dash":     {Key: "K", Branch: "-a"},
	} {
		if _, err := r.SealEnv(s.ID, []site.NewVar{bad}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
