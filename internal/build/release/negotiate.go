package release

import (
	"strconv"
	"strings"
)

// Negotiate returns the preferred available content coding for a request's Accept-Encoding fields (RFC 9110 §12.5.3):
// the one with the highest weight, with equal weights brotli, then zstd, then gzip, then identity, which is "". If none
// is acceptable, it returns "", as servers usually do.
func Negotiate(accept []string, hasBrotli, hasZstd, hasGzip bool) string {
	if len(accept) == 0 || !hasBrotli && !hasZstd && !hasGzip {
		return ""
	}
	br, zstd, gzip, identity, other := -1, -1, -1, -1, -1
	for _, header := range accept {
		for i := 0; header != "" && i < 32; i++ {
			var item string
			item, header, _ = strings.Cut(header, ",")
			name, q := weight(item)
			switch name {
			case "br":
				br = q
			case "zstd":
				zstd = q
			case "gzip", "x-gzip":
				gzip = q
			case "identity":
				identity = q
			case "*":
				other = q
			}
		}
	}
	best, most := "", 0
	for _, v := range [...]struct {
		name string
		q    int
		has  bool
	}{{"br", br, hasBrotli}, {"zstd", zstd, hasZstd}, {"gzip", gzip, hasGzip}} {
		if v.q < 0 {
			v.q = other
		}
		if v.has && v.q > most && v.q >= identity {
			best, most = v.name, v.q
		}
	}
	return best
}

// weight parses "name;q=0.5" and returns the weight in thousandths. Invalid weights are 0.
func weight(item string) (name string, q int) {
	name, params, _ := strings.Cut(item, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	params = strings.TrimSpace(params)
	if params == "" {
		return name, 1000
	}
	v, ok := strings.CutPrefix(strings.ToLower(params), "q=")
	if !ok {
		return name, 0
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return name, 0
	}
	return name, int(x * 1000)
}
