package domain

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"github.com/miekg/dns"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

func object(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/rdap+json")
		fmt.Fprintf(
			w,
			`{"objectClassName":"domain","ldhName":%q,"links":[{"rel":"related","href":"https://registrar.invalid/domain/x"}]}`,
			name,
		)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
}

// A registry's response counts only if it is valid. Otherwise Check asks the DNS.
func TestCheckAsksTheRegistryThenTheDNS(t *testing.T) {
	t.Parallel()
	huge := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"objectClassName":"domain","ldhName":"name.com","x":"`)
		for range rdapMax/1024 + 1 {
			fmt.Fprint(w, strings.Repeat("x", 1024))
		}
		fmt.Fprint(w, `"}`)
	}
	for name, tt := range map[string]struct {
		registry  http.HandlerFunc
		delegated bool
		available bool
		source    string
	}{
		"registered":            {object("NAME.COM."), false, false, SourceRDAP},
		"free, no body":         {notFoundAs("application/rdap+json", ""), true, true, SourceRDAP},
		"free, no body or type": {notFoundAs("", ""), true, true, SourceRDAP},
		"a plain 404":           {http.NotFound, true, false, SourceDNS},
		"a 404 in plain JSON":   {notFoundAs("application/json", `{"errorCode":404}`), true, false, SourceDNS},
		"a proxy's empty 404":   {notFoundAs("text/plain", ""), true, false, SourceDNS},
		"a 404 of no sense":     {notFoundAs("application/rdap+json", "<html>"), true, false, SourceDNS},
		"free, RDAP error body": {rdapError(404), true, true, SourceRDAP},
		"a web page's 404":      {htmlNotFound, true, false, SourceDNS},
		"a contradicting 404":   {rdapError(429), true, false, SourceDNS},
		"429, delegated":        {status(429), true, false, SourceDNS},
		"429, not delegated":    {status(429), false, true, SourceDNS},
		"503":                   {status(503), true, false, SourceDNS},
		"500":                   {status(500), true, false, SourceDNS},
		"403":                   {status(403), true, false, SourceDNS},
		"400":                   {status(400), true, false, SourceDNS},
		"garbage":               {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") }, true, false, SourceDNS},
		"another name":          {object("other.com"), true, false, SourceDNS},
		"not a domain": {
			func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"objectClassName":"entity"}`) },
			true,
			false,
			SourceDNS,
		},
		"huge": {huge, true, false, SourceDNS},
		"redirect to clear": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+r.Host+"/x", http.StatusFound)
		}, true, false, SourceDNS},
		"redirect for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+r.Host+r.URL.Path+"x", http.StatusFound)
		}, true, false, SourceDNS},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/com/domain/name.com" {
				http.Redirect(w, r, "https://"+r.Host+"/moved/domain/name.com", http.StatusMovedPermanently)
				return
			}
			object("name.com")(w, r)
		}, false, false, SourceRDAP},
		"hangs up": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, true, false, SourceDNS},
		"slow":     {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, true, false, SourceDNS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, tt.registry)
			if name == "slow" {
				w.budget, w.hedge = 5*time.Second, 50*time.Millisecond // enough time for the DNS to answer
			}
			if tt.delegated {
				w.zone.Set("name.com", "NS ns.name.com.")
			}
			a, err := w.Check(t.Context(), " Name.COM. ")
			want := Availability{"name.com", tt.available, 12, "USD", tt.source}
			if err != nil || a != want {
				t.Errorf("got %+v %v, want %+v", a, err, want)
			}
		})
	}
}

func rdapError(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/rdap+json")
		w.WriteHeader(404)
		fmt.Fprintf(w, `{"errorCode":%d,"title":"x"}`, code)
	}
}

func notFoundAs(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil // stop the server from guessing a type
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.WriteHeader(404)
		fmt.Fprint(w, body)
	}
}

func htmlNotFound(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(404)
	fmt.Fprint(w, "<h1>Not found</h1>")
}

// If the DNS doesn't answer either, Check uses the installation's own table.
func TestCheckTakesNoSilenceForAnAnswer(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*testing.T, *world){
		"servfail": func(t *testing.T, w *world) { w.zone.Fail("name.com", dns.RcodeServerFailure) },
		"refused":  func(t *testing.T, w *world) { w.zone.Fail("name.com", dns.RcodeRefused) },
		"silent":   func(t *testing.T, w *world) { w.zone.Silence("name.com"); w.hurry() },
		"no delegation": func(t *testing.T, w *world) {
			w.zone.Set("name.com", "A 192.0.2.1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, status(503))
			set(t, w)
			a, err := w.Check(t.Context(), "name.com")
			if err != nil || !a.Available || a.Source != SourceLocal {
				t.Errorf("got %+v %v, want available by the local table", a, err)
			}
		})
	}
}

// A root server's denial of a top-level domain is a problem of the resolver and says nothing about the name.
func TestRootDenialIsNoAnswer(t *testing.T) {
	t.Parallel()
	soa, _ := dns.NewRR(". 60 IN SOA a. b. 1 2 3 4 5")
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetRcode(q, dns.RcodeNameError)
		m.Ns = []dns.RR{soa}
		w.WriteMsg(m)
	})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: h}
	go s.ActivateAndServe()
	defer pc.Close()
	if taken, err := delegated(t.Context(), &DNS{Server: pc.LocalAddr().String()}, "x.com"); err == nil {
		t.Errorf("got %v, want no answer", taken)
	}
}

// Without a network, the auto source quickly answers from the local table.
func TestCheckWithoutNetworkIsQuick(t *testing.T) {
	t.Parallel()
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := dead.LocalAddr().String()
	dead.Close()
	w := newWorld(t, func(c *Config) { c.Resolver = &DNS{Server: gone} }, nil)
	w.rdapd.Close()
	w.budget, w.hedge = time.Hour, checkHedge // a test that waits for the budget fails
	a, err := w.Check(t.Context(), "some-free-name-4711.com")
	if err != nil || !a.Available || a.Source != SourceLocal {
		t.Errorf("got %+v %v", a, err)
	}
}

// On a network that drops all packets, a check takes no longer than its budget.
func TestCheckEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	w.zone.Silence("name.com")
	w.hurry()
	start := time.Now()
	a, err := w.Check(t.Context(), "name.com")
	if err != nil || !a.Available || a.Source != SourceLocal {
		t.Errorf("got %+v %v", a, err)
	}
	if took := time.Since(start); took > w.budget+time.Minute { // far over the budget: it hung
		t.Errorf("took %s", took)
	}
}

func TestRegistryAloneNeverFallsBack(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	w := newWorld(t, func(c *Config) { c.Registry = "rdap" }, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "77")
		w.WriteHeader(429)
	})
	for range 3 {
		_, err := w.Check(t.Context(), "name.com")
		f := fault.As(err)
		if f == nil || f.Kind != fault.Unavailable || f.RetryAfter < 17*time.Second || f.RetryAfter > 77*time.Second {
			t.Fatalf("got %+v, want Unavailable for 77 s", f)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the registry that asked to be left alone was asked %d times", n)
	}
	if _, err := w.Check(t.Context(), "name.example-unknown"); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
	if _, err := w.Check(t.Context(), "name.de"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a suffix without a server: got %v", err)
	}
	if n := w.zone.Questions("name.com NS"); n != 0 {
		t.Errorf("the DNS was asked %d times", n)
	}
}

func TestOwnTableComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.SiteDomain = "apps.ours.com" }, rdapError(404))
	w.insert("usr_a", "usr_a-1", "held.com", Active)
	w.insert("usr_a", "usr_a-1", "shop.below.com", Active)
	w.insert("usr_a", "usr_a-1", "hope.wish.com", Pending)
	for name, want := range map[string]Availability{
		"held.com":  {"held.com", false, 12, "USD", SourceLocal},
		"below.com": {"below.com", false, 12, "USD", SourceLocal},
		"ours.com":  {"ours.com", false, 12, "USD", SourceLocal},
		"wish.com":  {"wish.com", true, 12, "USD", SourceRDAP}, // a pending claim below it doesn't count
	} {
		if a, err := w.Check(t.Context(), name); err != nil || a != want {
			t.Errorf("got %+v %v, want %+v", a, err, want)
		}
	}
	local := newWorld(t, func(c *Config) { c.Registry = "local" }, object("taken.com"))
	if a, err := local.Check(t.Context(), "taken.com"); err != nil || !a.Available || a.Source != SourceLocal {
		t.Errorf("local: got %+v %v", a, err)
	}
}

// Identical checks at the same time, or shortly after, cause one query.
func TestCheckAsksOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	w := newWorld(t, nil, func(w http.ResponseWriter, r *http.Request) { calls.Add(1); object("name.com")(w, r) })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if a, err := w.Check(t.Context(), "name.com"); err != nil || a.Available {
				t.Errorf("got %+v %v", a, err)
			}
		})
	}
	wg.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	var a answers
	for i := range answersMax + 10 {
		a.put(fmt.Sprint(i), verdict{})
	}
	if len(a.kept) > answersMax {
		t.Errorf("%d answers are kept", len(a.kept))
	}
}

func TestNamesThatCannotBeRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Registry = "local" }, nil)
	for in, want := range map[string]string{
		"example.com":                     "example.com",
		"EXAMPLE.CO.UK":                   "example.co.uk",
		"faß.de":                          "xn--fa-hia.de",
		"bücher.example.":                 "",
		"x.test":                          "",
		"example.com.":                    "example.com",
		"github.io":                       "github.io",
		"foo.github.io":                   "",
		"www.example.com":                 "",
		"com":                             "",
		"co.uk":                           "",
		"":                                "",
		"not a domain":                    "",
		"-x.com":                          "",
		"localhost":                       "",
		"a..b.com":                        "",
		"x-.com":                          "",
		"*.example.com":                   "",
		"_x.com":                          "",
		"192.0.2.1":                       "",
		"[::1]":                           "",
		"2001:db8::1":                     "",
		"a.com/b":                         "",
		"http://a.com":                    "",
		"a@b.com":                         "",
		"xn--zzzzzz.com":                  "",
		strings.Repeat("a", 64) + ".com":  "",
		strings.Repeat("a.", 200) + "com": "",
		"\xff.com":                        "",
		"a\x00.com":                       "",
		strings.Repeat("a", 63) + ".com":  strings.Repeat("a", 63) + ".com",
		".com":                            "",
		"a.1":                             "",
		"Ⅷ.com":                           "viii.com",
	} {
		a, err := w.Check(t.Context(), in)
		if a.Domain != want || (want == "") != fault.Is(err, fault.Invalid) {
			t.Errorf("%q: got %q %v, want %q", in, a.Domain, err, want)
		}
	}
}

// For any input, an accepted name is in lower-case A-labels, normalizes to itself, and is one label below a public
// suffix.
func FuzzRegistrable(f *testing.F) {
	for _, s := range []string{
		"example.com", "faß.de", "a.b.c.ck", "xn--a.com", "\u202e.com", "。com", "x。co.uk", "..", "*.ck", "www.ck",
		"a\u200d.com", "１.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := claimable(s); err == nil {
			if again, err := claimable(v); err != nil || again != v || len(v) > 255 {
				t.Errorf("claimable %q → %q → %q %v", s, v, again, err)
			}
		}
		name, err := registrable(s)
		if err != nil {
			if f := fault.As(err); f == nil || f.Kind != fault.Invalid || len(f.Received.(string)) > 310 {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if again, err := registrable(name); err != nil || again != name {
			t.Errorf("%q → %q → %q %v", s, name, again, err)
		}
		suffix, known := suffixOf(name)
		if !known || strings.Count(name, ".") != strings.Count(suffix, ".")+1 {
			t.Errorf("%q → %q with suffix %q", s, name, suffix)
		}
	})
}

func TestPrices(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "prices.txt")
	if err := os.WriteFile(path, []byte("# ours\n.com 99 eur # dear\nco.uk 5 GBP\n\nорг 3 USD\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := LoadPrices(path)
	if err != nil {
		t.Fatal(err)
	}
	p = p.withDefaults()
	for name, want := range map[string]Price{
		"x.com":       {99, "EUR"},
		"x.co.uk":     {5, "GBP"},
		"x.uk":        {9, "USD"},
		"x.net":       {14, "USD"},
		"x.museum":    {35, "USD"},
		"x.xn--c1avg": {3, "USD"},
	} {
		if got := p.Of(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if len(p) < 40 {
		t.Errorf("only %d suffixes have a price", len(p))
	}
	for _, bad := range []string{"com", "com x USD", "com 1.5 USD", "com -1 USD", "com 1 DOLLAR", "c_m 1 USD", "com 1 US1"} {
		if _, err := parsePrices(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := LoadPrices(path + "x"); err == nil {
		t.Error("a missing file was taken")
	}
}

// IANA's registry list is fetched once a day, shared by all nodes, and refused if it is invalid.
func TestBootstrapIsRefreshed(t *testing.T) {
	t.Parallel()
	var body atomic.Pointer[string]
	var calls atomic.Int32
	w := newWorld(t, nil, func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		fmt.Fprint(rw, *body.Load())
	})
	w.c.BootstrapURL = w.rdapd.URL + "/dns.json"
	ctx := t.Context()
	for _, bad := range []string{
		"", "{}", "[]", `{"services":[[["com"],["http://clear/"]]]}`, `{"services":[[["net"],["https://x/"]]]}`,
		`{"services":[[["com"]]]}`,
		strings.Repeat(" ", bootstrapMax+1),
	} {
		body.Store(&bad)
		if err := w.refreshBootstrap(ctx); err == nil {
			t.Errorf("%.40q was taken", bad)
		}
	}
	good := `{"services":[[["com","рф"],["http://clear.test/","https://moved.test/rdap"]]]}`
	body.Store(&good)
	before := calls.Load()
	for range 2 {
		if err := w.refreshBootstrap(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if calls.Load() != before+1 {
		t.Errorf("fetched %d times", calls.Load()-before)
	}
	other := New(Config{DB: w.db})
	if at, err := other.loadBootstrap(ctx); err != nil || db.Now().Sub(at) > time.Minute {
		t.Fatalf("loaded %v %v", at, err)
	}
	for _, name := range []string{"x.com", "x.xn--p1ai"} {
		if got := other.rdap.fresh.find(name); len(got) != 1 || got[0] != "https://moved.test/rdap/" {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := other.rdap.shipped.find("example.org"); len(got) != 1 {
		t.Errorf("org: %v", got)
	}
}

// For any list of registries, parseBootstrap returns only https URLs that end with a slash.
func FuzzBootstrap(f *testing.F) {
	f.Add(shippedBootstrap)
	for _, s := range []string{
		`{"services":[[["com"],["https://u:p@x/"]]]}`,
		`{"services":[[["com"],["https://x/?q"]]]}`,
		`{"services":[[],[[]]]}`,
		`{"services":[[["a","рф"],["HTTPS://X"]]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := parseBootstrap(body)
		for suffix, urls := range b {
			for _, u := range urls {
				p, perr := url.Parse(u)
				if perr != nil || p.Scheme != "https" || p.Host == "" || p.User != nil || p.RawQuery != "" || p.Fragment != "" ||
					!strings.HasSuffix(u, "/") {
					t.Errorf("%s: %q %v", suffix, u, err)
				}
			}
			if a, err := ascii(suffix); err != nil || a != suffix {
				t.Errorf("suffix %q", suffix)
			}
		}
	})
}

func TestListIsTheOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.insert("usr_a", "usr_a-1", "b.com", Active)
	w.insert("usr_a", "usr_a-1", "a.com", Pending)
	w.insert("usr_a", "usr_a-2", "c.com", Failed)
	w.insert("usr_b", "usr_b-1", "a.com", Active)
	all, err := w.List(t.Context(), "usr_a")
	if err != nil || len(all) != 3 || all[0].Name != "a.com" || all[2].SiteID != "usr_a-2" || all[1].SSL != SSLPending || !all[1].Proven() {
		t.Fatalf("got %+v %v", all, err)
	}
	s, err := w.Summaries(t.Context(), w.db, "usr_a", []id.Site{"usr_a-1", "usr_a-2", "usr_a-3"})
	if err != nil || len(s) != 2 || len(s["usr_a-1"]) != 2 || s["usr_a-1"][0].Name != "a.com" || s["usr_a-2"][0].Status != Failed {
		t.Fatalf("got %+v %v", s, err)
	}
	if s, err := w.Summaries(t.Context(), w.db, "usr_a", nil); err != nil || len(s) != 0 {
		t.Fatalf("of no site: %v %v", s, err)
	}
}

// Summaries returns the domains of a page's sites whether the owner has fewer domains than the page has sites, or more.
func TestSummariesOfManyDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	for i := range 4 {
		w.insert("usr_a", "usr_a-1", fmt.Sprintf("n%d.com", i), Active)
	}
	w.insert("usr_a", "usr_a-2", "other.com", Active)
	for _, sites := range [][]id.Site{
		{"usr_a-1"},
		{"usr_a-1", "usr_a-3"},
		{"usr_a-1", "usr_a-3", "usr_a-4", "usr_a-5"},
		{"usr_a-1", "usr_a-3", "usr_a-4", "usr_a-5", "usr_a-6"},
	} {
		s, err := w.Summaries(t.Context(), w.db, "usr_a", sites)
		if err != nil || len(s["usr_a-1"]) != 4 || s["usr_a-1"][3].Name != "n3.com" || len(s["usr_a-3"]) != 0 {
			t.Errorf("of %d sites: %+v %v", len(sites), s, err)
		}
	}
}
