package framework

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"slipway/internal/platform/fault"
)

// A command that is too long or contains a NUL is an error in slipway.toml. In a Procfile, whose other lines may be
// good, it is skipped.
func TestCommandsAreText(t *testing.T) {
	t.Parallel()
	pkg := `{"dependencies": {"express": "5"}, "scripts": {"start": "node x.js"}}`
	detect := func(file, text string) (Plan, error) {
		files, err := FromFS(fstest.MapFS{"package.json": {Data: []byte(pkg)}, "x.js": {}, file: {Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return Detect(files, Overrides{})
	}
	long := "node " + strings.Repeat("x", maxText)
	for name, text := range map[string]string{
		"start":   "[run]\ncommand = %s\n",
		"release": "release = %s\n",
		"web":     "[processes]\nweb = %s\n",
		"process": "[processes]\nmail = %s\n",
		"cron":    "[[cron]]\nschedule = \"@daily\"\ncommand = %s\n",
	} {
		for _, command := range []string{`"node x.js \u0000"`, `"` + long + `"`} {
			if _, err := detect(
				"slipway.toml",
				fmt.Sprintf(text, command),
			); fault.As(err) == nil || !strings.Contains(fault.As(err).Details, "without NUL, at most 4096 bytes") {
				t.Errorf("%s %.30s: %v", name, command, err)
			}
		}
		if _, err := detect("slipway.toml", fmt.Sprintf(text, `"node x.js é"`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"node x.js \x00", long} {
		for _, name := range []string{"web", "release", "mail"} {
			p, err := detect("Procfile", name+": "+bad+"\nqueue: node queue.js\n")
			if err != nil || len(p.Processes) != 1 || p.Processes[0].Name != "queue" || p.Release != nil || !strings.Contains(
				strings.Join(p.Warnings, "\n"),
				fmt.Sprintf("process %q is ignored", name),
			) {
				t.Errorf("Procfile's %s %.12q: %v, %v, %v, %v", name, bad, p.Processes, p.Release, p.Warnings, err)
			}
		}
	}
}

// Detect rejects files whose nesting would take gigabytes to parse. The error names the file if it decides something.
func TestFilesThatNestAreNotParsed(t *testing.T) {
	deepTOML := func(depth, size int) string {
		line := strings.Repeat("a={", depth) + strings.Repeat("}", depth) + "\n"
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, "k%d.%s", i, line)
		}
		return b.String()
	}
	deepJSON := strings.Repeat(`{"a":[`, 400) + "1" + strings.Repeat("]}", 400)
	for name, text := range map[string]string{
		"slipway.toml":        deepTOML(990, 533_000),
		"./slipway.toml":      deepTOML(300, 60_000),
		"netlify.toml":        deepTOML(990, 533_000),
		"./netlify.toml":      deepTOML(300, 60_000),
		"vercel.json":         deepJSON,
		"package.json":        deepJSON,
		"./package.json":      "// \"\n" + deepJSON,
		"composer.json":       deepJSON,
		"lerna.json":          deepJSON,
		"angular.json":        deepJSON,
		"project.json":        deepJSON,
		"./vercel.json":       strings.Repeat(" ", 1<<20) + "{}",
		"pnpm-workspace.yaml": "packages: [" + strings.Repeat("'**/a*',", 200_000) + "]",
		"config.toml":         "base_url='x'\n" + deepTOML(300, 60_000),
	} {
		t.Run(name, func(t *testing.T) {
			file := strings.TrimPrefix(name, "./")
			fs := fstest.MapFS{"index.html": {Data: []byte("x")}, file: {Data: []byte(text)}}
			if file != "package.json" {
				fs["package.json"] = &fstest.MapFile{Data: []byte(`{"dependencies":{"@angular/core":"1","nx":"1"}}`)}
			}
			files, err := FromFS(fs)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = Detect(files, Overrides{})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
				t.Errorf("allocated %d MiB", took>>20)
			}
			if read := file != "config.toml" && file != "project.json" && file != "angular.json"; read && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), file)) {
				t.Errorf("Detect = %v, want a refusal that names the file", err)
			}
		})
	}
}
