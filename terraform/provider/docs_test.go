package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// tools returns the programs that run configurations, if they are installed and support write-only values.
func tools(t *testing.T) (found []string) {
	t.Helper()
	for _, name := range []string{os.Getenv("SLIPWAY_TOFU"), "tofu", "terraform"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, "version", "-json")
		cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+os.DevNull) // a file that is named but missing would cause a warning in the output
		out, err := cmd.Output()
		var said struct {
			Version string `json:"terraform_version"`
		}
		if err = errors.Join(err, json.Unmarshal(out, &said)); err != nil {
			t.Fatalf("%s version: %v", path, err)
		}
		var major, minor int
		if _, err := fmt.Sscanf(said.Version, "%d.%d", &major, &minor); err != nil || major == 1 && minor < 11 {
			t.Logf("%s is of version %s, which knows no write-only values", path, said.Version)
			continue
		}
		found = append(found, path)
	}
	return found
}

// folder is a folder in which a tool finds the provider built from these sources.
type folder struct {
	t         *testing.T
	tool, dir string
	env       []string
}

func newFolder(t *testing.T, tool, server, key string) *folder {
	t.Helper()
	f := &folder{t: t, tool: tool, dir: t.TempDir()}
	plugins := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(plugins, "terraform-provider-slipway"), "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	config := filepath.Join(plugins, "config.tfrc")
	f.write(config, fmt.Sprintf("provider_installation {\n  dev_overrides {\n    %q = %q\n  }\n  direct {}\n}\n", "slipway.internal/slipway/slipway", plugins))
	f.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "SLIPWAY_SERVER="+server, "SLIPWAY_TOKEN="+key)
	return f
}

func (f *folder) write(name, text string) {
	f.t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(f.dir, name)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// run runs the tool and returns its output and its exit status.
func (f *folder) run(args ...string) (string, int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), world.Patience(deadline))
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, f.tool, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = f.dir, f.env, &out, &out
	err := cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		f.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// does runs the tool, which must exit with 0, and returns its output.
func (f *folder) does(args ...string) string {
	f.t.Helper()
	out, status := f.run(args...)
	if status != 0 {
		f.t.Fatalf("%v ends with %d:\n%s", args, status, out)
	}
	return out
}

// plansNothing fails the test if a plan would change anything.
func (f *folder) plansNothing(when string) {
	f.t.Helper()
	if out, status := f.run("plan", "-no-color", "-input=false", "-detailed-exitcode"); status != 0 {
		f.t.Errorf("%s, a plan isn't empty (%d):\n%s", when, status, out)
	}
}

// guide returns the configuration that docs/terraform.md shows, with all its parts joined.
func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "terraform.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, m := range regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(text, -1) {
		all.Write(m[1])
	}
	return strings.Replace(all.String(), `provider "slipway" {
  server = "https://slipway.example"
}`, `provider "slipway" {}`, 1)
}

// The example must apply unchanged, and its page must go live.
func TestExample(t *testing.T) {
	t.Parallel()
	found := tools(t)
	if len(found) == 0 {
		t.Skip("NOT RUN: neither Terraform nor OpenTofu, 1.11 or later, is there")
	}
	w, key := start(t)
	f := newFolder(t, found[0], "http://"+w.Listen, key)
	if err := os.CopyFS(f.dir, os.DirFS("../../examples/terraform")); err != nil {
		t.Fatal(err)
	}
	f.does("fmt", "-check", "-diff")
	f.does("apply", "-no-color", "-input=false", "-auto-approve")
	address := strings.TrimSpace(f.does("output", "-raw", "address"))
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	page, err := world.Read(browser.Get(address))
	if err != nil || page.Status != 200 || !strings.Contains(string(page.Body), "A harbor made by Terraform") {
		t.Errorf("%s answers %d %s, %v", address, page.Status, page.Body, err)
	}
	f.plansNothing("after it was applied")
	f.does("destroy", "-no-color", "-auto-approve")
}

// The guide's configuration must work with the real tools: it must apply, and the next plan must be empty. Protected
// objects must not be destroyed until the protection is removed. No state, plan or log may contain the secret or the
// token.
func TestGuide(t *testing.T) {
	t.Parallel()
	found := tools(t)
	if len(found) == 0 {
		t.Skip("NOT RUN: neither Terraform nor OpenTofu, 1.11 or later, is there; TestSite and the others call the provider without them")
	}
	for _, tool := range found {
		t.Run(filepath.Base(tool), func(t *testing.T) {
			t.Parallel()
			w, key := start(t)
			f := newFolder(t, tool, "http://"+w.Listen, key)
			const canary = "hunter2-canary"
			f.env = append(f.env, "TF_VAR_mailbox_key="+canary, "TF_VAR_chat_url=https://hooks.example.com/"+canary, "TF_LOG=TRACE", "TF_LOG_PATH="+filepath.Join(f.dir, "trace.log"))
			f.write("main.tf", guide(t))
			if err := os.Mkdir(filepath.Join(f.dir, "dist"), 0o700); err != nil {
				t.Fatal(err)
			}
			f.write("dist/index.html", "ahoy")
			f.does("fmt", "-check", "-diff")
			f.does("plan", "-no-color", "-input=false", "-out=planned")
			out := f.does("apply", "-no-color", "-input=false", "planned")
			for _, want := range []string{`"owner" = "ada@example.test"`, "\"slugs\" = tolist([\n    \"shop\",\n  ])"} {
				if !strings.Contains(out, want) {
					t.Errorf("the outputs are without %s: %s", want, out)
				}
			}
			f.plansNothing("after it was applied")
			var sites, keys struct {
				Data []struct{ ID, Name string }
			}
			if err := w.Call(t.Context(), key, "GET", "/keys", nil, &keys); err != nil || len(keys.Data) != 1 {
				t.Errorf("after the run there are the keys %+v: %v", keys.Data, err)
			}
			get := func() {
				t.Helper()
				sites.Data = nil
				if err := w.Call(t.Context(), key, "GET", "/sites", nil, &sites); err != nil {
					t.Fatal(err)
				}
			}
			get()
			if len(sites.Data) != 1 || sites.Data[0].Name != "Shop" {
				t.Fatalf("the sites are %+v", sites.Data)
			}
			if out, status := f.run("destroy", "-no-color", "-auto-approve", "-target=slipway_site.shop"); status == 0 || !strings.Contains(out, "protected") {
				t.Errorf("destroying a protected site ends with %d:\n%s", status, out)
			}
			get()
			if len(sites.Data) != 1 {
				t.Fatal("the protected site is gone")
			}
			f.write("main.tf", regexp.MustCompile(`resource "slipway_(site|database)" .*`).ReplaceAllString(guide(t), "$0\n  deletion_protection = false\n"))
			f.does("apply", "-no-color", "-input=false", "-auto-approve")
			f.does("destroy", "-no-color", "-auto-approve")
			get()
			if len(sites.Data) != 0 {
				t.Errorf("%+v is left", sites.Data)
			}
			err := filepath.WalkDir(f.dir, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := os.ReadFile(path)
				for _, secret := range []string{canary, key} {
					if bytes.Contains(text, []byte(secret)) {
						t.Errorf("a secret is in %s", d.Name())
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
