package project

import (
	"slices"
	"testing"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Paths that .htaccess closes stay closed if the settings or slipway.toml set the site's start command.
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
		plan, err := Plan(t.Context(), tt.s, nil, c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if plan.Start == nil || !slices.Contains(plan.Start.Closed, "data") || plan.Start.DocumentRoot != tt.root {
			t.Errorf("%s: %+v", name, plan.Start)
		}
	}
}

// The site's settings for a PHP project's document root take precedence over slipway.toml and detection. Paths that the
// project doesn't contain are rejected.
func TestPHPPlace(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	on, off := true, false
	files := tree{{"public/index.php", "<?php"}, {"site/app.php", "<?php"}, {"site/page.php", "<?php"}}
	for name, tt := range map[string]struct {
		run               site.Run
		toml              string
		root, front, code string
	}{
		"detected":           {root: "public"},
		"a folder":           {run: site.Run{DocumentRoot: text("site")}, root: "site"},
		"a script":           {run: site.Run{DocumentRoot: text("site"), FrontController: text("app.php")}, root: "site", front: "app.php"},
		"passed through":     {run: site.Run{Passthru: &on}, root: "public", front: "index.php"},
		"not passed through": {run: site.Run{FrontController: text("index.php"), Passthru: &off}, root: "public"},
		"slipway.toml":       {toml: "[run]\ndocument_root = \"site\"\nfront_controller = \"app.php\"\n", root: "site", front: "app.php"},
		"settings go first": {
			run: site.Run{FrontController: text("page.php")}, root: "site", front: "page.php",
			toml: "[run]\ndocument_root = \"site\"\nfront_controller = \"app.php\"\npassthru = true\n",
		},
		"missing":          {run: site.Run{DocumentRoot: text("web")}, code: "invalid_run"},
		"missing, by file": {toml: "[run]\ndocument_root = \"web\"\n", code: "invalid_slipway_toml"},
	} {
		c := files
		if tt.toml != "" {
			c = append(slices.Clone(c), [2]string{"slipway.toml", tt.toml})
		}
		plan, err := Plan(t.Context(), site.Site{Run: tt.run}, nil, c)
		switch f := fault.As(err); {
		case tt.code != "" && (f == nil || f.Code != tt.code):
			t.Errorf("%s: %v", name, err)
		case tt.code == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.code == "" && (plan.Start.DocumentRoot != tt.root || plan.Start.FrontController != tt.front):
			t.Errorf("%s: %+v", name, plan.Start)
		}
	}
}
