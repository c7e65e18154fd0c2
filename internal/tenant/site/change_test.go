package site_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// An update without a change writes nothing and sends no event. The event of a real change names the changed fields.
func TestOnlyRealChangesAreTold(t *testing.T) {
	t.Parallel()
	r := open(t)
	s := r.create(t, anna, "One")
	r.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `
			INSERT INTO webhooks (id, owner_id, url, events, secret, generated, active, reason, turn_at, created_at, updated_at)
			VALUES ('hook_1', $1, 'https://example.test/', 'site.updated', '', FALSE, TRUE, '', 0, 0, 0)`, anna)
		return err
	})
	patch := func(p site.Patch) site.Site {
		var out site.Site
		r.write(t, func(tx *db.Tx) (err error) { out, err = r.UpdateTx(t.Context(), tx, anna, s.ID, p); return err })
		return out
	}
	vars := func(v ...site.NewVar) {
		r.write(t, func(tx *db.Tx) error { _, err := r.SetEnvTx(t.Context(), tx, anna, s.ID, v); return err })
	}
	told := func() (out []string) {
		rows, err := r.db.Query(t.Context(), `SELECT body FROM webhook_events ORDER BY id`)
		out, err = db.Collect(rows, err, func(s db.Scanner) (b string, err error) { return b, s.Scan(&b) })
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	name, repository, branch, empty, command := "One", "https://git.test/acme/site.git", "main", "", "make"
	before, _ := r.Get(t.Context(), anna, s.ID)
	after := patch(site.Patch{Name: &name, Repository: &repository, Branch: &branch, Framework: &empty, Build: &site.Build{Output: &empty}})
	if got := told(); len(got) != 0 || after.UpdatedAt != before.UpdatedAt {
		t.Errorf("told %v after a change of nothing", got)
	}
	other := "Two"
	patch(site.Patch{Name: &other, Branch: &branch, Build: &site.Build{Command: &command}})
	vars(site.NewVar{Key: "A", Value: "1"}, site.NewVar{Key: "B", Value: "2", Secret: true})
	vars(site.NewVar{Key: "A", Value: "1"}, site.NewVar{Key: "B", Value: "2", Secret: true, Target: []string{"runtime", "build"}})
	vars(site.NewVar{Key: "A", Value: "1", Secret: true})
	// Repeated updates and other spellings of the same values aren't changes: each update is sent twice and causes one
	// event.
	for range 2 {
		spelled, storage, ports, memory, off := "GIT.test/acme/site/", []string{}, []int{}, 256, "off"
		patch(site.Patch{
			Repository: &spelled,
			Run:        &site.Run{Storage: &storage, Ports: &ports, MemoryMiB: &memory, HealthCheck: &site.HealthCheck{}},
		})
		patch(site.Patch{Credential: &fetch.Credential{Token: "tok", User: "ada"}})
		password, none := "correct horse", "none"
		hash, err := r.PasswordHash(t.Context(), anna, s.ID, password)
		if err != nil {
			t.Fatal(err)
		}
		r.write(t, func(tx *db.Tx) error {
			_, err := r.UpdateServingTx(t.Context(), tx, anna, s.ID, site.ServingPatch{
				Password:   &password,
				Protection: &none,
				AccessLog:  &off,
				ProxyHosts: &[]string{},
			}, hash)
			return err
		})
		vars(site.NewVar{Key: "A", Value: "1", Target: []string{"runtime"}}, site.NewVar{Key: "A", Value: "1", Target: []string{"build"}})
	}
	got := told()
	want := []string{
		`"changed":["name","build"]`, `"changed":["env"]`, `"changed":["env"]`,
		`"changed":["run"]`, `"changed":["credential"]`, `"changed":["serving"]`, `"changed":["env"]`,
	}
	if len(got) != len(want) {
		t.Fatalf("told %v", got)
	}
	for i, w := range want {
		if !strings.Contains(got[i], w) || !strings.Contains(got[i], `"url":"https://one.sites.test:8443"`) {
			t.Errorf("event %d is %s, want %s", i, got[i], w)
		}
	}
	if !slices.ContainsFunc(event.Catalogue(false), func(e event.Entry) bool {
		return e.Name == "site.updated" && strings.Contains(string(e.Sample), "changed")
	}) {
		t.Error("the catalogue doesn't show changed")
	}
}
