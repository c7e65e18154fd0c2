package guard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
	"slipway/internal/wordpress/pagecache"
)

// PageCache holds what an owner says of the page cache.
type PageCache struct {
	Cookies []string `json:"cookies,omitempty"` // beginnings of cookies whose visitors get no cached page
	Paths   []string `json:"paths,omitempty"`   // paths whose pages aren't cached; with * at the end also those that begin so
	Query   []string `json:"query,omitempty"`   // names in queries on which no page depends
}

// pages says what the plugin's words for an answer that may be stored mean.
var pages = map[string]pagecache.Whose{"page": pagecache.Everybodys, "page device": pagecache.Devices}

// page returns a request as the page cache knows it, without a query that pages don't depend on; nil if it gets no cached page.
func (s Served) page(r *http.Request) *http.Request {
	excluded := slices.ContainsFunc(s.Pages.Paths, func(p string) bool {
		begin, more := strings.CutSuffix(p, "*")
		return strings.HasPrefix(r.URL.Path, begin) && (more || r.URL.Path == begin)
	})
	if excluded || len(s.Pages.Cookies) > 0 && pagecache.Sends(r.Header["Cookie"], s.Pages.Cookies) {
		return nil
	}
	if r.URL.RawQuery == "" {
		return r
	}
	if !s.ignores(r.URL.RawQuery) {
		return nil
	}
	page := r.Clone(r.Context())
	page.URL.RawQuery = ""
	return page
}

// ignores reports whether a query names nothing but where a visitor comes from, for scripts in the browser: campaigns and clicks, or what
// the owner says. The page is the same without it.
func (s Served) ignores(query string) bool {
	if len(query) > 4096 {
		return false
	}
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if !strings.HasPrefix(name, "utm_") && !clicks[name] && !slices.Contains(s.Pages.Query, name) {
			return false
		}
	}
	return true
}

// clicks are names by which advertisers and mailings mark a click.
var clicks = map[string]bool{
	"gclid": true, "gbraid": true, "wbraid": true, "gad_source": true, "gad_campaignid": true, "dclid": true, "srsltid": true, "_ga": true,
	"_gl": true, "fbclid": true, "igshid": true, "msclkid": true, "ttclid": true, "twclid": true, "li_fat_id": true, "yclid": true,
	"mc_cid": true, "mc_eid": true, "_hsenc": true, "_hsmi": true,
}

// versioned reports whether a query names a file's version, as WordPress does: another file has another address.
func versioned(query string) bool {
	version, ok := strings.CutPrefix(query, "ver=")
	return ok && version != "" && !strings.Contains(version, "&")
}

// rootFile answers with a file at the root of the site, and reports whether it did.
func (g *guard) rootFile(w http.ResponseWriter, r *http.Request) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	text, ok := g.site.Root[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	h, sum := w.Header(), sha256.Sum256([]byte(text))
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h["Cache-Control"] = response.Revalidate
	}
	h.Set("Etag", `"`+hex.EncodeToString(sum[:8])+`"`)
	h.Set("Content-Type", cmp.Or(release.MediaType(name), "text/plain; charset=utf-8"))
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(text))
	return true
}

// bedrock returns where a file of wp-content lies that is asked for as Bedrock calls it; empty: it isn't.
func bedrock(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/app/")
	kind, _, _ := strings.Cut(rest, "/")
	if !ok || !named(r.URL.Path) || kind != "uploads" && kind != "themes" && kind != "plugins" && kind != "mu-plugins" ||
		r.Method != http.MethodGet && r.Method != http.MethodHead {
		return ""
	}
	to := "/wp-content/" + rest
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	return to
}
