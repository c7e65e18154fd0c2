package domain

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

var errNotName = errors.New("not a domain name")

// ascii returns name in lower-case A-labels (RFC 5890, mapped and checked per UTS 46 like idna.Lookup), or an error. It
// accepts any bytes.
func ascii(name string) (string, error) {
	name = strings.TrimSpace(name)
	// An A-label name has at most 253 bytes, each from a character of up to 4 bytes.
	if name == "" || len(name) > 4*253 || !utf8.ValidString(name) {
		return "", errNotName
	}
	a, err := idna.Lookup.ToASCII(name)
	if err != nil {
		return "", errNotName
	}
	a = strings.TrimSuffix(strings.ToLower(a), ".")
	if len(a) > 253 {
		return "", errNotName
	}
	for label := range strings.SplitSeq(a, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return "", errNotName
		}
	}
	// A numeric last label makes it an address (RFC 1123 §2.1).
	if last := a[strings.LastIndexByte(a, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "", errNotName
	}
	if _, err := netip.ParseAddr(a); err == nil {
		return "", errNotName
	}
	return a, nil
}

// suffixOf returns the public suffix of name from the ICANN part of the public suffix list, below which a registry
// sells names. known is false for unlisted suffixes. Suffixes in the private part, such as github.io, are ordinary
// registered names.
func suffixOf(name string) (suffix string, known bool) {
	for rest := name; ; {
		suffix, icann := publicsuffix.PublicSuffix(rest)
		if icann {
			return suffix, true
		}
		if !strings.Contains(suffix, ".") {
			return suffix, false // the "*" rule: not listed
		}
		_, rest, _ = strings.Cut(suffix, ".")
	}
}

// zoneOf returns the registrable name that contains name: its suffix and one label, or name itself if it is a suffix.
func zoneOf(name string) string {
	suffix, _ := suffixOf(name)
	above, ok := strings.CutSuffix(name, "."+suffix)
	if !ok {
		return name
	}
	return above[strings.LastIndexByte(above, '.')+1:] + "." + suffix
}

// Twin returns www.example.com for the apex example.com and vice versa. Other names have no twin.
func Twin(name string) string {
	apex, www := strings.CutPrefix(name, "www.")
	switch {
	case strings.HasPrefix(name, "*.") || apex != zoneOf(apex):
		return ""
	case www:
		return apex
	}
	return "www." + apex
}

// Unicode returns a name in its Unicode form: münchen.example for xn--mnchen-3ya.example. Names without such a form are
// returned unchanged.
func Unicode(name string) string {
	u, err := idna.Lookup.ToUnicode(name)
	if err != nil {
		return name
	}
	if back, err := ascii(strings.TrimPrefix(u, "*.")); err != nil || back != strings.TrimPrefix(name, "*.") {
		return name
	}
	return u
}

// Relative returns a record's name as DNS providers expect it: without the registrable name, which becomes "@".
func Relative(name string) string {
	zone := zoneOf(strings.TrimPrefix(name, "*."))
	if name == zone {
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// registrable normalizes a name that a registry could sell, or returns an Invalid fault. It doesn't strip extra labels,
// since the answer must be about the name asked for.
func registrable(received string) (string, error) {
	invalid := func(details string) error {
		return fault.New(fault.Invalid, "invalid_domain", "Invalid domain name", details).Got(text.Clip(received, 300))
	}
	const want = "domain must be a name that can be registered, such as example.com"
	name, err := ascii(received)
	if err != nil {
		return "", invalid(want)
	}
	suffix, known := suffixOf(name)
	switch zone := zoneOf(name); {
	case !known && !strings.Contains(name, "."):
		return "", invalid(want)
	case specialUse[suffix[strings.LastIndexByte(suffix, '.')+1:]]:
		return "", invalid(fmt.Sprintf("Names below .%s can't be registered", suffix))
	case !known:
		return "", invalid(fmt.Sprintf("No registry is known for .%s", suffix))
	case name == suffix:
		return "", invalid(fmt.Sprintf("%s is a public suffix: names are registered below it", name))
	case name != zone:
		return "", invalid(fmt.Sprintf("%s is below %s: check that name", name, zone))
	}
	return name, nil
}

// labelsMax caps the labels of a claimed name, since checks query each parent.
const labelsMax = 16

// claimable normalizes a name that a site may claim, optionally with "*.". The error is a sentence for the user.
func claimable(received string) (string, error) {
	base, wild := strings.CutPrefix(strings.TrimSpace(received), "*.")
	name, err := ascii(base)
	if err != nil {
		return "", errors.New("name must be a domain name such as www.example.com or *.example.com")
	}
	suffix, known := suffixOf(name)
	switch public, _ := publicsuffix.PublicSuffix(name); {
	case !strings.Contains(name, "."):
		return "", fmt.Errorf("%s has no dot and can't be a public domain", name)
	case known && name == suffix || name == public:
		return "", fmt.Errorf("%s is a public suffix: add a name below it", name)
	case specialUse[name[strings.LastIndexByte(name, '.')+1:]]:
		return "", fmt.Errorf("%s is a reserved name that can't point here", name)
	case strings.Count(name, ".") >= labelsMax:
		return "", fmt.Errorf("the name has more than %d labels", labelsMax)
	case wild && len(name) > 251:
		return "", errors.New("the name is too long")
	}
	if wild {
		return "*." + name, nil
	}
	return name, nil
}

// specialUse lists top-level names that never lead here (RFC 6761, RFC 6762, RFC 7686, RFC 9476).
var specialUse = map[string]bool{"localhost": true, "local": true, "invalid": true, "onion": true, "alt": true, "arpa": true}
