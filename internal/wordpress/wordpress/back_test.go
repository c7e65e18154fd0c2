package wordpress

import (
	"slices"
	"testing"

	"slipway/internal/backup/backup"
	"slipway/internal/program/database"
)

// An update that only adds tables and columns can be undone without restoring the database. One that drops or changes
// some can't.
func TestLacks(t *testing.T) {
	t.Parallel()
	before := []string{"posts.ID", "posts.title", "orders.id"}
	for name, tt := range map[string]struct {
		now  []string
		want bool
	}{
		"the same": {before, false},
		"more":     {append([]string{"new.id"}, before...), false},
		"less":     {before[:2], true},
		"changed":  {[]string{"posts.ID", "posts.title", "orders.id bigint"}, true},
		"nothing":  {nil, true},
	} {
		if got := lacks(before, tt.now); got != tt.want {
			t.Errorf("%s: lacks is %v", name, got)
		}
	}
}

// Undoing a failed change restores only what it has changed, because visitors write to the database at any time.
func TestBackParts(t *testing.T) {
	t.Parallel()
	columns := []string{"posts.ID"}
	for name, tt := range map[string]struct {
		run  run
		want []string
	}{
		"update":              {run{x: Work{What: kindUpdate}, step: step{Schema: columns}}, []string{backup.Files}},
		"deletion":            {run{x: Work{What: kindManage}, step: step{Schema: columns}}, []string{backup.Files}},
		"columns not known":   {run{x: Work{What: kindUpdate}}, nil},
		"files didn't do":     {run{x: Work{What: kindUpdate}, step: step{Schema: columns, Whole: true}}, nil},
		"search and replace":  {run{x: Work{What: kindReplace}}, []string{backup.Databases}},
		"import":              {run{x: Work{What: kindImport}}, nil},
		"push, with its part": {run{x: Work{What: kindPush}, step: step{Schema: columns}}, nil},
	} {
		if got := tt.run.backParts(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v comes back, want %v", name, got, tt.want)
		}
	}
}

// A clone is a staging environment until it has its own domain.
func TestEnvironmentOfClones(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		x    row
		want string
	}{
		"a site":            {row{}, ""},
		"a clone":           {row{Origin: "site"}, "staging"},
		"one of before":     {row{Origin: "site", Host: newAddress}, "staging"},
		"one with a domain": {row{Origin: "site", Host: "shop.test"}, ""},
	} {
		env := tt.x.environment("key", database.Access{}, "https://blog.test")
		if env[EnvironmentType] != tt.want || (env["SLIPWAY_WP_CLONE"] != "") != (tt.want != "") {
			t.Errorf("%s: %q, %q", name, env[EnvironmentType], env["SLIPWAY_WP_CLONE"])
		}
	}
}
