package wordpress

import (
	"encoding/json"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/operation"
)

// A push of selected paths accepts only paths in wp-content, and excludes the database.
func TestPushOfPaths(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		copy Copy
		ok   bool
	}{
		"all":                   {Copy{Files: true, Database: true}, true},
		"folders":               {Copy{Files: true, Paths: []string{"themes/ours", "uploads/2026/"}}, true},
		"the database":          {Copy{Files: true, Database: true, Paths: []string{"themes/ours"}}, false},
		"tables":                {Copy{Database: true, Tables: []string{"wp_posts"}}, true},
		"both chosen":           {Copy{Files: true, Database: true, Paths: []string{"themes/ours"}, Tables: []string{"wp_posts"}}, true},
		"all files too":         {Copy{Files: true, Database: true, Tables: []string{"wp_posts"}}, false},
		"tables of no database": {Copy{Files: true, Paths: []string{"themes/ours"}, Tables: []string{"wp_posts"}}, false},
		"many tables":           {Copy{Database: true, Tables: make([]string, maxPushTables+1)}, false},
		"no files":              {Copy{Paths: []string{"themes/ours"}}, false},
		"outside":               {Copy{Files: true, Paths: []string{"../other"}}, false},
		"outside later":         {Copy{Files: true, Paths: []string{"themes/../../other"}}, false},
		"absolute":              {Copy{Files: true, Paths: []string{"/themes"}}, false},
		"empty":                 {Copy{Files: true, Paths: []string{""}}, false},
		"long":                  {Copy{Files: true, Paths: []string{strings.Repeat("a", 1001)}}, false},
		"many":                  {Copy{Files: true, Paths: strings.Split(strings.Repeat("a,", maxPushPaths), ",")}, false},
	} {
		if err := tt.copy.check(); (err == nil) != tt.ok || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A push of tables must be a job of a kind that versions without Copy.Tables don't take: they would push the whole database.
func TestTablesArePushedByTheirOwnJob(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for name, tt := range map[string]struct {
		copy Copy
		want string
	}{
		"all":    {Copy{Database: true}, Work{}.Kind()},
		"tables": {Copy{Database: true, Tables: []string{"wp_posts"}}, tableWork{}.Kind()},
	} {
		var kind, args string
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			x := Work{Operation: operation.ID("op_" + name), What: kindPush, Copy: &tt.copy}
			if err := x.enqueueTx(t.Context(), tx); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), `SELECT kind, args FROM jobs WHERE uniq = $1`, "wordpress/op_"+name).Scan(&kind, &args)
		})
		var back tableWork
		if err == nil {
			err = json.Unmarshal([]byte(args), &back)
		}
		if err != nil || kind != tt.want || back.What != kindPush || len(back.Copy.Tables) != len(tt.copy.Tables) {
			t.Errorf("%s: %s %s, %v, want %s", name, kind, args, err, tt.want)
		}
	}
}
