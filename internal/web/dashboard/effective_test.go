package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// planned creates a site whose live deployment has this plan.
func (w *world) planned(u account.User, plan string) string {
	w.t.Helper()
	s := w.site(u, "Harbor Journal")
	id := w.deployment(s)
	w.live(s, id)
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(w.t.Context(), `UPDATE deployments SET plan = $2 WHERE id = $1`, id, plan); err != nil {
			return err
		}
		_, err := tx.Exec(w.t.Context(), `UPDATE sites SET runtime = 'node' WHERE id = $1`, s.ID)
		return err
	}))
	return "/sites/" + string(s.ID) + "/settings"
}

const nextPlan = `{"framework":"nextjs","name":"Next.js","why":"next is a dependency","root":"web","runtime":"node","manager":"npm",
	"node":"22","install":[{"argv":["npm","ci"]}],"build":[{"shell":"npm run build:all"}],"output":".next",
	"start":{"command":{"argv":["next","start"]}},"run":{"memoryMiB":1024,"healthCheckPath":"/healthz"},
	"sources":{"framework":"detection","root":"vercel.json","install":"detection","build":"slipway.toml","output":"detection","node":".nvmrc"}}`

// effectiveOf returns the text that the page shows for a setting, without markup.
func effectiveOf(t *testing.T, body, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(body, `data-test="effective-`+name+`">`)
	if !found {
		t.Fatalf("the page doesn't say what applies to %s", name)
	}
	rest, _, _ = strings.Cut(rest, "</p>")
	var out strings.Builder
	in := false
	for _, r := range rest {
		if r == '<' || r == '>' {
			in = r == '<'
		} else if !in {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Settings show the effective value and its source instead of a default.
func TestEffectiveSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	at := w.planned(u, nextPlan)
	is := func(want map[string]string) {
		t.Helper()
		body := b.get(at).want(t, 200).body
		for name, text := range want {
			if got := effectiveOf(t, body, name); got != text {
				t.Errorf("%s: %q, want %q", name, got, text)
			}
		}
	}
	is(map[string]string{
		"framework": "Next.js detected", "build_root": "web from vercel.json", "build_command": "npm run build:all from slipway.toml",
		"build_install": "npm ci detected: Next.js", "build_node": "22 from .nvmrc", "run_command": "next start detected: Next.js",
		"run_memory": "1024 from slipway.toml", "run_health_path": "/healthz from slipway.toml", "run_cpus": "1 default", "run_ports": "None default",
	})
	b.post(at, "part", "run", "run_memory", "256", "run_command", "node server.js").to(t, at)
	b.post(at, "part", "build", "build_command", "make").to(t, at)
	is(map[string]string{
		"run_memory": "set here instead of 1024 from slipway.toml", "run_command": "set here", "run_sleep": "900 default",
		"build_command": "set here instead of npm run build:all from slipway.toml",
	})
	fresh := "/sites/" + string(w.site(u, "Fresh").ID) + "/settings"
	if got := effectiveOf(t, b.get(fresh).want(t, 200).body, "build_command"); got != "detected on the next deployment" {
		t.Errorf("a site that was never deployed says %q", got)
	}
}
