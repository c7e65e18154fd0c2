package fair

import "testing"

func TestVisitor(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.1:443":          "192.0.2.1",
		"192.0.2.1":              "192.0.2.1",
		"[::ffff:192.0.2.1]:1":   "192.0.2.1",
		"::ffff:192.0.2.1":       "192.0.2.1",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"2001:db8:1:2::9":        "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":       "fe80::/64",
		"pipe":                   "pipe",
		"":                       "",
	} {
		if got := Visitor(in); got != want {
			t.Errorf("Visitor(%q) = %q, want %q", in, got, want)
		}
	}
}
