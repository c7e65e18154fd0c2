package e2e

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"slipway/e2e/world"
)

// The API clients that an installation generates compile with strict settings. With only a token, they publish a site,
// follow its log, read several pages, repeat a call and report errors. The examples in docs/clients.md compile too.
func TestAPIClients(t *testing.T) {
	t.Parallel()
	world.Long(t)
	guide, err := os.ReadFile(filepath.Join(world.Root(), "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := func(language string) string {
		t.Helper()
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(guide)
		if found == nil {
			t.Fatalf("docs/clients.md has no example in %s", language)
		}
		return string(found[1])
	}
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		dir := installNode(t, "typescript")
		w, env := newClients(t, filepath.Join(dir, "slipway.ts"))
		if err := world.WriteFiles(dir, map[string]string{"example.ts": example("ts")}); err != nil {
			t.Fatal(err)
		}
		compile := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", "tsc"))
		compile.Dir = dir
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("tsc: %v\n%s", err, out)
		}
		w.publishes(t, dir, env, "node", "main.js")
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		w, env := newClients(t, filepath.Join(dir, "slipway", "slipway.go"))
		program, err := os.ReadFile(filepath.Join("testdata", "clients", "main.go.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if err := world.WriteFiles(dir, map[string]string{
			"go.mod":  "module acme\n\ngo 1.24.0\n",
			"main.go": string(program),
			"example/example.go": "package example\n\nimport (\n\t\"context\"\n\t\"os\"\n\n\t\"acme/slipway\"\n)\n\n" +
				"func example(ctx context.Context) error {\n" + example("go") + "return nil\n}\n",
		}); err != nil {
			t.Fatal(err)
		}
		vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
		vet.Dir = dir
		if out, err := vet.CombinedOutput(); err != nil {
			t.Fatalf("go vet: %v\n%s", err, out)
		}
		w.publishes(t, dir, env, "go", "run", ".")
	})
}

type publishing struct{ *world.World }

// newClients starts an installation and stores its generated client in a file. It also returns the environment for a
// program that uses the client.
func newClients(t *testing.T, file string) (publishing, []string) {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen, "--rate-limit", "10000")
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get("http://" + w.Listen + "/api/v1/clients/" + filepath.Base(file))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = world.WriteFiles(filepath.Dir(file), map[string]string{filepath.Base(file): string(text)})
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	dir := t.TempDir()
	if _, err := folder(dir); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(filepath.Join(dir, "site.zip"))
	if err != nil {
		t.Fatal(err)
	}
	return publishing{w}, append(os.Environ(), "SLIPWAY_TOKEN="+key, "ARCHIVE="+base64.StdEncoding.EncodeToString(archive),
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
}

// publishes runs a program and compares its output with the installation's data.
func (w publishing) publishes(t *testing.T, dir string, env []string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, err.(*exec.ExitError).Stderr)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	delete(got, "url")
	want := map[string]any{
		"status": "success", "name": "Harbor & Søn", "tags": []any{"shop"}, "env": 101.0, "last": true,
		"lines": true, "failure": "404 site_not_found", "once": true, "plain": "refused",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the program saw %v\nwant %v", got, want)
	}
}
