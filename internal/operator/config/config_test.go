package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/edge/certs"
)

func good() Config {
	return Config{
		Listen:         "127.0.0.1:8080",
		EdgeHTTP:       "127.0.0.1:8081",
		EdgeHTTPS:      "127.0.0.1:8443",
		SiteDomain:     "localhost",
		Roles:          []string{"api", "worker", "edge"},
		RateLimit:      100,
		Registry:       "auto",
		GitHistory:     10,
		MaxFileSize:    2048,
		MaxReleaseSize: 4096,
		BuildMemory:    2048,
		BuildDisk:      4096,
		BuildTime:      time.Minute,
	}
}

func TestCheckTurnsWhatWasSaidIntoWhatIsMeant(t *testing.T) {
	t.Parallel()
	c := good()
	c.GitHosts = []string{"git.test=http://127.0.0.1:3000", "files.test=file:///srv/git"}
	c.OutboundAllow = []string{"10.1.2.3/8", "::1"}
	s, err := c.Check()
	if err != nil {
		t.Fatal(err)
	}
	if s.BaseURL != "http://127.0.0.1:8080" || s.APIURL != s.BaseURL || s.SitePort != 8443 || len(s.ControlHosts) != 0 {
		t.Errorf("addresses %q %q %d %v", s.BaseURL, s.APIURL, s.SitePort, s.ControlHosts)
	}
	for listen, want := range map[string]string{
		":8080": "http://localhost:8080", "0.0.0.0:80": "http://localhost:80", "[::]:8080": "http://localhost:8080", "[::1]:8080": "http://[::1]:8080",
	} {
		c := c
		c.Listen = listen
		if s, err := c.Check(); err != nil || s.BaseURL != want {
			t.Errorf("--listen %s: %q, %v, want %q", listen, s.BaseURL, err, want)
		}
	}
	if s.GitAt["files.test"] != "file:///srv/git" || s.Allow[0].String() != "10.0.0.0/8" || s.Allow[1].String() != "::1/128" {
		t.Errorf("git hosts %v, allowed %v", s.GitAt, s.Allow)
	}
	c.BaseURL, c.APIURL, c.SiteDomain = "https://Panel.example.com/", "https://api.example.com", "Sites.Example.NET."
	if s, err = c.Check(); err != nil || s.BaseURL != "https://Panel.example.com" || s.SiteDomain != "sites.example.net" ||
		!slices.Equal(s.ControlHosts, []string{"panel.example.com", "api.example.com"}) {
		t.Errorf("got %q %q %v, %v", s.BaseURL, s.SiteDomain, s.ControlHosts, err)
	}
}

// acme returns a change of a Config with an ACME authority.
func acme(change func(*Config)) func(*Config) {
	return func(c *Config) {
		c.ACMECA, c.SiteDomain, c.BaseURL = []string{"https://ca.test:14000/dir"}, "sites.example.com", "http://panel.example.net"
		change(c)
	}
}

func zone(name string) func(*Config) {
	return func(c *Config) { c.ACMEDNS, c.ACMEDNSZone = "127.0.0.1:5353", name }
}

func TestCheckACME(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cas, eab []string
		zone     string
		want     map[string]certs.Binding
	}{
		{[]string{"https://ca.test/dir"}, nil, "ACME.example.org.", nil},
		{
			[]string{"https://ca.test/dir"},
			[]string{"kid:a2V5"},
			"_acme.sites.example.com",
			map[string]certs.Binding{"ca.test": {KeyID: "kid", HMAC: "a2V5"}},
		},
		{
			[]string{"https://ca.test/dir", "https://b.test/dir"},
			[]string{"b.test=kid:a2V5LQ==", "ca.test=other:_-8"},
			"acme.example.net",
			map[string]certs.Binding{"b.test": {KeyID: "kid", HMAC: "a2V5LQ=="}, "ca.test": {KeyID: "other", HMAC: "_-8"}},
		},
	} {
		c := good()
		acme(zone(tt.zone))(&c)
		c.ACMECA, c.ACMEEAB, c.PublicAddress = tt.cas, tt.eab, []string{"203.0.113.7", "2001:db8::7"}
		s, err := c.Check()
		if err != nil || s.ACMEDNSZone != strings.Trim(
			strings.ToLower(tt.zone),
			".",
		) || len(s.Bindings) != len(tt.want) || len(s.Public) != 2 {
			t.Errorf("%v: %q %v %v, %v", tt, s.ACMEDNSZone, s.Bindings, s.Public, err)
		}
		for host, want := range tt.want {
			if s.Bindings[host] != want {
				t.Errorf("%s: %v", host, s.Bindings[host].KeyID)
			}
		}
	}
}

// An invalid setting is refused with one line that names the flag.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	noCert := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(noCert, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, change := range map[string]func(*Config){
		"--listen":           func(c *Config) { c.Listen = "8080" },
		"--edge-https":       func(c *Config) { c.EdgeHTTPS = "127.0.0.1:99999" },
		"--site-domain":      func(c *Config) { c.SiteDomain = "not a domain" },
		"--base-url":         func(c *Config) { c.BaseURL = "ftp://x" },
		"--base-url is":      func(c *Config) { c.BaseURL, c.EdgeHTTPS = "https://x.test", "" },
		"--api-url":          func(c *Config) { c.APIURL = "https://u:p@x.test" },
		"--shared-domain":    func(c *Config) { c.BaseURL, c.SiteDomain = "https://panel.example.com", "sites.example.com" },
		"--git-host":         func(c *Config) { c.GitHosts = []string{"git.test"} },
		"--outbound-allow":   func(c *Config) { c.OutboundAllow = []string{"10.0.0.0/99"} },
		"--trusted-proxy":    func(c *Config) { c.TrustedProxies = []string{"proxy"} },
		"--proxy-protocol":   func(c *Config) { c.ProxyProtocol = true },
		"--outbound-ca-file": func(c *Config) { c.OutboundCAFile = "/does/not/exist" },
		"holds no cert":      func(c *Config) { c.OutboundCAFile = noCert },
		"--rate-limit":       func(c *Config) { c.RateLimit = 0 },
		"--dns-resolver":     func(c *Config) { c.DNSResolver = "1.1.1.1" },
		"--roles":            func(c *Config) { c.Roles = []string{"everything"} },
		"name at least one":  func(c *Config) { c.Roles = nil },
		"--database":         func(c *Config) { c.Database = "mysql://x" },
		"--backup-to":        func(c *Config) { c.Backup.To = "ftp://x" },
		"outside the data":   func(c *Config) { c.Backup.To = c.Store.Path("backups") },
		"--backup-recipient": func(c *Config) { c.Backup.Recipients = []string{"age1nonsense"} },
		"--blobs":            func(c *Config) { c.Blobs = "s3://bucket" },
		"--acme-ca":          func(c *Config) { c.ACMECA = []string{"http://ca.test/dir"} },
		"--acme-email":       func(c *Config) { c.ACMEEmail = "a@b.test" },
		"--acme-email: ":     func(c *Config) { c.ACMECA, c.ACMEEmail = []string{"https://ca.test/dir"}, "nobody" },
		"needs --edge-https": func(c *Config) { c.ACMECA, c.EdgeHTTPS = []string{"https://ca.test/dir"}, "" },
		"--acme-eab":         func(c *Config) { c.ACMEEAB = []string{"kid:a2V5"} },
		"not KID:HMAC":       acme(func(c *Config) { c.ACMEEAB = []string{"kid:not base64!"} }),
		"KID:HMAC or":        acme(func(c *Config) { c.ACMEEAB = []string{"kid"} }),
		"at \"other.test\"":  acme(func(c *Config) { c.ACMEEAB = []string{"other.test=kid:a2V5"} }),
		"several": acme(func(c *Config) {
			c.ACMECA, c.ACMEEAB = append(
				c.ACMECA,
				"https://b.test/dir",
			), []string{"kid:a2V5"}
		}),
		"--acme-dns ":                    func(c *Config) { c.ACMEDNS = "127.0.0.1:5353" },
		"--acme-dns: ":                   acme(func(c *Config) { c.ACMEDNS, c.ACMEDNSZone = "5353", "acme.example.net" }),
		"--acme-dns-zone ":               func(c *Config) { c.ACMEDNSZone = "acme.example.net" },
		"used together":                  acme(func(c *Config) { c.ACMEDNSZone = "acme.example.net" }),
		"--acme-dns and --acme-dns-zone": acme(func(c *Config) { c.ACMEDNS = "127.0.0.1:5353" }),
		"is not a domain":                acme(zone("not a zone")),
		"such as acme":                   acme(zone("acme")),
		"gone from":                      acme(zone("Example.com.")),
		"lies in":                        acme(zone("sites.example.com")),
		"panel.example.net":              acme(zone("example.net")),
		"among the sites":                acme(zone("acme.sites.example.com")),
		"--public-address":               func(c *Config) { c.PublicAddress = []string{"0.0.0.0"} },
		"not an IP":                      func(c *Config) { c.PublicAddress = []string{"example.com"} },
		"--prices":                       func(c *Config) { c.Prices = noCert },
		"--limits":                       func(c *Config) { c.Limits = noCert },
		"--builds":                       func(c *Config) { c.Builds = -1 },
		"--max-file-size":                func(c *Config) { c.MaxFileSize = 0 },
		"--git-history":                  func(c *Config) { c.GitHistory = 0 },
		"--max-release-size":             func(c *Config) { c.MaxReleaseSize = 100 },
		"--build-memory":                 func(c *Config) { c.BuildMemory = 1 },
		"--build-disk":                   func(c *Config) { c.BuildDisk = 1 },
		"--build-time":                   func(c *Config) { c.BuildTime = 0 },
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			c := good()
			change(&c)
			_, err := c.Check()
			if err == nil || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, flag)
			}
		})
	}
	c := good()
	c.BaseURL, c.SiteDomain, c.SharedDomain = "https://panel.example.com", "sites.example.com", true
	if _, err := c.Check(); err != nil {
		t.Errorf("with --shared-domain: %v", err)
	}
}

// The data directory is always an absolute path, because programs run from folders in it that are mounted elsewhere.
func TestDataDirectoryIsAbsolute(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"./slipway-data":    filepath.Join(wd, "slipway-data"),
		"/var/lib/slipway/": "/var/lib/slipway",
	} {
		c := good()
		c.DataDir = given
		s, err := c.Check()
		if err != nil || s.DataDir != want || s.Path("bundles") != filepath.Join(want, "bundles") {
			t.Errorf("%s becomes %s, %v", given, s.DataDir, err)
		}
	}
}

// All invalid settings are reported, each once and always in the same order. Errors that only follow from another
// aren't.
func TestCheckReportsAll(t *testing.T) {
	t.Parallel()
	c := good()
	c.Listen, c.EdgeHTTPS, c.SiteDomain = "8080", "443", "not a domain"
	c.GitHosts = []string{"git.test", "x.test=ftp://y"}
	c.TrustedProxies, c.ProxyProtocol = []string{"proxy"}, true
	c.OutboundCAFile, c.SMTP = "/does/not/exist", SMTP{Addr: "mail.test:25", From: "a@b.test"}
	c.SignUp, c.RateLimit, c.MaxFileSize, c.BuildTime = true, 0, 0, 0
	c.Roles = []string{"everything", "nothing", "edge"}
	c.RedisServer, c.WPCLI, c.Browser = "redis", "wp", "chromium"
	c.PublicAddress = []string{"example.com", "0.0.0.0"}
	c.Limits = "/does/not/exist"
	c.ACMEEmail, c.ACMEEAB, c.ACMEDNS, c.ACMEDNSZone = "a@b.test", []string{"kid:a2V5"}, "127.0.0.1:5353", "acme.example.net"
	want := []string{
		"--listen:", "--edge-https:", "--site-domain:", "--git-host: \"git.test\"", "--git-host: \"ftp://y\"", "--trusted-proxy:",
		"--outbound-ca-file:", "--smtp needs --base-url", "--rate-limit:", "--max-file-size:", "--build-time:", "--roles: \"everything\"",
		"--roles: \"nothing\"", "--wp-cli:", "--redis-server:", "--browser:", "--public-address: \"example.com\"", "--public-address: \"0.0.0.0\"",
		"--limits:", "--acme-email has", "--acme-eab has", "--acme-dns has", "--acme-dns-zone has",
	}
	for range 20 {
		_, err := c.Check()
		var got Problems
		if !errors.As(err, &got) || len(got) != len(want) || strings.Count(err.Error(), "\n") != len(want)-1 {
			t.Fatalf("there are %d problems, want %d:\n%v", len(got), len(want), err)
		}
		for i, w := range want {
			if !strings.HasPrefix(got[i].Error(), w) {
				t.Fatalf("problem %d is %q, want %q", i, got[i], w)
			}
		}
	}
}
