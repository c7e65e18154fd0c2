package framework

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestContent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files    map[string]string
		output   string
		commands string
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
		"no wp-content": {files: map[string]string{"index.html": "x"}, wrong: "holds no wp-content"},
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
			p, err := Content(files, Overrides{})
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
			if err != nil || p.Output != tt.output || p.Runtime != PHP || p.Start == nil || !strings.Contains(
				strings.Join(all, "\n"),
				tt.commands,
			) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}
