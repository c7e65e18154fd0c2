package action

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a server says is data to the action's script: no command of a workflow, no further output, no setting of curl, and no path of the
// next request.
func TestAnswersAreData(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		token, started, deployment string // answers; empty: a good one
		status                     int    // of the second one; 0: 200
		want                       string // in the log
		works                      bool
	}{
		"good":                 {want: "http://harbor.example/", works: true},
		"error":                {status: 400, started: `{"error": "no\n::add-path::/evil", "details": "100%\\n::add-path::/evil"}`, want: `::error::no%0A::add-path::/evil: 100%25\n::`},
		"error of an object":   {status: 400, started: `[]`, want: "::error::"},
		"deployment's error":   {deployment: `{"status": "failed", "error": "x\r\n::add-path::/evil"}`, want: "::error::Deployment failed: x%0A"},
		"no status":            {deployment: `{}`, want: "names no status"},
		"no JSON":              {deployment: `<html>`, want: "names no status"},
		"id with an output":    {started: `{"deploymentId": "dep_1\nurl=https://evil.example"}`, want: "::error::The deployment's id"},
		"id with a path":       {started: `{"deploymentId": "../../evil"}`, want: "::error::The deployment's id"},
		"no id":                {started: `{}`, deployment: `{}`, want: "::error::"},
		"address of two lines": {deployment: `{"status": "success", "url": "http://harbor.example/\nother=evil"}`, want: "::error::The deployment's address"},
		"address of a script":  {deployment: `{"status": "success", "url": "javascript:alert(1)"}`, want: "::error::The deployment's address"},
		"settings of curl":     {token: `{"access_token": "x\"\noutput = \"FILE"}`, want: "::error::The token"},
		"command for a token":  {token: `{"access_token": "x\n::add-path::/evil"}`, want: "::error::The token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			or := func(text, good string) string {
				if text == "" {
					return good
				}
				return strings.ReplaceAll(text, "FILE", filepath.Join(dir, "evil"))
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/identity":
					fmt.Fprint(w, `{"value": "identity"}`)
				case r.URL.Path == "/oauth/token":
					fmt.Fprint(w, or(tt.token, `{"access_token": "slw_1"}`))
				case r.URL.Path == "/api/v1/sites/site_1/deploy/archive":
					if tt.status != 0 {
						w.WriteHeader(tt.status)
					}
					fmt.Fprint(w, or(tt.started, `{"deploymentId": "dep_1"}`))
				case r.URL.Path == "/api/v1/deployments/dep_1":
					fmt.Fprint(w, or(tt.deployment, `{"status": "success", "url": "http://harbor.example/"}`))
				default:
					t.Errorf("asked for %s", r.URL.Path)
				}
			}))
			t.Cleanup(server.Close)
			site := filepath.Join(dir, "site")
			if err := os.Mkdir(site, 0o755); err != nil {
				t.Fatal(err)
			}
			outputs := filepath.Join(dir, "outputs")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "deploy.sh")
			cmd.Env = append(os.Environ(), "SLIPWAY_SERVER="+server.URL, "SLIPWAY_SITE=site_1", "DIRECTORY="+site, "KIND=output", "TARGET=preview",
				"BRANCH=x", "SLIPWAY_TOKEN=", "GITHUB_OUTPUT="+outputs, "ACTIONS_ID_TOKEN_REQUEST_URL="+server.URL+"/identity?v=1",
				"ACTIONS_ID_TOKEN_REQUEST_TOKEN=of-the-run", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
			var log bytes.Buffer
			cmd.Stdout, cmd.Stderr = &log, &log
			if err := cmd.Run(); (err == nil) != tt.works || !strings.Contains(log.String(), tt.want) {
				t.Errorf("it ends with %v, want %q in\n%s", err, tt.want, &log)
			}
			for line := range strings.Lines(log.String()) {
				if strings.HasPrefix(strings.TrimSpace(line), "::") && line != "::add-mask::slw_1\n" && !strings.HasPrefix(line, "::error::") {
					t.Errorf("GitHub is commanded %s", line)
				}
			}
			text, _ := os.ReadFile(outputs) // none where it failed early
			for line := range strings.Lines(string(text)) {
				if line != "deployment-id=dep_1\n" && line != "url=http://harbor.example/\n" {
					t.Errorf("an output is %q", line)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
				t.Error("the server chose a file")
			}
		})
	}
}
