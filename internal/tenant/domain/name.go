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

// ascii returns name in lower-case A-labels (RFC 5890; mapping and checks of UTS 46 as
// idna.Lookup has them), or an error. It takes any bytes.
func ascii(name string) (string, error) {
	name = strings.TrimSpace(name)
	// An A-label name has 253 bytes at most; each may come from a character of 4.
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
	// A last label of digits alone is an address, not a name (RFC 1123 §2.1).
	if last := a[strings.LastIndexByte(a, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "", errNotName
	}
	if _, err := netip.ParseAddr(a); err == nil {
		return "", errNotName
	}
	return a, nil
}

// suffixOf returns the public suffix of name in the ICANN part of the public suffix
// list: the one below which a registry sells. known is false when there is none.
// Suffixes of the private part (github.io) are names that somebody registered.
func suffixOf(name string) (suffix string, known bool) {
	for rest := name; ; {
		suffix, icann := publicsuffix.PublicSuffix(rest)
		if icann {
			return suffix, true
		}
		if !strings.Contains(suffix, ".") {
			return suffix, false // the "*" rule: nobody knows this one
		}
		_, rest, _ = strings.Cut(suffix, ".")
	}
}

// zoneOf returns the registrable name that name lies in: one label more than its
// suffix, or name itself where it has no more.
func zoneOf(name string) string {
	suffix, _ := suffixOf(name)
	above, ok := strings.CutSuffix(name, "."+suffix)
	if !ok {
		return name
	}
	return above[strings.LastIndexByte(above, '.')+1:] + "." + suffix
}

// Twin returns the name that people type as well: www.example.com for the apex
// example.com, and the other way round. Every other name has none.
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

// Unicode returns a name as people write it: xn--mnchen-3ya.example is münchen.example. A
// name that has no such form is returned as it is.
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

// Relative returns the name of a record as DNS providers ask for it: without the
// registrable name, which is "@".
func Relative(name string) string {
	zone := zoneOf(strings.TrimPrefix(name, "*."))
	if name == zone {
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// registrable returns name as a registry would sell it, or an Invalid fault. Names with
// more labels are refused rather than cut: the answer is about the very name that was asked for.
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

// labelsMax bounds the labels of a claimed name: checks ask about each of its parents.
const labelsMax = 16

// claimable returns name as a site may claim it: any name that somebody could hold, or
// "*." and such a name. An error is a sentence.
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

// specialUse are top-level names that never lead here (RFC 6761, RFC 6762, RFC 7686, RFC 9476).
var specialUse = map[string]bool{"localhost": true, "local": true, "invalid": true, "onion": true, "alt": true, "arpa": true}
