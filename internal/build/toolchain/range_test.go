package toolchain

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRange(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct{ in, out string }{
		"":                   {"0.0.1 18.0.0 99.1.2", "18.0.0-rc.1"},
		"*":                  {"1.0.0", "1.0.0-a"},
		">=18 <21":           {"18.0.0 20.20.2", "17.9.9 21.0.0 21.0.0-0"},
		">= 18  < 21":        {"18.0.0 20.20.2", "17.9.9 21.0.0"},
		"18.x":               {"18.0.0 18.99.1", "17.0.0 19.0.0 19.0.0-0"},
		"18":                 {"18.0.0 18.99.1", "19.0.0"},
		"v20":                {"20.1.2", "21.0.0 19.9.9"},
		"^18.17.0 || >=20.5": {"18.17.0 18.20.1 20.5.0 22.0.0", "18.16.9 19.0.0 20.4.9"},
		"~18.17":             {"18.17.0 18.17.9", "18.18.0"},
		"~> 18":              {"18.0.0 18.18.0", "19.0.0"},
		"^0.2.3":             {"0.2.3 0.2.9", "0.3.0 0.2.2"},
		"^0.0.3":             {"0.0.3", "0.0.4"},
		"^0":                 {"0.9.9", "1.0.0"},
		"16 - 18":            {"16.0.0 18.99.0", "15.9.9 19.0.0"},
		"16.1.2 - 18.1.0":    {"16.1.2 18.1.0", "18.1.1 16.1.1"},
		">18":                {"19.0.0", "18.99.9"},
		"<=18":               {"18.99.9", "19.0.0"},
		"<18":                {"17.9.9", "18.0.0 18.0.0-rc.1"},
		"=20.1.0":            {"20.1.0", "20.1.1"},
		">=20.0.0-rc.1":      {"20.0.0-rc.2 20.0.0 21.0.0", "20.0.0-rc.0 20.0.1-rc.1"},
		"^9 || ^10":          {"9.0.0 10.99.0", "8.9.9 11.0.0"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r, ok := parseRange(text)
			if !ok {
				t.Fatalf("parseRange(%q) refused it", text)
			}
			for want, list := range map[bool]string{true: tt.in, false: tt.out} {
				for s := range strings.FieldsSeq(list) {
					v, ok := parseVersion(s)
					if !ok {
						t.Fatalf("parseVersion(%q) refused it", s)
					}
					if got := r.has(v); got != want {
						t.Errorf("%q has %s = %v, want %v", text, s, got, want)
					}
				}
			}
		})
	}
	for _, bad := range []string{
		"abc", "18.x.y.z", ">=18<21", "1.2.3-", "01.2.3", "18; rm -rf /", "--help", "../..", "18\x00", "1.2-beta",
		"99999999999999999999", strings.Repeat("1 ", 300), "file:x", "https://example.com/x.tgz",
	} {
		if _, ok := parseRange(bad); ok {
			t.Errorf("parseRange(%q) accepted it", bad)
		}
	}
}

// Ranges agree with node-semver, from the host's npm, for every pair of range and version. (It sometimes rejects 1.x.3
// and ==1.2.3, which parseRange accepts.)
func TestRangeAgreesWithNPM(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("this test needs npm: apt-get install nodejs npm")
	}
	if npm, err = filepath.EvalSymlinks(npm); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(filepath.Dir(filepath.Dir(npm)), "node_modules", "semver")
	if _, err := os.Stat(lib); err != nil {
		lib = "semver" // Node.js finds Debian's own packages in its default paths
	}
	partials := []string{
		"*", "x", "0", "1", "1.x", "1.2", "1.2.x", "1.2.3", "0.0", "0.1", "0.0.1", "0.1.2", "1.2.3-rc.1", "v1.2",
		"1.2.3-alpha.10+b.1", "2.0.0-0", "1.*", "01.2", "1.2.3.4", "1.2-rc", "q", "1.2.3-01", "1.2.3-a..b", "1.2.3+x",
	}
	var ranges []string
	for _, op := range []string{"", ">", ">=", "<", "<=", "=", "^", "~", "~>", ">= ", "^ ", "~ ", "!", "=>"} {
		for _, p := range partials {
			ranges = append(ranges, op+p, op+p+" <2", "<1 || "+op+p)
		}
	}
	for _, a := range partials {
		for _, b := range partials {
			ranges = append(ranges, a+" - "+b)
		}
	}
	ranges = append(
		ranges, "||", "", " ", ">", "1 || ", "1 2", "1.2.3 - 2 || 5", "1 - 2 3", ">=1 <1.2 || ^1.2.3-rc.0", "1||2",
		"1 -2", "1- 2",
	)
	list := []string{
		"0.0.0", "0.0.1", "0.0.2", "0.1.0", "0.1.2", "0.1.3", "0.2.0", "1.0.0", "1.0.0-0", "1.1.9", "1.2.0", "1.2.3",
		"1.2.3-rc.1", "1.2.3-rc.2", "1.2.3-alpha.10", "1.2.3-alpha.9", "1.2.4", "1.3.0", "2.0.0-0", "2.0.0-rc.1",
		"2.0.0", "2.1.0", "3.0.0", "3.0.0-0",
	}
	in, err := json.Marshal([2][]string{ranges, list})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "-e", `const s = require(process.argv[1]), [rs, vs] = JSON.parse(require("fs").readFileSync(0))
console.log(JSON.stringify(rs.map(r => s.validRange(r) === null ? null : vs.map(v => s.satisfies(v, r)))))`, lib)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask node-semver: %v", err)
	}
	var want [][]bool
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(ranges) {
		t.Fatalf("read node-semver's answer: %v", err)
	}
	for i, text := range ranges {
		r, ok := parseRange(text)
		if ok != (want[i] != nil) {
			t.Errorf("parseRange(%q) = %v, node-semver says %v", text, ok, want[i] != nil)
			continue
		}
		for j, s := range list {
			v, _ := parseVersion(s)
			if ok && r.has(v) != want[i][j] {
				t.Errorf("%q has %s = %v, node-semver says %v", text, s, r.has(v), want[i][j])
			}
		}
	}
}

// A valid version prints as an equal version and is in the range that consists of it. Parsing a range doesn't panic.
func FuzzRange(f *testing.F) {
	for _, s := range []string{">=18 <21", "^1.2.3-rc.1 || ~2", "1 - 2", "v20.1.0", "*", "1.2.3-0.a+b", "lts/*", "~>0.0.0"} {
		f.Add(s, "1.2.3-rc.1")
	}
	f.Fuzz(func(t *testing.T, text, s string) {
		r, okRange := parseRange(text)
		v, ok := parseVersion(s)
		if !ok {
			return
		}
		again, ok := parseVersion(v.String())
		if !ok || again.compare(v) != 0 {
			t.Fatalf("%q prints as %q, which is not the same", s, v)
		}
		one, ok := parseRange(v.String())
		if !ok || !one.has(v) {
			t.Fatalf("the range %q does not hold it", v)
		}
		if okRange {
			r.has(v)
		}
	})
}
