// Package pagecache owns the pages of WordPress sites that are kept in memory for visitors without a session.
package pagecache

import (
	"bytes"
	"cmp"
	"container/list"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
	"slipway/internal/platform/id"
)

// Cache holds pages for visitors without a session, in memory. A page is fresh for a while
// and stale after a purge or that while: the first who asks then gets a new one, and who
// asks meanwhile gets the stale one, so a purge is never a stampede.
type Cache struct {
	port string // of all addresses: ":8443", or "" for 443

	mu sync.Mutex // guards what follows
	// share: total 256 MiB of pages; owner who has the most loses first, one site has 64 MiB and 5,000 pages; edge the pages used longest ago are made again
	pages map[string]*Page
	// share: total the sites with pages in it; owner its sites; edge gone with the last page
	sites map[id.Site]*shelf
	// share: total the owners with pages in it; owner one entry; edge gone with the last page
	owners map[id.Owner]int // bytes of their sites' pages
	bytes  int
	// share: total the sites that were purged since the start; owner its sites; edge gone with the site
	began map[id.Site]time.Time // the last purge of a site: what was asked before it is not stored
}

// shelf holds the pages of one site.
type shelf struct {
	owner id.Owner
	ages  *list.List // of *Page, the last used first
	bytes int
}

// Page is a page as it was made. It never changes but for being stale.
type Page struct {
	site       id.Site
	key, path  string
	other      string        // key that it would have if it were for other visitors
	inSite     *list.Element // of the ages
	header     http.Header
	body       []byte
	br, gz, zs []byte // the body compressed; nil where that gains nothing
	at         time.Time
	stale      bool
	filling    time.Time // since when somebody gets a new one; zero: nobody does
}

// Limits: bytes of the cache, of a site and of a page; how long pages are fresh, and served stale.
const (
	maxBytes     = 256 << 20
	maxSiteBytes = maxBytes / 4 // a site that fills it leaves others theirs
	maxFields    = 16 << 10     // bytes of a page's header fields
	maxOfSite    = 5000
	maxPage      = 2 << 20
	freshFor     = 10 * time.Minute
	fillPatience = 10 * time.Second
)

// New returns an empty cache of the pages of addresses with a port: ":8443", or "" for 443.
func New(port string) *Cache {
	return &Cache{
		port: port, pages: map[string]*Page{}, sites: map[id.Site]*shelf{}, owners: map[id.Owner]int{}, began: map[id.Site]time.Time{},
	}
}

// SessionCookies are the beginnings of cookies that make a visitor somebody.
var SessionCookies = []string{
	"wordpress_logged_in", "wordpress_sec", "wp-postpass_", "comment_author_", "woocommerce_",
	"wp_woocommerce_session_", "edd_", "PHPSESSID", "slipway",
}

// keysOf returns the keys of a request's page: that of a page for everybody, and that of one for the visitor's kind of device. Both are
// empty where it may be no page.
func (c *Cache) keysOf(deployment id.Deployment, r *http.Request) [2]string {
	key := c.keyOf(deployment, r)
	if key == "" {
		return [2]string{}
	}
	return [2]string{key, device(r.Header) + " " + key}
}

// device returns the kind of a visitor's device, as wp_is_mobile and plugins tell it.
func device(h http.Header) string {
	kind, agent := "desktop", h.Get("User-Agent")
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(agent, part) })
	}
	switch {
	case has("iPad", "Tablet", "PlayBook", "Silk/", "Kindle") || has("Android") && !has("Mobile"):
		kind = "tablet"
	case has("Mobile", "Android", "BlackBerry", "Opera Mini", "Opera Mobi"):
		kind = "phone"
	}
	if said := h.Get("Sec-Ch-Ua-Mobile"); said != "" { // goes before the name
		kind += " " + strconv.FormatBool(said == "?1")
	}
	return kind
}

// keyOf names the page of a request to a deployment; empty where it is none that may be Page.
// Another deployment has other themes and plugins, and so other pages.
func (c *Cache) keyOf(deployment id.Deployment, r *http.Request) string {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength > 0 || !c.plainHost(r.Host) ||
		r.URL.RawQuery != "" ||
		r.Header.Get("Authorization") != "" ||
		r.Header.Get("Range") != "" ||
		len(r.URL.Path) > 1024 {
		return ""
	}
	if strings.HasPrefix(r.URL.Path, "/wp-admin") || strings.HasPrefix(r.URL.Path, "/wp-login") ||
		strings.HasPrefix(r.URL.Path, "/wp-json") || strings.HasSuffix(r.URL.Path, ".php") {
		return ""
	}
	if Sends(r.Header["Cookie"], SessionCookies) {
		return ""
	}
	return string(deployment) + " " + r.Host + " " + r.URL.Path
}

// plainHost reports whether a host is written as browsers write it: with the port that all
// addresses have or none, and else without capital letters or a dot at its end. Who writes it
// in another way may be shown another page, and gets none of others'.
func (c *Cache) plainHost(host string) bool {
	name, port, _ := strings.Cut(host, ":")
	return (port == "" || ":"+port == c.port) && name != "" && !strings.HasSuffix(name, ".") && strings.ToLower(name) == name
}

// Cacheable reports whether a request is for a page that may be kept.
func (c *Cache) Cacheable(r *http.Request) bool { return c.keyOf("", r) != "" }

// Sends reports whether PHP could read a cookie whose name begins so in the fields Cookie: it takes
// names that http.Request.Cookies leaves out, and some characters of theirs for underscores.
func Sends(fields, beginnings []string) bool {
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ";") {
			name, _, _ := strings.Cut(item, "=")
			name = strings.Map(func(c rune) rune {
				if c == '.' || c == ' ' || c == '[' || c == '+' {
					return '_'
				}
				return c
			}, strings.TrimSpace(name))
			if strings.Contains(name, "%") { // older versions decode it
				return true
			}
			for _, begin := range beginnings {
				if strings.HasPrefix(name, begin) {
					return true
				}
			}
		}
	}
	return false
}

// Lookup returns a page for a request, and how it is: HIT or STALE. Who gets none is to
// make a new one.
func (c *Cache) Lookup(deployment id.Deployment, r *http.Request) (*Page, string) {
	keys := c.keysOf(deployment, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := cmp.Or(c.pages[keys[1]], c.pages[keys[0]])
	if p == nil {
		return nil, ""
	}
	c.used(p)
	if !p.stale && time.Since(p.at) < freshFor {
		return p, "HIT"
	}
	if !p.filling.IsZero() && time.Since(p.filling) < fillPatience {
		return p, "STALE"
	}
	p.filling = time.Now()
	return nil, ""
}

// Fresh returns the page of a path that is fresh, for a visitor without a session; nil where
// there is none.
func (c *Cache) Fresh(deployment id.Deployment, host, path string) *Page {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pages[string(deployment)+" "+host+" "+path]
	if p == nil || !c.plainHost(host) || p.stale || time.Since(p.at) >= freshFor {
		return nil
	}
	c.used(p)
	return p
}

// Filling notes that a new page is made, and returns what to call when that has ended.
func (c *Cache) Filling(deployment id.Deployment, r *http.Request) func() {
	keys := c.keysOf(deployment, r)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range keys {
			if p := c.pages[key]; p != nil {
				p.filling = time.Time{}
			}
		}
	}
}

// Whose says for whom an answer is a page.
type Whose int

const (
	Everybodys Whose = iota
	Devices          // for visitors with the same kind of device
)

// Store keeps an answer as a page once its body has been read to the end. What has been purged
// since it was asked for is not in it for certain.
func (c *Cache) Store(
	owner id.Owner, site id.Site, deployment id.Deployment, r *http.Request, resp *http.Response, asked time.Time, whose Whose,
) {
	keys := c.keysOf(deployment, r)
	h := resp.Header
	if keys[0] == "" || r.Method != http.MethodGet || resp.StatusCode != http.StatusOK || len(h["Set-Cookie"]) > 0 ||
		!strings.HasPrefix(h.Get("Content-Type"), "text/html") ||
		h.Get("Content-Encoding") != "" || h.Get("Vary") != "" && !strings.EqualFold(h.Get("Vary"), "Accept-Encoding") ||
		response.Forbids(h["Cache-Control"]) {
		return
	}
	if n := fieldBytes(h); n > maxFields {
		return
	}
	h.Set("X-Cache", "MISS")
	h.Set("Vary", "Accept-Encoding")
	if whose == Devices {
		h.Set("Vary", "Accept-Encoding, User-Agent, Sec-CH-UA-Mobile")
	}
	p := &Page{site: site, key: keys[whose], other: keys[1-whose], path: r.URL.Path, header: h.Clone(), at: asked}
	resp.Body = &copying{ReadCloser: resp.Body, done: func(body []byte) {
		// A page for everybody, made from its address alone, holds nobody's secret that its
		// compressed length could give away.
		p.body = bytes.Clone(body) // without the capacity of its buffer
		p.br, p.gz, p.zs = release.Compress(body)
		c.put(owner, p)
	}}
}

// copying collects a body while it is read; done is called at its end, where it is whole
// and not too large.
type copying struct {
	io.ReadCloser
	buf  bytes.Buffer
	over bool
	done func([]byte)
}

func (b *copying) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.over && b.buf.Len()+n > maxPage {
		b.over, b.buf = true, bytes.Buffer{}
	}
	if !b.over {
		b.buf.Write(p[:n])
	}
	if err == io.EOF && !b.over && b.done != nil {
		b.done(b.buf.Bytes())
		b.done = nil
	}
	return n, err
}

func (c *Cache) put(owner id.Owner, p *Page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.at.Before(c.began[p.site]) { // what it shows may be older than the change
		p.stale = true
	}
	if old := c.pages[p.key]; old != nil {
		if old.at.After(p.at) { // who asked later was answered sooner
			return
		}
		c.drop(old)
	}
	if old := c.pages[p.other]; old != nil && old.at.Before(p.at) { // a page is the one or the other
		c.drop(old)
	}
	of := c.sites[p.site]
	if of == nil {
		// share: none, one site's: 5,000 pages and 64 MiB
		of = &shelf{owner: owner, ages: list.New()}
		c.sites[p.site] = of
	}
	p.inSite = of.ages.PushFront(p)
	c.pages[p.key] = p
	c.bytes, of.bytes = c.bytes+p.size(), of.bytes+p.size()
	c.owners[of.owner] += p.size()
	for of.bytes > maxSiteBytes || of.ages.Len() > maxOfSite {
		c.drop(of.ages.Back().Value.(*Page))
	}
	for c.bytes > maxBytes {
		c.drop(c.largest().ages.Back().Value.(*Page))
	}
}

// largest returns the largest shelf of the owner whose sites have the most: they lose a page
// where there is no room, and who has few keeps them.
func (c *Cache) largest() (most *shelf) {
	for _, of := range c.sites {
		if most == nil || c.owners[of.owner] > c.owners[most.owner] || of.owner == most.owner && of.bytes > most.bytes {
			most = of
		}
	}
	return most
}

// size is about how many bytes a page holds on to.
func (p *Page) size() int {
	return len(p.body) + len(p.br) + len(p.gz) + len(p.zs) + 4*len(p.key) + fieldBytes(p.header) + 1024
}

// fieldBytes is about how many bytes header fields hold on to.
func fieldBytes(h http.Header) (n int) {
	for name, values := range h {
		n += len(name) + 64
		for _, v := range values {
			n += len(v) + 16
		}
	}
	return n
}

func (c *Cache) drop(p *Page) {
	of := c.sites[p.site]
	of.ages.Remove(p.inSite)
	delete(c.pages, p.key)
	c.bytes, of.bytes = c.bytes-p.size(), of.bytes-p.size()
	if c.owners[of.owner] -= p.size(); c.owners[of.owner] == 0 {
		delete(c.owners, of.owner)
	}
	if of.ages.Len() == 0 {
		delete(c.sites, p.site)
	}
}

// used makes a page the last to go.
func (c *Cache) used(p *Page) {
	c.sites[p.site].ages.MoveToFront(p.inSite)
}

// each calls do with the pages of a site.
func (c *Cache) each(site id.Site, do func(p *Page)) {
	if of := c.sites[site]; of != nil {
		for e := of.ages.Front(); e != nil; e = e.Next() {
			do(e.Value.(*Page))
		}
	}
}

// Forget drops the pages of a site that is gone.
func (c *Cache) Forget(site id.Site) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := c.sites[site]; of != nil && of.ages.Len() > 0; {
		c.drop(of.ages.Back().Value.(*Page))
	}
	delete(c.began, site)
}

// Purge makes pages of a site stale: those of the paths, or all with *.
func (c *Cache) Purge(site id.Site, paths ...string) { c.ChangedBy(site, time.Time{}, paths...) }

// ChangedBy purges what an answer says that it has changed. It returns since when the answer
// itself is up to date: it shows its own change, and those before it was asked for.
func (c *Cache) ChangedBy(site id.Site, asked time.Time, paths ...string) time.Time {
	want := map[string]bool{}
	for _, p := range paths {
		want[p] = true
		if decoded, err := url.PathUnescape(p); err == nil { // as addresses hold them
			want[decoded] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.began[site]
	c.began[site] = time.Now()
	c.each(site, func(p *Page) { p.stale = p.stale || want["*"] || want[p.path] })
	if asked.Before(before) {
		return asked
	}
	return c.began[site]
}

// Write answers with the page.
func (p *Page) Write(w http.ResponseWriter, r *http.Request, how string) {
	body := p.fill(w.Header(), r.Header["Accept-Encoding"], how)
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// Answer returns the fields and the body of a page that is fresh.
func (p *Page) Answer(accept string) (http.Header, []byte) {
	h := http.Header{}
	return h, p.fill(h, []string{accept}, "HIT")
}

// fill sets the fields of an answer with the page, and returns its body.
func (p *Page) fill(h http.Header, accept []string, how string) []byte {
	for name, values := range p.header {
		h[name] = values
	}
	h["X-Cache"] = []string{how}
	h["Age"] = []string{strconv.Itoa(int(time.Since(p.at).Seconds()))}
	body, coding := p.body, release.Negotiate(accept, p.br != nil, p.zs != nil, p.gz != nil)
	switch coding {
	case "br":
		body = p.br
	case "zstd":
		body = p.zs
	case "gzip":
		body = p.gz
	}
	if coding != "" {
		h["Content-Encoding"] = []string{coding}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	return body
}
