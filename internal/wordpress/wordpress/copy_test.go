package wordpress

import (
	"strings"
	"testing"

	"slipway/internal/platform/fault"
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
