package provider_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The output of slipway export terraform must be formatted, must import everything, and must change nothing.
func TestExport(t *testing.T) {
	t.Parallel()
	found := tools(t)
	if len(found) == 0 {
		t.Skip("NOT RUN: neither Terraform nor OpenTofu, 1.11 or later, is there")
	}
	for _, tool := range found {
		t.Run(filepath.Base(tool), func(t *testing.T) {
			t.Parallel()
			w, key := start(t)
			post := func(path string, body attrs, out any) {
				t.Helper()
				if err := w.Call(t.Context(), key, "POST", path, body, out); err != nil {
					t.Fatal(err)
				}
			}
			var made struct{ Data struct{ ID string } }
			post("/sites", attrs{
				"name": "The ${Shop} \"x\"", "type": "static", "source": "upload", "tags": []string{"b", "a"},
				"build": attrs{"command": "make\tall"}, "run": attrs{"cpus": 0.3, "storage": []string{"data"}, "healthCheck": attrs{"path": "/up"}},
			}, &made)
			site := "/sites/" + made.Data.ID
			const canary = "hunter2-canary"
			post(site+"/env", attrs{"key": "PLAIN", "value": "two\nlines"}, nil)
			post(site+"/env", attrs{"key": "KEY", "value": canary, "secret": true, "target": []string{"runtime", "production"}}, nil)
			post(site+"/env", attrs{"key": "KEY", "value": canary, "secret": true, "target": []string{"runtime", "preview"}}, nil)
			post(site+"/env", attrs{"key": "KEY", "value": canary, "secret": true, "branch": "fix/*", "target": []string{"runtime", "preview"}}, nil)
			post(site+"/hooks", attrs{"name": "CI", "secret": canary, "perDay": 7}, nil)
			post(site+"/domains", attrs{"name": "shop.example.com"}, nil)
			post(site+"/domains", attrs{"name": "www.example.com", "redirectTo": "shop.example.com"}, nil)
			post("/webhooks", attrs{"url": "https://example.com/x", "events": []string{"deployment.completed"}, "siteIds": []string{made.Data.ID}}, nil)
			post("/webhooks", attrs{"url": "https://example.com/y", "events": []string{"deployment.failed"}}, nil)

			post("/notifications", attrs{"kind": "discord", "name": "Chat", "target": "https://hooks.example.com/" + canary, "siteIds": []string{made.Data.ID}}, nil)

			f := newFolder(t, tool, "http://"+w.Listen, key)
			cmd := exec.CommandContext(t.Context(), w.Binary, "export", "terraform", "--server", "http://"+w.Listen)
			cmd.Env = append(os.Environ(), "SLIPWAY_TOKEN="+key, "HOME="+t.TempDir(), "XDG_CONFIG_HOME=")
			cmd.Dir, cmd.Stderr = f.dir, t.Output()
			text, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), key) || strings.Contains(string(text), canary) {
				t.Errorf("a secret is in it:\n%s", text)
			}
			f.write("main.tf", string(text))
			f.does("fmt", "-check", "-diff")
			out := f.does("plan", "-no-color", "-input=false")
			if !strings.Contains(out, "Plan: 11 to import, 0 to add, 0 to change, 0 to destroy.") {
				t.Fatalf("the plan is\n%s\nof\n%s", out, text)
			}
			f.does("apply", "-no-color", "-input=false", "-auto-approve")
			f.plansNothing("after everything was imported")
		})
	}
}
