package buildlog

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite what is wanted in testdata")

// Each case is the output of a tool, with ␛ for escape, and the expected cause, excerpt, and lines whose level isn't
// info. `set exit|stage|manager|memory value` in the comment describes the failure.
func TestOutputs(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			l, lines := record(Config{})
			write(t, l, strings.ReplaceAll(string(ar.Files[0].Data), "␛", "\x1b"))
			l.Close()
			var b strings.Builder
			fmt.Fprintf(&b, "%s\n\n", l.Cause(failure(t, string(ar.Comment))))
			for _, s := range l.Excerpt(15) {
				fmt.Fprintf(&b, "| %s\n", s)
			}
			b.WriteByte('\n')
			for _, x := range lines.all() {
				if x.Level != "info" {
					fmt.Fprintf(&b, "%s: %s\n", x.Level, x.Message)
				}
			}
			if *update {
				ar.Files = append(ar.Files[:1], txtar.File{Name: "WANT", Data: []byte(b.String())})
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(ar.Files[1].Data), b.String()); d != "" {
				t.Errorf("differs (-want +got); go test -update rewrites it:\n%s", d)
			}
		})
	}
}

func failure(t *testing.T, comment string) (f Failure) {
	f.ExitCode = 1
	for line := range strings.Lines(comment) {
		var key, value string
		if n, _ := fmt.Sscanf(line, "set %s %s", &key, &value); n != 2 {
			continue
		}
		n, _ := strconv.Atoi(value)
		switch key {
		case "exit":
			f.ExitCode = n
		case "stage":
			f.Stage = value
		case "manager":
			f.Manager = value
		case "memory":
			f.MemoryLimit = int64(n) << 20
		default:
			t.Fatalf("unknown setting %q", line)
		}
	}
	return f
}

func TestCauseOfFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		output string
		f      Failure
		want   string
	}{
		"out of memory": {
			"Error: anything",
			Failure{ExitCode: 137, OOM: true, MemoryLimit: 1 << 30},
			"Out of memory: the limit is 1 GiB; reduce the memory that the build uses, for example with fewer workers, or ask the operator to raise --build-memory",
		},
		"time": {
			"",
			Failure{ExitCode: 137, Killed: "timeout", Stage: "install", TimeLimit: 15 * time.Minute},
			"The install timed out: the limit is 15m0s; a command that waits for input or watches files never ends by itself",
		},
		"disk": {
			"",
			Failure{Killed: "disk limit", DiskLimit: 5 << 29},
			"Disk full: the limit is 2.5 GiB; look for large dependencies, caches or generated files, or ask the operator to raise --build-disk",
		},
		"flood": {
			"",
			Failure{Killed: "log flood"},
			"The build was stopped because it printed far more than the log limit; look for a loop that prints",
		},
		"canceled": {"", Failure{Killed: "canceled"}, "The build was canceled"},
		"no output": {
			"warning: x",
			Failure{Missing: "dist", Found: []string{"build"}},
			"Output folder dist is missing; found: build",
		},
		"many outputs": {
			"",
			Failure{Missing: "dist", Found: strings.Fields("a b c d e f")},
			"Output folder dist is missing; found: a, b, c, d, e and more",
		},
		"nothing written": {
			"",
			Failure{Missing: "dist"},
			"Output folder dist is missing; the build wrote no folder that looks like an output folder: set it in the build settings",
		},
		"127": {
			"",
			Failure{ExitCode: 127},
			"The build command was not found: add the tool that it needs to the project's dependencies",
		},
		"137": {
			"",
			Failure{ExitCode: 137, MemoryLimit: 512 << 20},
			"A process of the build was killed, most likely for lack of memory: the limit is 512 MiB",
		},
		"echoed script": {
			"sharp install$ node install/check || npx node-gyp rebuild\nsharp install: Done\nError: no luck today\n",
			Failure{ExitCode: 1},
			"Error: no luck today",
		},
		"unnamed variable": {
			"Error: a required environment variable is not set\n",
			Failure{ExitCode: 1},
			"Error: a required environment variable is not set",
		},
		"first error": {"hello\nError: no luck today\n    at x.js:1:2\n", Failure{ExitCode: 3}, "Error: no luck today"},
		"abort": {
			"",
			Failure{ExitCode: 134, MemoryLimit: 1 << 28},
			"A process of the build crashed; Node.js does so when memory or threads run out: the limit is 256 MiB",
		},
		"silent": {"hello", Failure{ExitCode: 3, Stage: "install"}, "Its output ends with: hello"},
		"unreachable PyPI": {
			"WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\n" +
				"ERROR: Could not find a version that satisfies the requirement mkdocs (from versions: none)",
			Failure{ExitCode: 1},
			"The Python package index can't be reached: check its address, or redeploy later",
		},
		"zero": {"", Failure{}, "The build failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := record(Config{})
			write(t, l, tt.output)
			l.Close()
			if got := l.Cause(tt.f); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// One line of output per entry of the table of causes, and text that the cause must contain.
func TestCauses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory":                                      "below the build's memory limit of 1 GiB",
		"ERR_PNPM_FETCH_404  GET https://registry.example.com/@unocss/eslint-config/-/eslint-config-66.6.1.tgz: Not Found - 404": "no eslint-config-66.6.1.tgz of package @unocss/eslint-config, which the lock file names",
		"npm error 404 Not Found - GET https://registry.example.com/left/-/left-1.0.0.tgz - Not found":                           "no left-1.0.0.tgz of package left, which",
		"Error: ENOSPC: no space left on device, write":                                                                          "Disk full",
		"Error: ENOSPC: System limit for number of file watchers reached, watch '/build'":                                        "builds once",
		"Error: EMFILE: too many open files, open 'x'":                                                                           "fewer workers",

		"npm ERR! code ERESOLVE": "conflict",
		"npm ERR! 404  '@acme/private@^1.0.0' is not in this registry.": "@acme/private ",

		"npm error code E401":       "refused access",
		"npm error code EBADENGINE": ".nvmrc",
		"npm error code EINTEGRITY": "lock file",
		" ERR_PNPM_FETCH_404  GET https://registry.example.com/no-such-thing: Not Found - 404":                 "no-such-thing is not",
		`error An unexpected error occurred: "https://registry.example.com/no-such-thing: Not found".`:         "no-such-thing is not",
		"error This project's package.json defines \"x\"; error: lockfile had changes, but lockfile is frozen": "bun install",
		"➤ YN0028: │ The lockfile would have been modified by this install, which is explicitly forbidden.":    "yarn install",
		"Error: error:0308010C:digital envelope routines::unsupported":                                         "Node.js 16",
		"  code: 'ERR_OSSL_EVP_UNSUPPORTED'":                                                                   "Node.js 16",
		"Error: getaddrinfo ENOTFOUND api.example.com":                                                         "Host api.example.com",
		"curl: (6) Could not resolve host: example.org":                                                        "Host example.org",
		"reason: getaddrinfo EAI_AGAIN fonts.example.com] {":                                                   "Host fonts.example.com does",
		"[Error: connect ECONNREFUSED 192.0.2.1:443]":                                                          "No connection to 192.0.2.1:443: ",
		"Error: environment variable API_URL is not set":                                                       "API_URL is not set",
		"Error: connect ECONNREFUSED 127.0.0.1:5432":                                                           "127.0.0.1:5432",
		"sh: 1: hugo: not found":                                                                               "hugo is not on this host",
		"/bin/sh: line 1: gatsby: command not found":                                                           "Command gatsby",
		"sh: 1: ./build.sh: Permission denied":                                                                 "update-index --chmod=+x",
		"Error: spawn git-lfs ENOENT":                                                                          "Command git-lfs",
		"Module not found: Error: Can't resolve './components/header' in '/build/src'":                         "case-sensitive",
		"× Module not found: Can't resolve 'path' in '/build/repo/node_modules/x/lib'":                         "loads path of Node.js",
		"npm error sharp: Installation error: getaddrinfo ENOTFOUND github.com":                                "sharp's library could not be downloaded: github.com",
		"[vite]: Rollup failed to resolve import \"lodash\" from \"/build/src/main.js\".":                      "Module lodash ",
		"Treating warnings as errors because process.env.CI = true.":                                           "CI=false",
		"src/a.ts:3:1 - error TS2304: Cannot find name 'x'.":                                                   "src/a.ts, line 3",
		"Error occurred prerendering page \"/blog\". Read more: https://nextjs.org":                            "Page /blog",
		"Error: Cannot find module @rollup/rollup-linux-x64-gnu. npm has a bug":                                "this platform",
		"ERROR: Could not find a version that satisfies the requirement mkdocs-nothere (from versions: none)":  "mkdocs-nothere",
		"Could not find gem 'jekyll (~> 9)' in locally installed gems.":                                        "jekyll",
		"Error: Missing required environment variable: DATABASE_URL":                                           "DATABASE_URL",
		"zola: command not found":                                                                              "zola is not on this host",
		"hugo: command not found":                                                                              "hugo-extended",
		"gatsby: command not found":                                                                            "Command gatsby",
		"npm error Missing: left-pad@1.3.0 from lock file":                                                     "left-pad@1.3.0 is missing from the lock file",
		"npm error Invalid: lock file's is-odd@3.0.1 does not satisfy is-odd@2.0.0":                            "has is-odd@3.0.1 where is-odd@2.0.0",
		"    - Root composer.json requires PHP extension ext-imagick * but it is missing from your system. Install or enable PHP's imagick extension.": "no extension imagick:",
		"    - acme/x 1.2.0 requires ext-zip * -> it is missing from your system. Install or enable PHP's zip extension.":                              "no extension zip:",
		"    - acme/x 1.2.0 requires php ^8.4 -> your php version (8.2.36) does not satisfy that requirement.":                                         "PHP 8.2.36, which runs here",
		"    - Root composer.json requires acme/none ^1.0, it could not be found in any version, there may be a typo in the package name.":             "Package acme/none is in none",
		"- Required package \"acme/x\" is not present in the lock file.":                                                                               "acme/x is missing from the lock file",
		"  curl error 6 while downloading https://repo.packagist.org/packages.json: Co  ":                                                              "Composer can't reach repo.packagist.org:",
		"npm error code E502":       "registry can't be reached",
		"npm error code ECONNRESET": "registry can't be reached",
		" WARN  Issue while reading \"/build/repo/.npmrc\". Failed to replace env in config: ${NPM_TOKEN}": "variable NPM_TOKEN, which is not set",
		"Usage Error: Environment variable not found (NPM_TOKEN) in /build/repo/.yarnrc.yml":               "variable NPM_TOKEN, which is not set",
		"➤ YN0035: │ is-odd-not-there@npm:3.0.1: Package not found":                                        "Package is-odd-not-there is not in the registry",
		"➤ YN0035: │ @acme/ui@npm:^3: Package not found":                                                   "Package @acme/ui is not in the registry",
		"➤ YN0082: │ is-odd@npm:99.0.1: No candidates found":                                               "is-odd@99.0.1 does not exist",
		"➤ YN0047: Cannot autofix a lockfile when running an immutable install":                            "merge conflict",
		"EOFError: EOF when reading a line":                                                                "builds are non-interactive",
		"Warning: Detected unsettled top-level await at file:///build/repo/x.mjs:1":                        "builds are non-interactive",
		"npm error npx canceled due to missing packages and no YES option: [\"create-vite@9.3.0\"]":        "npx would have to download create-vite:",
		"npm error npx canceled due to missing packages and no YES option: [\"@scope/x@9.3.0\"]":           "npx would have to download @scope/x:",
		"Error: EFBIG: file too large, write":                                                              "larger than its disk limit",
		"c.sh: 2: set: Illegal option -\r":                                                                 "Windows line endings",
		"/usr/bin/env: ‘bash\\r’: No such file or directory":                                               "Windows line endings",
		"c.sh: line 4: $'ls\\r': command not found":                                                        "Windows line endings",
		"sh: 1: source: not found":                                                                         "bash syntax",
		"sh: 3: [[: not found":                                                                             "bash syntax",
		"sh: 1: Syntax error: \"(\" unexpected":                                                            "bash syntax",
		"sh: 1: set: Illegal option -o pipefail":                                                           "bash syntax",
		"thread '<unnamed>' panicked at crates/rolldown/src/lib.rs:10:5:":                                  "A tool of the build crashed (crates/rolldown",
		"Rolldown panicked. This is a bug in Rolldown, not your code.":                                     "A tool of the build crashed (Rolldown)",
		"FATAL: An unexpected Turbopack error occurred. A panic log has been written to /tmp/x.log.":       "A tool of the build crashed (Turbopack)",
		"panic: runtime error: invalid memory address or nil pointer dereference":                          "A tool of the build crashed (runtime error",
		"npm ERR! missing script: build":                                                                   `no script "build"`,
		"error: Script not found \"build\"":                                                                `no script "build"`,

		"[vite:build-html] Failed to resolve /src/main.js from /build/repo/index.html":                      "Module /src/main.js can't be found",
		"[vite:build-html] src/main.js (1:10): Expression expected":                                         "Error in src/main.js, line 1: Expression expected",
		"src/main.js (1:8): \"b\" is not exported by \"src/a.js\", imported by \"src/main.js\".":            "src/main.js imports b from src/a.js",
		"[vite:css] Preprocessor dependency \"sass-embedded\" not found. Did you install it?":               "Package sass-embedded is not installed",
		"Could not resolve entry module \"index.html\".":                                                    "Page index.html is not there",
		"ESLint couldn't find an eslint.config.(js|mjs|cjs) file.":                                          "add eslint.config.js",
		"ESLint couldn't find the config \"airbnb\" to extend from.":                                        "config airbnb is not installed",
		" - configuration has an unknown property 'foo'. These properties are valid:":                       "unknown property foo",
		" - configuration.output has an unknown property 'bar'. These properties are valid:":                "configuration.output has an unknown property bar",
		"  \"./composer.json\" does not contain valid JSON":                                                 "composer.json is not valid JSON",
		"PHP Fatal error:  Uncaught Error: Failed opening required 'vendor/autoload.php' in /build/a.php:1": "PHP error: Uncaught Error: Failed opening",
		"npm error Unsupported URL Type \"workspace:\": workspace:*":                                        "versions written as \"workspace:\"",
		"error Couldn't find any versions for \"x\" that matches \"workspace:*\"":                           "versions written as \"workspace:\"",
		" ERROR  This project is configured to use yarn":                                                    "asks for yarn, and a command calls another",
		"npm error Invalid tag name \"next one\" of package \"x@next one\": Tags may not":                   `requests "next one", which is not a valid version`,
		"npm error notsup Unsupported platform for fsevents@2.3.3: wanted {\"os\":\"darwin\"}":              "fsevents@2.3.3 is not for Linux",
		"npm error An unknown git error occurred":                                                           "from a Git repository that can't be read",
		"npm error The `npm ci` command can only install with an existing package-lock.json or":             "missing or damaged",
		"sh: 1: cd: can't cd to frontend":                                                                   "Folder frontend is not there",
		"bash: line 1: cd: frontend: No such file or directory":                                             "Folder frontend is not there",
		"cp: cannot stat 'assets': No such file or directory":                                               "assets is not there",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			l, _ := record(Config{})
			write(t, l, "some text\n", line, "\n")
			l.Close()
			if got := l.Cause(Failure{ExitCode: 1, MemoryLimit: 1 << 30}); !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", line, got, want)
			}
		})
	}
}

// If a heading says nothing, the cause is in the lines after it. Warnings of a tool aren't the cause.
func TestCauseOfSeveralLines(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    open(\"data.csv\")\nFileNotFoundError: [Errno 2] No such file: 'data.csv'\n":        "FileNotFoundError: [Errno 2] No such file: 'data.csv'",
		"Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nacme.Interrupted\n":                                                                     "acme.Interrupted",
		"✗ Build failed in 46ms\nerror during build:\n[acme] The theme has no layout\n    at a (file:///x.js:1:2)\n":                                                       "[acme] The theme has no layout",
		"warn: cache: connect ECONNREFUSED 127.0.0.1:6379, memory is used\nWARN Cannot resolve 'x', skipped: Failed to resolve import \"x\"\nError: post 7 has no title\n": "Error: post 7 has no title",
	} {
		l, _ := record(Config{})
		write(t, l, out)
		l.Close()
		if got := l.Cause(Failure{ExitCode: 1}); got != want {
			t.Errorf("of %q it says %q, want %q", out, got, want)
		}
	}
}

// The error is found before the summary of a package manager, even if much output follows it.
func TestExcerptIsRemembered(t *testing.T) {
	t.Parallel()
	l, _ := record(Config{})
	write(
		t,
		l,
		"Error: the reason\n    at build (x.js:1:1)\n\n",
		strings.Repeat("cleaning up\n", 5000),
		"npm error Lifecycle script `build` failed with error:\nnpm error code 1\n",
	)
	l.Close()
	got := l.Excerpt(2)
	if d := cmp.Diff([]string{"Error: the reason", "    at build (x.js:1:1)"}, got); d != "" {
		t.Error(d)
	}
	if n := len(l.Excerpt(0)); n != 0 {
		t.Errorf("%d lines for max 0", n)
	}
	l, _ = record(Config{})
	write(t, l, strings.Repeat("fine\n", 500), "last but one\nlast\n\n")
	l.Close()
	if d := cmp.Diff([]string{"last but one", "last"}, l.Excerpt(2)); d != "" {
		t.Error(d)
	}
}

func TestLevel(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"npm warn deprecated x":                  "warn",
		"npm WARN old":                           "warn",
		"npm ERR! code 1":                        "error",
		" ERR_PNPM_X  y":                         "error",
		"✘ [ERROR] Could not resolve":            "error",
		"▲ [WARNING] x":                          "warn",
		"⨯ Error: x":                             "error",
		"TypeError: x is not a function":         "error",
		"  Error [ERR_X]: y":                     "error",
		"subprocess.CalledProcessError: x":       "error",
		"Error handling is described below":      "error", // a guess: rather show too much
		"errors: 0":                              "info",
		"0 errors":                               "info",
		"built dist/error.html":                  "info",
		"(!) Some chunks are larger than 500 kB": "warn",
		"(node:12) Warning: x":                   "warn",
		"src/a.ts(1,7): error TS2322: x":         "error",
		"15:19:47 [ERROR] [vite] x":              "error",
		"[15:19:47] warn: x":                     "warn",
		"15:19:47 ":                              "info",
		"npm verb cli node":                      "debug",
		"sh: 1: astro: not found":                "error",
		"":                                       "info",
		"─────":                                  "info",
		"Traceback (most recent call last):":     "error",
		"  DEBUG  x":                             "debug",
		"warnings are fine":                      "info",
	} {
		if got := level(message); got != want {
			t.Errorf("level(%q) = %s, want %s", message, got, want)
		}
	}
}

// Causes from the project's own files take precedence over those of package managers' output.
func TestCausesFromFiles(t *testing.T) {
	t.Parallel()
	windows := func(name string) bool { return name == "./build.sh" }
	for name, tt := range map[string]struct {
		line string
		f    Failure
		want string
	}{
		"merge conflict": {
			"The `npm ci` command can only install with an existing package-lock.json or",
			Failure{ExitCode: 1, Conflict: "package-lock.json"},
			"package-lock.json contains merge conflict markers",
		},
		"CRLF script": {
			"sh: 1: ./build.sh: not found",
			Failure{ExitCode: 127, Windows: windows},
			"Script ./build.sh has Windows line endings",
		},
		"CRLF script, bash": {
			"bash: line 1: ./build.sh: cannot execute: required file not found",
			Failure{ExitCode: 127, Windows: windows},
			"Script ./build.sh has Windows line endings",
		},
		"script that's absent": {
			"sh: 1: ./other.sh: not found",
			Failure{ExitCode: 127, Windows: windows},
			"Command ./other.sh was not found",
		},
		"unset variable":       {"npm error code E404", Failure{ExitCode: 1, Unset: "NPM_TOKEN"}, "NPM_TOKEN, which is not set"},
		"unset, another cause": {"npm error code ERESOLVE", Failure{ExitCode: 1, Unset: "NPM_TOKEN"}, "conflict"},
		"linked output":        {"built", Failure{Missing: "dist", Link: "build/out"}, "dist is a link to build/out"},
		"exit 13":              {"Name? ", Failure{ExitCode: 13}, "builds are non-interactive"},
		"exit 153":             {"writing", Failure{ExitCode: 153, DiskLimit: 4 << 30}, "the limit is 4 GiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := record(Config{})
			write(t, l, tt.line, "\n")
			l.Close()
			if got := l.Cause(tt.f); !strings.Contains(got, tt.want) {
				t.Errorf("%q lacks %q", got, tt.want)
			}
		})
	}
}
