package main

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// CI must run what a newcomer gets: nothing of this machine's home directory and caches except its proxies, and it must
// also work without a home directory. The output and exit status must be those of `make test`, and its folders must be
// removed.
func TestCIStartsEmpty(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	for name, text := range map[string]string{
		".ci/run":              string(script),
		"home/.config/go/env":  "GOPROXY=https://modules.example,direct\nGOSUMDB=sums.example\nGOFLAGS=-mod=mod\n",
		"home/.gitconfig":      "[user]\nname = Ada\n",
		"bin/npm":              "#!/bin/sh\ncase $3 in registry) echo https://packages.example/ ;; *) echo null ;; esac\n",
		"home/go/pkg/old":      "",
		"home/.npm/_cacache/x": "",
		"bin/make": `#!/bin/sh
set -e
echo "target $*"
echo "files $(cd "$HOME" && find . -type f)"
echo "home $HOME"
for name in GOPROXY GOSUMDB GOFLAGS GOCACHE GOMODCACHE; do echo "$name $(go env $name)"; done
echo "registry $npm_config_registry"
echo "cafile $npm_config_cafile"
echo "name $(git config user.name)"
echo "folder $PWD"
mkdir -p "$(go env GOMODCACHE)/module@v1" "$(go env GOCACHE)"
chmod 555 "$(go env GOMODCACHE)/module@v1"
exit 3
`,
	} {
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v %s", err, out)
	}
	own := []string{"HOME", "XDG_", "GO", "npm_config_", "NPM_CONFIG_", "GIT_"}
	environment := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc(own, func(name string) bool { return strings.HasPrefix(e, name) })
	})
	environment = append(environment, "PATH="+filepath.Join(top, "bin")+":"+os.Getenv("PATH"), "GIT_CONFIG_SYSTEM=/dev/null")
	for name, more := range map[string][]string{
		"with a home": {"HOME=" + filepath.Join(top, "home")},
		"without a home": {
			"GOPROXY=https://modules.example,direct", "GOSUMDB=sums.example", "GOCACHE=" + filepath.Join(top, "home"), "GOFLAGS=-mod=mod",
			"XDG_CACHE_HOME=" + filepath.Join(top, "home"), "GOMODCACHE=" + filepath.Join(top, "home"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(filepath.Join(top, ".ci", "run"))
			cmd.Dir, cmd.Env = t.TempDir(), append(slices.Clone(environment), more...)
			out, err := cmd.Output()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != 3 {
				t.Fatalf("%v: %s", err, out)
			}
			got := map[string]string{}
			for line := range strings.Lines(string(out)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				got[key] = value
			}
			home := got["home"]
			want := map[string]string{
				"target": "test", "files": "./.config/go/telemetry/mode", "home": home, "GOPROXY": "https://modules.example,direct", "GOSUMDB": "sums.example", "GOFLAGS": "",
				"GOCACHE": filepath.Join(home, ".cache/go-build"), "GOMODCACHE": filepath.Join(home, "go/pkg/mod"),
				"registry": "https://packages.example/", "cafile": "", "name": "", "folder": top,
			}
			if !maps.Equal(got, want) {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
			if _, err := os.Stat(filepath.Dir(home)); !errors.Is(err, os.ErrNotExist) || !strings.Contains(home, "slipway-ci.") {
				t.Errorf("%s stays: %v", home, err)
			}
		})
	}
}
