package build

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"slipway/internal/build/framework"
)

// Manifests in a build's output are untrusted. Too large ones aren't decoded, and the application then serves the paths
// itself.
func TestNextManifestsAreBounded(t *testing.T) { // not parallel: it measures memory
	const known = `{"version": 3, "redirects": [], "headers": [], "rewrites": {"beforeFiles": []}}`
	many := func(item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", (16<<20)/(len(item)+1)), ",") + "]"
	}
	for name, c := range map[string]struct {
		files  map[string]string
		assets int
	}{
		"usual": {map[string]string{"routes-manifest.json": known}, 2},
		"lists": {
			map[string]string{"routes-manifest.json": strings.Replace(known, `{"beforeFiles": []}`, `{"beforeFiles": `+many("[]")+`}`, 1)},
			0,
		},
		"locales": {
			map[string]string{"routes-manifest.json": strings.Replace(known, `"version"`, `"i18n": {"a": `+many("{}")+`}, "version"`, 1)},
			0,
		},
		"patterns": {
			map[string]string{
				"routes-manifest.json": strings.Replace(
					known,
					`"headers": []`,
					`"headers": [`+strings.TrimSuffix(strings.Repeat(`{"regex": "^(a{900}){1}$"},`, 20_000), ",")+`]`,
					1,
				),
			},
			0,
		},
		"repetitions": {
			map[string]string{
				"routes-manifest.json": strings.Replace(
					known,
					`"headers": []`,
					`"headers": [`+strings.TrimSuffix(strings.Repeat(`{"regex": "^(`+strings.Repeat("x", 900)+`){1000}$"},`, 400), ",")+`]`,
					1,
				),
			},
			0,
		},
		"few repetitions": {
			map[string]string{
				"routes-manifest.json": strings.Replace(known, `"headers": []`, `"headers": [{"regex": "^/blog/\\d{4}-[a-z]{1,20}$"}]`, 1),
			},
			1,
		},
		"a long pattern": {
			map[string]string{
				"routes-manifest.json": strings.Replace(
					known,
					`"headers": []`,
					`"headers": [{"regex": "^`+strings.Repeat("(a|b)", 1000)+`$"}]`,
					1,
				),
			},
			0,
		},
		"much middleware": {
			map[string]string{
				"routes-manifest.json":            known,
				"server/middleware-manifest.json": `{"middleware": {}, "x": ` + many("{}") + `}`,
			},
			1,
		},
		"odd middleware":   {map[string]string{"routes-manifest.json": known, "server/middleware-manifest.json": `{"middleware": [`}, 1},
		"a folder instead": {map[string]string{"routes-manifest.json": known, "server/functions-config-manifest.json/x": ""}, 1},
		"deep": {
			map[string]string{"routes-manifest.json": known, "server/middleware-manifest.json": `{"x": ` + strings.Repeat("[", 500_000)},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"public/x": "x"}
			for name, text := range c.files {
				files[".next/"+name] = text
			}
			n := nextOutput{root: checkout(t, files), dir: "."}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := n.assets()
			runtime.ReadMemStats(&after)
			if len(got) != c.assets {
				t.Errorf("served as files: %v, want %d", got, c.assets)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
				t.Errorf("allocated %d MiB", took>>20)
			}
		})
	}
}

// Malicious packages may depend on each other endlessly. If pruning takes much more work than real projects need, it
// stops and everything is stored.
func TestPruneGivesUp(t *testing.T) {
	t.Parallel()
	var needs []string
	for i := range 2000 {
		needs = append(needs, fmt.Sprintf(`"not-there-%d": "1"`, i))
	}
	root := checkout(t, map[string]string{
		"package-lock.json":              "{}",
		"package.json":                   `{"dependencies": {` + strings.Join(needs, ", ") + `}}`,
		"node_modules/tool/package.json": "{}",
	})
	plan := framework.Plan{Modules: []string{"node_modules"}, Start: start("node", "server.js")}
	if skip, n := prune(root, plan, nil); n != 1 || !skip["node_modules/tool"] {
		t.Errorf("within the bounds: %v, %d packages", skip, n)
	}
	for what, p := range map[string]*pruning{"lookups": {lookups: maxLookups - 1000}, "bytes": {bytes: maxManifests - 1000}} {
		p.root, p.modules, p.keep, p.names = root, plan.Modules, map[string]bool{}, map[string]bool{}
		if p.follow([]string{"."}) {
			t.Errorf("%s: the prune continued", what)
		}
		if p.lookups > maxLookups+10 {
			t.Errorf("%s: %d lookups", what, p.lookups)
		}
	}
}
