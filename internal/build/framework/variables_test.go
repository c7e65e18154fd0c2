package framework

import (
	"maps"
	"testing"
	"testing/fstest"

	"slipway/internal/platform/fault"
)

// Variables of a site set versions. They override the repository's version files, but not build.node.
func TestVariables(t *testing.T) {
	hugo := map[string]string{"hugo.toml": "baseURL = 'https://x.test'", "content/a.md": "a", "layouts/index.html": "x", ".tool-versions": "hugo 0.131.0\n"}
	php := func(require string) map[string]string {
		return map[string]string{"composer.json": `{"require": {"php": "` + require + `"}}`, "public/index.php": "<?php"}
	}
	node := map[string]string{"package.json": `{"scripts": {"start": "node x.js"}}`, "x.js": "", ".nvmrc": "20"}
	for _, c := range []struct {
		name, tool string
		files      map[string]string
		variable   [2]string
		want       string
	}{
		{"the repository's", "hugo", hugo, [2]string{"A", "b"}, "0.131.0"},
		{"Hugo", "hugo", hugo, [2]string{"HUGO_VERSION", "0.111.3"}, "0.111.3"},
		{"PHP", "php", php(""), [2]string{"PHP_VERSION", "8.2"}, "8.2.*"},
		{"a patch of PHP", "php", php("^8.1"), [2]string{"PHP_VERSION", "8.2.7"}, "^8.1, 8.2.*"},
		{"either", "php", php("^7.4 || ^8.0"), [2]string{"PHP_VERSION", "8.4"}, "^7.4, 8.4.* || ^8.0, 8.4.*"},
		{"a major", "php", php(""), [2]string{"PHP_VERSION", "8"}, "8.*"},
		{"Node.js", "node", node, [2]string{"NODE_VERSION", "22"}, "22"},
		{"Node.js of slipway.toml", "node", with(node, "slipway.toml", "[build]\nnode = 24"), [2]string{"NODE_VERSION", "22"}, "24"},
	} {
		fs := fstest.MapFS{}
		for name, text := range c.files {
			fs[name] = &fstest.MapFile{Data: []byte(text)}
		}
		files, err := FromFS(fs)
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]string{c.variable[0]: c.variable[1]}
		plan, err := Detect(files, Overrides{Variables: env})
		got := plan.Asks(c.tool)
		if c.tool == "node" {
			got = plan.Node
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
		if warned := plan.VersionWarnings(env); len(warned) > 0 != (c.want == "24") {
			t.Errorf("%s: warned of %q", c.name, warned)
		}
	}
	files, err := FromFS(fstest.MapFS{"index.php": {Data: []byte("<?php")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Detect(files, Overrides{Variables: map[string]string{"PHP_VERSION": "newest"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a version that isn't one: %v", err)
	}
	plan, err := Detect(files, Overrides{})
	if warned := plan.VersionWarnings(map[string]string{"ZOLA_VERSION": "1"}); err != nil || len(warned) != 1 {
		t.Errorf("a variable of a tool that the plan hasn't: %q, %v", warned, err)
	}
}

func with(files map[string]string, name, text string) map[string]string {
	files = maps.Clone(files)
	files[name] = text
	return files
}
