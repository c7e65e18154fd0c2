package framework

import (
	"strings"
	"testing"
	"testing/fstest"
)

const (
	theme  = "/*\nTheme Name: Ours\n*/"
	plugin = "<?php\n/**\n * Plugin Name: Ours\n */"
)

func TestContent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files    map[string]string
		output   string
		commands string
		parts    string // "from>at …"
		wrong    string
	}{
		"at the top":  {files: map[string]string{"themes/ours/style.css": "x"}},
		"in a folder": {files: map[string]string{"wp-content/plugins/ours/ours.php": "x", "README.md": "x"}, output: "wp-content"},
		"composer": {
			files:    map[string]string{"mu-plugins/a.php": "x", "composer.json": `{"require": {"a/b": "1"}}`, "composer.lock": "{}"},
			commands: "composer install",
		},
		"a front end": {
			files: map[string]string{
				"themes/ours/style.css": "x",
				"package.json":          `{"scripts": {"build": "vite build"}}`,
				"package-lock.json":     `{"lockfileVersion": 3, "packages": {}}`,
			},
			commands: "run build",
		},
		"a theme":       {files: map[string]string{"style.css": theme, "index.php": "x", "plugins/tgm/tgm.php": plugin}, parts: ">themes/our-repo"},
		"a block theme": {files: map[string]string{"style.css": theme, "theme.json": "{}", "templates/index.html": "x"}, parts: ">themes/our-repo"},
		"a theme with settings for another host": {
			files: map[string]string{"style.css": theme, "netlify.toml": "[build]\npublish = \"docs\"\n"}, parts: ">themes/our-repo",
		},
		"a theme whose output is set": {
			files: map[string]string{"style.css": theme, "slipway.toml": "output = \"dist\"\n"}, parts: "dist>themes/our-repo",
		},
		"a plugin": {files: map[string]string{"ours.php": plugin, "themes/x/style.css": "x"}, parts: ">plugins/our-repo"},
		"a plugin with a build": {
			files: map[string]string{
				"ours.php": plugin, "package.json": `{"scripts": {"build": "wp-scripts build"}}`, "package-lock.json": `{"lockfileVersion": 3, "packages": {}}`,
				"composer.json": `{"require": {"php": ">=7.4"}, "require-dev": {"phpunit/phpunit": "*"}}`,
			},
			parts: ">plugins/our-repo", commands: "npm ci --include=dev --no-audit --no-fund\nnpm run build",
		},
		"Sage": {
			files: map[string]string{
				"style.css": theme, "functions.php": "x", "composer.json": `{"require": {"roots/acorn": "^4"}}`, "composer.lock": "{}",
				"package.json": `{"scripts": {"build": "vite build"}}`, "package-lock.json": `{"lockfileVersion": 3, "packages": {}}`,
			},
			parts: ">themes/our-repo", commands: "optimize-autoloader\nnpm ci",
		},
		"Sage 9": {
			files: map[string]string{"resources/style.css": theme, "resources/functions.php": "x", "app/setup.php": "x"}, parts: ">themes/our-repo",
		},
		"a theme whose style.css is built": {
			files: map[string]string{"sass/style.scss": theme, "functions.php": "x", "package.json": `{"scripts": {"build": "sass"}}`}, parts: ">themes/our-repo",
			commands: "npm run build",
		},
		"one theme in a folder": {files: map[string]string{"theme/style.css": theme, "docs/x.md": "x"}, parts: "theme>themes/our-repo"},
		"several in folders": {
			files: map[string]string{
				"packages/one/style.css": theme, "packages/two/style.css": theme, "packages/two/package.json": `{"scripts": {"build": "x"}}`,
				"packages/two/inc/tgm/tgm.php": plugin, "ours/ours.php": plugin, "node_modules/x/style.css": theme,
			},
			parts: "ours>plugins/ours packages/one>themes/one packages/two>themes/two", commands: "npm run build",
		},
		"Bedrock": {
			files: map[string]string{
				"composer.json": `{"require": {"roots/wordpress": "6"}}`, "composer.lock": "{}", "web/index.php": "x", "web/wp-config.php": "x",
				"web/app/mu-plugins/loader.php": "x", "web/app/themes/.gitkeep": "", "web/app/plugins/.gitkeep": "", "config/application.php": "x",
			},
			output: "web/app", commands: "composer install",
		},
		"Bedrock with Sage": {
			files: map[string]string{
				"composer.json": `{"require": {"roots/wordpress": "6"}}`, "composer.lock": "{}", "web/app/themes/sage/style.css": theme,
				"web/app/themes/sage/composer.json": `{"require": {"roots/acorn": "4"}}`, "web/app/themes/sage/composer.lock": "{}",
				"web/app/themes/sage/package.json": `{"scripts": {"build": "vite build"}}`,
			},
			output: "web/app", commands: "optimize-autoloader\ncomposer install",
		},
		"VIP": {
			files: map[string]string{
				"client-mu-plugins/plugin-loader.php": "x", "themes/twentytwenty/style.css": theme, "plugins/.gitkeep": "", "vip-config/vip-config.php": "x",
				"composer.json": `{"require-dev": {"automattic/vipwpcs": "*"}}`, "composer.lock": "{}",
			},
		},
		"Pantheon": {
			files:  map[string]string{"index.php": "x", "wp-login.php": "x", "wp-content/themes/ours/style.css": theme, "wp-content/plugins/index.php": "x"},
			output: "wp-content",
		},
		"no wp-content":     {files: map[string]string{"index.html": "x"}, wrong: "holds no theme, no plugin and no wp-content"},
		"a broken manifest": {files: map[string]string{"style.css": theme, "package.json": "{"}, wrong: "package.json can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := fstest.MapFS{}
			for name, text := range tt.files {
				tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
			}
			files, err := FromFS(tree)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Content(files, Overrides{}, "git.test/ada/Our.Repo.git")
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%+v, %v", p, err)
				}
				return
			}
			var all []string
			for _, c := range append(p.Install, p.Build...) {
				all = append(all, c.String())
			}
			var parts []string
			for _, x := range p.Parts {
				parts = append(parts, x.From+">"+x.At)
			}
			if got := strings.ToLower(strings.Join(parts, " ")); got != tt.parts {
				t.Errorf("parts %q, want %q", got, tt.parts)
			}
			if err != nil || p.Output != tt.output || p.Runtime != PHP || p.Start == nil || !strings.Contains(
				strings.Join(all, "\n"),
				tt.commands,
			) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}
