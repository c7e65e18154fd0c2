package delivery

import (
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://example.test/hook":          "https://example.test/hook",
		"HTTPS://Example.TEST:443/A?b=c%20d": "https://example.test/A?b=c%20d",
		"https://qa--site.netlify.test/":     "https://qa--site.netlify.test/",
		"https://münchen.test/ü":             "https://xn--mnchen-3ya.test/%C3%BC",
		"https://127.0.0.1:8443/x":           "https://127.0.0.1:8443/x",
		"https://[::1]:8443/x":               "https://[::1]:8443/x",
		"https://localhost":                  "https://localhost",
	} {
		got, err := CheckURL(in)
		if err != nil || got != want {
			t.Errorf("checkURL(%q) = %q, %v; want %q", in, got, err, want)
		}
		if again, err := CheckURL(got); err != nil || again != got {
			t.Errorf("%q isn't its own normal form: %q, %v", got, again, err)
		}
	}
	for _, in := range []string{
		"", "x", "http://example.test/", "ftp://example.test", "https://", "https:///x", "https:example.test",
		"//example.test", "https://u:p@example.test/", "https://u@example.test/", "https://example.test/#x",
		"https://example.test/#", "https://example.test./", "https://a..b/", "https://.a/", "https://exa mple.test/",
		"https://example.test/a b", "https://example.test/\n", "https://example.test\\@evil.test/", "https://0x7f.1/",
		"https://0x7f000001/", "https://2130706433/", "https://127.1/", "https://0177.0.0.1/", "https://1.2.3.4.5/",
		"https://[fe80::1%25eth0]/", "https://example.test:0/", "https://example.test:99999/",
		"https://example.test:/", "https://example.test:x/",
		"https://" + strings.Repeat("a", 64) + ".test/",
		"https://" + strings.Repeat("a.", 130) + "test/",
		"https://example.test/" + strings.Repeat("a", 2048),
		"javascript:alert(1)",
		"https://%65xample.test/",
	} {
		if got, err := CheckURL(in); !fault.Is(err, fault.Invalid) {
			t.Errorf("checkURL(%q) = %q, %v; want an Invalid fault", in, got, err)
		} else if f := fault.As(err); strings.Contains(in, "u:p@") && f.Received != nil {
			t.Errorf("%q: the password is echoed", in)
		}
	}
}

// A URL that checkURL accepts is https, has no user info and is normalized.
func FuzzCheckURL(f *testing.F) {
	f.Add("https://example.test/hook?x=y")
	f.Add("https://u:p@ex/")
	f.Add("https://[::ffff:1.2.3.4]:444/")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := CheckURL(s)
		if err != nil {
			return
		}
		if !strings.HasPrefix(got, "https://") || len(got) > maxURL {
			t.Fatalf("%q → %q", s, got)
		}
		if host, _, _ := strings.Cut(got[8:], "/"); strings.Contains(host, "@") {
			t.Fatalf("%q → %q", s, got)
		}
		if again, err := CheckURL(got); err != nil || again != got {
			t.Fatalf("%q → %q → %q, %v", s, got, again, err)
		}
	})
}
