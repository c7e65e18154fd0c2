package delivery

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/fault"

	"golang.org/x/net/idna"
)

// maxURL caps a URL's length in bytes.
const maxURL = 2048

// CheckURL accepts plain https URLs and returns them normalized: scheme and host in lower case, the host in A-labels
// (RFC 5891), the rest unchanged. Whether the address may be reached is checked when connecting.
func CheckURL(s string) (string, error) {
	bad := func(details string) (string, error) {
		e := fault.New(fault.Invalid, "invalid_url", "Invalid webhook URL", details)
		if len(s) <= maxURL && !strings.Contains(s, "@") { // user info may contain a secret
			e.Received = s
		}
		return "", e
	}
	if s == "" {
		return bad("url is required")
	}
	if len(s) > maxURL {
		return bad("url must have at most 2048 characters")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' || r == 0xfffd }) {
		return bad("url must not contain spaces, control characters or backslashes")
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("url is malformed")
	}
	if u.Scheme != "https" {
		return bad("url must begin with https://")
	}
	if u.User != nil {
		return bad("url must not contain user info")
	}
	if u.Fragment != "" || strings.Contains(s, "#") {
		return bad("url must not contain a fragment")
	}
	if u.Opaque != "" || u.Hostname() == "" {
		return bad("url must name a host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return bad("the port must be between 1 and 65535")
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return bad("the port is missing")
	}
	host, why := checkHost(u.Hostname())
	if why != "" {
		return bad(why)
	}
	if p := u.Port(); p != "" && p != "443" {
		host += ":" + p
	}
	u.Host = host
	out := u.String()
	if len(out) > maxURL {
		return bad("url must have at most 2048 characters")
	}
	return out, nil
}

// lookup is idna.Lookup without the hyphen check: preview hosts such as qa--site.netlify.app have hyphens in the third
// and fourth position, which registries don't allow.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false))

func checkHost(h string) (host, why string) {
	if a, err := netip.ParseAddr(h); err == nil {
		if a.Zone() != "" {
			return "", "the host must not have a zone"
		}
		if a.Is6() {
			return "[" + a.String() + "]", ""
		}
		return a.String(), ""
	}
	if strings.HasSuffix(h, ".") {
		return "", "the host must not end with a dot"
	}
	h, err := lookup.ToASCII(h)
	if err != nil || len(h) > 253 || h == "" {
		return "", "the host name is malformed"
	}
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", "the host name is malformed"
		}
	}
	// Some parsers take a name that ends in a number for an address: 127.1, 0x7f.1, 2130706433.
	last := h[strings.LastIndexByte(h, '.')+1:]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", "the host is neither a name nor an address in its usual form"
	}
	return h, ""
}
