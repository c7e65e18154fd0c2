package wordpress

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/wordpress/guard"
)

func readPageCache(text string) (p guard.PageCache) {
	if text != "" {
		_ = json.Unmarshal([]byte(text), &p) // what was written here
	}
	return p
}

// maxPageCache caps each list of an owner's settings of the page cache.
const maxPageCache = 50

var (
	cookieForm = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	queryForm  = lazyregexp.New(`^[A-Za-z0-9_.-]{1,64}$`)
)

// writePageCache returns what is stored of an owner's settings of the page cache; empty: nothing differs from the default.
func writePageCache(p guard.PageCache) (string, error) {
	path := func(v string) bool {
		return len(v) <= 200 && strings.HasPrefix(v, "/") && !strings.ContainsAny(strings.TrimSuffix(v, "*"), "*?#") &&
			!strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f })
	}
	for _, list := range []struct {
		name, form string
		values     *[]string
		ok         func(string) bool
	}{
		{"excludedCookies", "beginnings of names, such as currency", &p.Cookies, cookieForm.MatchString},
		{"excludedPaths", "paths such as /prices/, or /shop/* for all below", &p.Paths, path},
		{"ignoredQuery", "names such as ref", &p.Query, queryForm.MatchString},
	} {
		invalid := func(received string) error {
			return fault.New(fault.Invalid, "invalid_wordpress", "Invalid pageCache."+list.name,
				fmt.Sprintf("%s holds up to %d %s", list.name, maxPageCache, list.form)).Got(text.Clip(received, 100))
		}
		if len(*list.values) > maxPageCache {
			return "", invalid("")
		}
		for _, v := range *list.values {
			if !list.ok(v) {
				return "", invalid(v)
			}
		}
		*list.values = slices.Compact(slices.Sorted(slices.Values(*list.values)))
	}
	b, err := json.Marshal(p)
	if err != nil || string(b) == "{}" {
		return "", err
	}
	return string(b), nil
}
