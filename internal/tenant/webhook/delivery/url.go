package delivery

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/fault"

	"golang.org/x/net/idna"
)

// maxURL is the length of a webhook's URL in bytes.
const maxURL = 2048

// CheckURL refuses what isn't a plain https URL and returns it in normal form: scheme
// and host in lower case, the host in A-labels (RFC 5891), everything else as it came.
// Whether the address behind it may be reached is checked when it is dialled.
func CheckURL(s string) (string, error) {
	bad := func(details string) (string, error) {
		e := fault.New(fault.Invalid, "invalid_url", "Invalid webhook URL", details)
		if len(s) <= maxURL && !strings.Contains(s, "@") { // user info may be a secret
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

// lookup is idna.Lookup for names that exist already: hosts of previews such as qa--site.netlify.app have hyphens in their third and
// fourth place, where registries allow none.
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
	// A name that ends in a number is an address to some parsers: 127.1, 0x7f.1, 2130706433.
	last := h[strings.LastIndexByte(h, '.')+1:]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", "the host is neither a name nor an address in its usual form"
	}
	return h, ""
}
