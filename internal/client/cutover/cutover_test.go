package cutover

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// serve returns a site with these pages: a body, or "to " and a redirect's target.
func serve(t *testing.T, pages map[string]string) (*url.URL, *http.Client, *atomic.Int64) {
	t.Helper()
	asked := new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, ok := pages[r.URL.RequestURI()]
		to, moved := strings.CutPrefix(body, "to ")
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		case moved:
			w.Header().Set("Location", strings.ReplaceAll(to, "HOST", r.Host))
			w.WriteHeader(http.StatusMovedPermanently)
		default:
			fmt.Fprint(w, strings.ReplaceAll(body, "HOST", r.Host))
		}
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := s.Client()
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return u, h, asked
}

// The sitemap's pages are compared by what visitors see. Redirects within a site must lead to the same path on both,
// and other hosts are never contacted.
func TestCompare(t *testing.T) {
	t.Parallel()
	other, _, asked := serve(t, map[string]string{"/secret": "x"})
	pages := map[string]string{
		"/": "<title>Harbor</title>", "/a": "<title> The\n pier &amp; co </title> old", "/old": "to http://HOST/a", "/away": "to https://elsewhere.test/",
		"/gone": "<title>Here</title>", "/sitemap.xml": "to http://HOST/wp-sitemap.xml",
		"/wp-sitemap.xml": "<sitemapindex><sitemap><loc>http://HOST/one.xml</loc></sitemap><sitemap><loc>" + other.String() + "/secret</loc></sitemap></sitemapindex>",
		"/one.xml": "<urlset><url><loc>http://HOST/</loc></url><url><loc>http://HOST/a</loc></url><url><loc>http://HOST/old</loc></url>" +
			"<url><loc>http://HOST/away</loc></url><url><loc>http://HOST/gone</loc></url><url><loc>" + other.String() + "/secret</loc></url></urlset>",
	}
	before, h, _ := serve(t, pages)
	after, _, _ := serve(t, map[string]string{
		"/": "<title>Harbor</title>", "/a": "<title>The pier &amp; co</title> new", "/old": "to /a", "/away": "to https://elsewhere.test/",
	})
	got, err := Compare(t.Context(), h, before, after)
	if err != nil {
		t.Fatal(err)
	}
	if got.Pages != 5 || !got.Sitemap || got.More || len(got.Different) != 1 {
		t.Fatalf("found %+v", got)
	}
	if d := got.Different[0]; d.Path != "/gone" || d.Old != (Page{200, "Here", ""}) || d.New.Status != 404 {
		t.Errorf("differs: %+v", d)
	}
	if asked.Load() != 0 {
		t.Error("a host that the sitemap names was asked")
	}
}

// At most 200 pages of a sitemap are read. Without a sitemap only the first page is compared, and an old site that is
// unreachable is reported.
func TestCompareIsBounded(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&list, "<url><loc>http://HOST/%d</loc></url>", n)
	}
	before, h, asked := serve(t, map[string]string{"/": "", "/sitemap.xml": "<urlset>" + list.String() + "</urlset>"})
	after, _, _ := serve(t, map[string]string{"/": ""})
	got, err := Compare(t.Context(), h, before, after)
	if err != nil || got.Pages != maxPages || !got.More || asked.Load() > maxPages+2 {
		t.Errorf("found %+v with %d questions, %v", got, asked.Load(), err)
	}
	plain, h, _ := serve(t, map[string]string{"/": "<title>a</title>"})
	if got, err := Compare(t.Context(), h, plain, after); err != nil || got.Pages != 1 || got.Sitemap || len(got.Different) != 1 {
		t.Errorf("without a sitemap: %+v, %v", got, err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	u, err := url.Parse(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if got, err := Compare(t.Context(), h, u, after); err != nil || !got.Unreachable || got.Pages != 0 {
		t.Errorf("an old site that is gone: %+v, %v", got, err)
	}
}
