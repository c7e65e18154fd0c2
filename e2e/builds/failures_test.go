package builds

import (
	"strings"
	"testing"

	"slipway/e2e/world"
)

// Frequent failures are explained: the error says what is wrong and what to do, and the end of the log has the output
// of the tool that failed.
func TestFailuresAreExplained(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := newHarness(t, 0, "--builds", "2", "--build-memory", "512")
	npm := func(manifest string, more map[string]string) map[string]string {
		files := map[string]string{"package.json": manifest}
		for k, v := range more {
			files[k] = v
		}
		return files
	}
	toml := func(command string) string { return "[build]\ncommand = \"" + command + "\"\noutput = \"dist\"\n" }
	for _, f := range []struct {
		name  string
		files map[string]string
		error []string // of the deployment
		log   string   // among its last lines
	}{
		{
			"wrong output folder",
			shell("mkdir public; echo x > public/index.html"),
			[]string{"Output folder dist is missing", "found: public"},
			"is missing",
		},
		{
			"lock file", npm(`{"name":"x","version":"1.0.0","scripts":{"build":"true"},"dependencies":{"marked":"4.3.0"}}`,
				map[string]string{
					"slipway.toml":      toml("npm run build"),
					"package-lock.json": `{"name":"x","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"x","version":"1.0.0"}}}`,
				}),
			[]string{"package-lock.json and package.json disagree", "npm install"},
			"Missing: marked@4.3.0 from lock file",
		},
		{
			"missing script",
			npm(`{"name":"x","version":"1.0.0","scripts":{"start":"true"}}`, map[string]string{"slipway.toml": toml("npm run build")}),
			[]string{"script", "build", "package.json"},
			`Missing script: "build"`,
		},
		{
			"memory",
			node("const all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1))"),
			[]string{"Out of memory", "512 MiB"},
			"did not finish",
		},
		{
			"type error", npm(`{"name":"x","version":"1.0.0","scripts":{"build":"tsc"},"devDependencies":{"typescript":"5.9.3"}}`,
				map[string]string{
					"slipway.toml":  toml("npm run build"),
					"tsconfig.json": `{"compilerOptions":{"outDir":"dist","strict":true},"include":["src"]}`,
					"src/index.ts":  "const n: number = 'text'\nexport default n\n",
				}),
			[]string{"TypeScript error in src/index.ts, line 1", "TS2322"},
			"TS2322",
		},
		{"missing module", node("require('left-pad')"), []string{"left-pad", "dependencies"}, "Cannot find module 'left-pad'"},
		{
			"unknown package",
			npm(`{"name":"x","version":"1.0.0","dependencies":{"marked":"0.0.0-none"}}`, map[string]string{"slipway.toml": toml("true")}),
			[]string{"marked@0.0.0-none", "does not exist"},
			"marked@0.0.0-none",
		},
		{"missing command", shell("astro build"), []string{"astro", "not"}, "astro: not found"},
		{
			"network",
			node("fetch('http://169.254.169.254/').then(r => { console.log(r.status); process.exit(r.ok ? 0 : 7) }, e => { console.error(e); process.exit(7) })"),
			[]string{"(exit code 7)"},
			"",
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			h := *h
			h.t = t
			repo := "acme/" + strings.ReplaceAll(f.name, " ", "-")
			h.commit(repo, f.files)
			s := h.site(repo, nil)
			d := h.failed(s, h.first(s), "")
			log := h.log(s, d.ID)
			t.Logf("%s\n%s", d.Error, log)
			for _, want := range f.error {
				if !strings.Contains(d.Error, want) {
					t.Errorf("the reason is %q, want %q in it", d.Error, want)
				}
			}
			lines := strings.Split(strings.TrimSpace(log), "\n")
			last := strings.Join(lines[max(0, len(lines)-22):], "\n")
			if !strings.Contains(last, f.log) || !strings.HasSuffix(log, d.Error+"\n") {
				t.Errorf("the log ends with\n%s\nwant %q in it, and the reason at the end", last, f.log)
			}
		})
	}
}
