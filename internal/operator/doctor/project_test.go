package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without a server, doctor reports what a folder would be as a site, what it lacks and why its build would fail.
func TestProject(t *testing.T) {
	t.Parallel()
	astro := map[string]string{
		"package.json":      `{"scripts": {"build": "astro build"}, "dependencies": {"astro": "5"}, "engines": {"node": "22"}}`,
		"package-lock.json": `{"lockfileVersion": 3}`,
		".env.example":      "API_URL=\nTOKEN=\n",
		".env":              "TOKEN=secret",
	}
	for name, tt := range map[string]struct {
		files     map[string]string
		root      string
		wordpress bool
		want      []string
		fails     bool
	}{
		"Astro": {astro, "", false, []string{
			"ok       project    Astro: package.json depends on astro\n", "ok       Node.js    22 (package.json engines)\n",
			"ok       install    npm ci --include=dev --no-audit --no-fund\n", "ok       build      npm run build\n",
			"ok       serves     the files in dist\n", "limited  variables  .env.example lists API_URL, TOKEN: add those that it needs to the site\n",
		}, false},
		"an application": {map[string]string{
			"api/package.json": `{"scripts": {"start": "node index.js"}, "dependencies": {"express": "5"}}`, "api/index.js": "",
		}, "api", false, []string{"starts   node index.js\n", "limited  warning  No lock file"}, false},
		"PHP":    {map[string]string{"index.php": "<?php"}, "", false, []string{"starts   PHP-FPM\n", "php      on the server\n"}, false},
		"Python": {map[string]string{"app.py": "", "requirements.txt": "flask"}, "", false, []string{"missing  project  This is a Python server (requirements.txt, app.py). Slipway runs Node.js and PHP"}, true},
		"a theme": {
			map[string]string{"index.php": "<?php", "style.css": "/*\nTheme Name: X\n*/"},
			"", true,
			[]string{"serves   WordPress with the themes and plugins of the repository\n"},
			false,
		},
		"a theme, not WordPress": {
			map[string]string{"index.php": "<?php", "style.css": "/*\nTheme Name: X\n*/"},
			"", false,
			[]string{"missing  project  This is a WordPress theme. Create a site of the type wordpress from it.\n"},
			true,
		},
		"unreadable": {map[string]string{"package.json": "{"}, "", false, []string{"missing  project  ", "package.json"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range tt.files {
				at := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			err := PrintProject(t.Context(), dir, tt.root, tt.wordpress, &out)
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it lacks %q", want)
				}
			}
			if (err != nil) != tt.fails || strings.Contains(out.String(), "secret") || t.Failed() {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
	if err := PrintProject(t.Context(), filepath.Join(t.TempDir(), "none"), "", false, &strings.Builder{}); err == nil {
		t.Error("a folder that isn't there is no error")
	}
}
