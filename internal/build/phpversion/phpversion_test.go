package phpversion

import (
	"context"
	"strings"
	"testing"
)

func TestConstraint(t *testing.T) {
	t.Parallel()
	for constraint, versions := range map[string]map[string]bool{
		"":              {"5.6.0": true, "8.4.1": true},
		"*":             {"7.4.0": true},
		"^8.1":          {"8.0.30": false, "8.1.0": true, "8.4.9": true, "9.0.0": false},
		"^8.1.5":        {"8.1.4": false, "8.1.5": true},
		"~8.1":          {"8.1.0": true, "8.3.0": true, "9.0.0": false},
		"~8.1.2":        {"8.1.2": true, "8.1.9": true, "8.2.0": false},
		">=8.1":         {"8.0.0": false, "9.9.9": true},
		">=8.1 <8.3":    {"8.2.9": true, "8.3.0": false},
		">= 8.1, < 8.3": {"8.2.9": true, "8.3.0": false},
		"^7.4 || ^8.0":  {"7.4.3": true, "8.2.0": true, "7.3.0": false},
		"^7.4|^8.0":     {"8.2.0": true},
		"8.2.*":         {"8.2.35": true, "8.3.0": false},
		"8.2":           {"8.2.35": true, "8.3.0": false},
		"8.x":           {"8.9.9": true, "9.0.0": false},
		"8.0 - 8.2":     {"8.0.0": true, "8.2.35": true, "8.3.0": false},
		">8.1":          {"8.1.0": false, "8.1.1": true},
		"<=8.2.35":      {"8.2.35": true, "8.2.36": false},
		"!=8.2.5 ^8.2":  {"8.2.5": false, "8.2.6": true, "8.2.4": true},
		"^8.1.0-beta1":  {"8.2.0": true},
		"^8.2@dev":      {"8.2.0": true},
	} {
		a, err := parseConstraint(constraint)
		if err != nil {
			t.Errorf("%q: %v", constraint, err)
			continue
		}
		for v, want := range versions {
			if a.has(parts(v)) != want {
				t.Errorf("%q has %s: %v", constraint, v, !want)
			}
		}
	}
	for _, bad := range []string{"latest", "^", ">=", "8.1 ||", "a.b", "||", "^8.1 && ^8.2", strings.Repeat("8", 300), "1 - "} {
		if _, err := parseConstraint(bad); err == nil {
			t.Errorf("%q is taken for a constraint", bad)
		}
	}
}

// Choose returns an installed version with both programs, or an error that names the missing version.
func TestChoose(t *testing.T) {
	t.Parallel()
	if len(Installed(context.Background())) == 0 {
		t.Fatal("no PHP on this host: scripts install php-fpm for the tests")
	}
	v, err := Choose(t.Context(), ">=7")
	if err != nil || v.CLI == "" || v.FPM == "" || parts(v.Number)[0] < 7 {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := Choose(t.Context(), "^99.1"); err == nil || !strings.Contains(err.Error(), "PHP ^99.1 is not installed") {
		t.Errorf("%v", err)
	}
}

// A constraint is either invalid, or parsing it again gives the same. Version 1,000,000 isn't in a constraint with a
// lower upper bound.
func FuzzConstraint(f *testing.F) {
	for _, s := range []string{"^8.1", "~7.4.3 || >=8 <9", "8.0 - 8.2", "*", "!=8.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseConstraint(s)
		if err != nil {
			return
		}
		for _, x := range a {
			if compare(x.from, x.to) > 0 {
				t.Errorf("%q: %v", s, x)
			}
		}
	})
}
