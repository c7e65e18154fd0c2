package project

import (
	"slices"
	"testing"

	"slipway/internal/tenant/site"
)

// What .htaccess closes stays closed where a command is set that starts the site, by the settings or by slipway.toml.
func TestClosedWithCommand(t *testing.T) {
	t.Parallel()
	command := "php -S 0.0.0.0:$PORT"
	for name, tt := range map[string]struct {
		s        site.Site
		toml     string
		root, at string
	}{
		"detected":          {},
		"run.command":       {s: site.Site{Run: site.Run{Command: &command}}},
		"slipway.toml":      {toml: "[run]\ncommand = \"" + command + "\"\n"},
		"public, toml":      {toml: "[run]\ncommand = \"" + command + " -t public\"\n", root: "public", at: "public/"},
		"public, a setting": {s: site.Site{Run: site.Run{Command: &command}}, root: "public", at: "public/"},
	} {
		c := tree{{tt.at + "index.php", "<?php"}, {tt.at + "data/.htaccess", "Require all denied\n"}, {tt.at + "data/private.txt", "x"}}
		if tt.toml != "" {
			c = append(c, [2]string{"slipway.toml", tt.toml})
		}
		plan, err := Plan(t.Context(), tt.s, c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if plan.Start == nil || !slices.Contains(plan.Start.Closed, "data") || plan.Start.DocumentRoot != tt.root {
			t.Errorf("%s: %+v", name, plan.Start)
		}
	}
}
