package toolchain

import (
	"cmp"
	"strconv"
	"strings"
)

// version is one of SemVer 2.0.0. Build metadata is read and dropped.
type version struct {
	major, minor, patch int64
	pre                 []string // identifiers after the dash
}

// maxDigits keeps numbers and their successors far inside an int64, and inside what
// node-semver takes for a safe integer.
const maxDigits = 15

// parseVersion reads a full version, with the "v" or "=" in front that people write.
func parseVersion(s string) (version, bool) {
	p, ok := parsePartial(s)
	if !ok || p.parts != 3 {
		return version{}, false
	}
	return p.version, true
}

func (v version) String() string {
	s := strconv.FormatInt(v.major, 10) + "." + strconv.FormatInt(v.minor, 10) + "." + strconv.FormatInt(v.patch, 10)
	if len(v.pre) > 0 {
		s += "-" + strings.Join(v.pre, ".")
	}
	return s
}

// compare orders by SemVer 2.0.0 section 11.
func (v version) compare(o version) int {
	if c := cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor), cmp.Compare(v.patch, o.patch)); c != 0 {
		return c
	}
	switch {
	case len(v.pre) == 0 && len(o.pre) == 0:
		return 0
	case len(v.pre) == 0:
		return 1
	case len(o.pre) == 0:
		return -1
	}
	for i := range min(len(v.pre), len(o.pre)) {
		if c := compareIdentifier(v.pre[i], o.pre[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.pre), len(o.pre))
}

func compareIdentifier(a, b string) int {
	an, bn := digits(a), digits(b)
	switch {
	case an && bn:
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // no leading zeros: longer is larger
	case an:
		return -1
	case bn:
		return 1
	}
	return cmp.Compare(a, b)
}

// partial is a version that may end early or in wildcards: "18", "18.x", "*".
type partial struct {
	version
	parts int // how many of major, minor, patch are numbers, from the left
}

// parsePartial reads [v=]*XR(.XR(.XR(-pre)?(+build)?)?)?, node-semver's XRANGEPLAIN.
func parsePartial(s string) (partial, bool) {
	s = strings.TrimLeft(s, "v= ")
	if s == "" {
		return partial{}, false
	}
	s, build, hasBuild := strings.Cut(s, "+")
	s, pre, hasPre := strings.Cut(s, "-")
	if hasBuild && !identifiers(build, false) || hasPre && !identifiers(pre, true) {
		return partial{}, false
	}
	fields := strings.Split(s, ".")
	if len(fields) > 3 || (hasPre || hasBuild) && len(fields) != 3 {
		return partial{}, false
	}
	var n [3]int64
	p := partial{parts: len(fields)}
	for i, f := range fields {
		if f == "x" || f == "X" || f == "*" {
			p.parts = min(p.parts, i)
			continue
		}
		if !digits(f) || len(f) > maxDigits || len(f) > 1 && f[0] == '0' {
			return partial{}, false
		}
		n[i], _ = strconv.ParseInt(f, 10, 64)
	}
	for i := p.parts; i < 3; i++ {
		n[i] = 0
	}
	p.major, p.minor, p.patch = n[0], n[1], n[2]
	if hasPre && p.parts == 3 {
		p.pre = strings.Split(pre, ".")
	}
	return p, true
}

// identifiers reports whether s is a dotted list; strict refuses leading zeros.
func identifiers(s string, strict bool) bool {
	for id := range strings.SplitSeq(s, ".") {
		if id == "" || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return false
		}
		if strict && digits(id) && (len(id) > 1 && id[0] == '0' || len(id) > maxDigits) {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
