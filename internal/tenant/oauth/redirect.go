package oauth

import (
	"net/url"
	"slices"
	"strings"

	"slipway/internal/platform/fault"
)

const (
	maxRedirects   = 20
	maxRedirectLen = 500
)

// checkRedirect refuses an address that no app may be answered at. Allowed are https, http on a
// loopback host (RFC 8252 §7.3), and private schemes that are domain names backwards (RFC 8252 §7.1).
func checkRedirect(uri string) error {
	refuse := func(details string) error {
		return fault.New(fault.Invalid, "invalid_redirect_uri", "Invalid redirect URI", details).Got(uri)
	}
	if len(uri) > maxRedirectLen {
		return refuse("a redirect URI has at most 500 characters")
	}
	for _, r := range uri {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"<>\^`+"`{|}", r) {
			return refuse("a redirect URI holds only the characters of RFC 3986")
		}
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Scheme == "":
		return refuse("a redirect URI is absolute, such as https://app.example/callback")
	case strings.Contains(uri, "#"):
		return refuse("a redirect URI has no fragment")
	case u.User != nil:
		return refuse("a redirect URI has no user name")
	case slices.Contains(strings.Split(u.Path, "/"), "..") || slices.Contains(strings.Split(u.Path, "/"), "."):
		return refuse("a redirect URI's path has no . and .. segments")
	case u.Scheme == "https" && u.Hostname() != "":
		return nil
	case u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return refuse("http is allowed for 127.0.0.1, [::1] and localhost alone; use https")
	case strings.Contains(u.Scheme, "."):
		return nil
	}
	return refuse("use https, http on a loopback address, or a private scheme with a dot such as com.example.app")
}

func loopback(host string) bool { return host == "127.0.0.1" || host == "::1" || host == "localhost" }

// matchRedirect reports whether an app that registered these addresses may be answered at uri:
// bytes are compared (RFC 9700 §4.1.3), except that the port of a loopback address is free
// (RFC 8252 §7.3).
func matchRedirect(registered []string, uri string) bool {
	if slices.Contains(registered, uri) {
		return true
	}
	prefix, rest, ok := splitLoopback(uri)
	if !ok {
		return false
	}
	return slices.ContainsFunc(registered, func(r string) bool {
		p, other, ok := splitLoopback(r)
		return ok && p == prefix && other == rest
	})
}

// splitLoopback cuts the port out of http://127.0.0.1:1234/rest. It works on the text itself:
// parsed and compared, /%63b would pass for /cb.
func splitLoopback(uri string) (prefix, rest string, ok bool) {
	for _, prefix := range []string{"http://127.0.0.1", "http://[::1]", "http://localhost"} {
		rest, ok := strings.CutPrefix(uri, prefix)
		if !ok {
			continue
		}
		if port, ok := strings.CutPrefix(rest, ":"); ok {
			digits := len(port) - len(strings.TrimLeft(port, "0123456789"))
			if digits == 0 || digits > 5 {
				return "", "", false
			}
			rest = port[digits:]
		}
		if rest != "" && rest[0] != '/' && rest[0] != '?' {
			return "", "", false
		}
		return prefix, rest, true
	}
	return "", "", false
}
