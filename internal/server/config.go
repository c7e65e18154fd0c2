package server

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"slipway/internal/account"
	"slipway/internal/certs"
	"slipway/internal/database"
	"slipway/internal/domain"
	"slipway/internal/egress"
	"slipway/internal/mail"
	"slipway/internal/wordpress"
)

// Config holds the operator's settings as they were given.
type Config struct {
	Store
	Version string
	Log     *slog.Logger

	Listen       string
	EdgeHTTP     string // empty: off
	EdgeHTTPS    string // empty: off
	BaseURL      string // empty: from Listen
	APIURL       string // empty: BaseURL
	SiteDomain   string
	SharedDomain bool
	ACMECA       []string // ACME directories, the preferred one first
	ACMEEmail    string
	ACMEEAB      []string // [HOST=]KID:HMAC
	ACMEDNS      string   // empty: challenges in the DNS are not answered
	ACMEDNSZone  string
	Roles        []string
	GitHosts     []string // HOST=ADDRESS

	OutboundAllow  []string
	OutboundCAFile string
	DNSResolver    string
	RateLimit      int
	Registry       string
	Prices         string   // file
	Limits         string   // file
	PublicAddress  []string // where the internet finds the edge
	TrustedProxies []string

	MaxConnections           int           // of visitors of sites, overall; 0: what the open files allow
	MaxConnectionsPerAddress int           // of one address, or one IPv6 /64; 0: an eighth of all
	NoFastPath               bool          // all connections are left to net/http
	CountryDatabase          string        // file in MaxMind's format; empty: nobody's country is known
	HTTP3                    bool          // sites over QUIC, at the port of EdgeHTTPS
	DrainDelay               time.Duration // how long the listeners stay open after SIGTERM

	MaxFileSize    int           // MiB of one published file
	MaxReleaseSize int           // MiB of all files of a release
	GitHistory     int           // commits of a branch that builds see
	Builds         int           // at once; 0: half the processors
	BuildMemory    int           // MiB per build
	BuildTime      time.Duration // per stage
	InsecureBuilds bool          // without a sandbox

	WordPressSource string // of the core that WordPress sites run from; empty: the current release

	MariaDB       string // address of a MariaDB server; empty: one of our own
	MariaDBMemory int    // MiB of our own; 0: the default
	DatabaseSize  int    // MiB of one database; 0: the default

	SMTP   SMTP
	Backup Backup
}

// settings is a Config that check has found valid, with what follows from it.
type settings struct {
	Config
	baseURL, apiURL string
	ownHosts        []string // of the control plane's addresses
	controlHosts    []string // hosts that the edge answers for the control plane, where its address is https
	gitHosts        map[string]string
	allow           []netip.Prefix
	proxies         []netip.Prefix
	sitePort        int
	bindings        map[string]certs.Binding
	prices          domain.Prices
	limits          account.LimitSettings
	public          []netip.Addr
	mailer          *mail.Mailer // nil: no mails
}

var domainForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// check validates the settings and returns what follows from them. Its error is one line.
// It changes nothing.
func (c Config) check() (settings, error) {
	s := settings{Config: c, gitHosts: map[string]string{}}
	var err error
	if s.DataDir, err = filepath.Abs(c.DataDir); err != nil { // what runs in sandboxes is mounted from there
		return s, fmt.Errorf("--data-dir: %w", err)
	}
	for flag, addr := range map[string]string{"--listen": c.Listen, "--edge-http": c.EdgeHTTP, "--edge-https": c.EdgeHTTPS, "--acme-dns": c.ACMEDNS} {
		if addr == "" && flag != "--listen" {
			continue
		}
		if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
			return s, fmt.Errorf("%s: %q is not HOST:PORT", flag, addr)
		}
	}
	if c.EdgeHTTPS != "" {
		_, port, _ := net.SplitHostPort(c.EdgeHTTPS)
		s.sitePort, _ = strconv.Atoi(port)
	}
	s.SiteDomain = strings.ToLower(strings.TrimSuffix(c.SiteDomain, "."))
	if !domainForm.MatchString(s.SiteDomain) || len(s.SiteDomain) > 190 {
		return s, fmt.Errorf("--site-domain: %q is not a domain name", c.SiteDomain)
	}
	if s.baseURL, err = baseURL("--base-url", cmp.Or(c.BaseURL, "http://"+c.Listen)); err != nil {
		return s, err
	}
	if s.apiURL, err = baseURL("--api-url", cmp.Or(c.APIURL, s.baseURL)); err != nil {
		return s, err
	}
	for _, u := range []string{s.baseURL, s.apiURL} {
		p, err := url.Parse(u)
		if err != nil {
			return s, err
		}
		host := strings.ToLower(p.Hostname())
		s.ownHosts = append(s.ownHosts, host)
		if p.Scheme != "https" {
			continue
		}
		if c.EdgeHTTPS == "" {
			return s, errors.New("--base-url is https, but --edge-https is off: nothing would serve it")
		}
		if !slices.Contains(s.controlHosts, host) {
			s.controlHosts = append(s.controlHosts, host)
		}
		if !c.SharedDomain && registrable(host) == registrable(s.SiteDomain) {
			return s, fmt.Errorf("the control plane (%s) and the sites (*.%s) share a registrable domain, so a site could set cookies for the dashboard: use another --site-domain, or pass --shared-domain", host, s.SiteDomain)
		}
	}
	for _, m := range c.GitHosts {
		host, to, ok := strings.Cut(m, "=")
		if !ok || host == "" || to == "" {
			return s, fmt.Errorf("--git-host: %q is not HOST=ADDRESS", m)
		}
		if u, err := url.Parse(to); err != nil || u.User != nil || u.RawQuery != "" ||
			!(u.Scheme == "file" && u.Host == "" && strings.HasPrefix(u.Path, "/") || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "") {
			return s, fmt.Errorf("--git-host: %q is not http://HOST:PORT, https://HOST or file:///DIRECTORY", to)
		}
		s.gitHosts[host] = to
	}
	if s.allow, err = prefixes("--outbound-allow", c.OutboundAllow); err != nil {
		return s, err
	}
	if s.proxies, err = prefixes("--trusted-proxy", c.TrustedProxies); err != nil {
		return s, err
	}
	if c.OutboundCAFile != "" {
		pem, err := os.ReadFile(c.OutboundCAFile)
		if err != nil {
			return s, fmt.Errorf("--outbound-ca-file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return s, fmt.Errorf("--outbound-ca-file: %s holds no certificate in PEM form", c.OutboundCAFile)
		}
	}
	if s.SMTP.Addr != "" && c.BaseURL == "" {
		return s, errors.New("--smtp needs --base-url: the links in emails point to it")
	}
	s.SMTP.CAFile = c.OutboundCAFile
	if s.mailer, err = s.SMTP.mailer(hostOf(s.baseURL)); err != nil {
		return s, err
	}
	if c.RateLimit < 1 {
		return s, fmt.Errorf("--rate-limit: %d is not a positive number", c.RateLimit)
	}
	if c.DNSResolver != "" {
		if _, port, err := net.SplitHostPort(c.DNSResolver); err != nil || !isPort(port) {
			return s, fmt.Errorf("--dns-resolver: %q is not HOST:PORT", c.DNSResolver)
		}
	}
	switch {
	case c.MaxConnections < 0:
		return s, fmt.Errorf("--max-connections: %d is negative", c.MaxConnections)
	case c.MaxConnectionsPerAddress < 0:
		return s, fmt.Errorf("--max-connections-per-address: %d is negative", c.MaxConnectionsPerAddress)
	case c.DrainDelay < 0 || c.DrainDelay > 10*time.Minute:
		return s, fmt.Errorf("--drain-delay: %s is not from 0s to 10m", c.DrainDelay)
	case c.Builds < 0 || c.Builds > 1000:
		return s, fmt.Errorf("--builds: %d is not a number from 0 to 1000", c.Builds)
	case c.MaxFileSize < 1 || c.MaxFileSize > 1<<20:
		return s, fmt.Errorf("--max-file-size: %d MiB is not from 1 MiB to 1 TiB", c.MaxFileSize)
	case c.GitHistory < 1 || c.GitHistory > 10_000:
		return s, fmt.Errorf("--git-history: %d commits are not from 1 to 10000", c.GitHistory)
	case c.MaxReleaseSize < c.MaxFileSize || c.MaxReleaseSize > 1<<20:
		return s, fmt.Errorf("--max-release-size: %d MiB is less than --max-file-size, or more than 1 TiB", c.MaxReleaseSize)
	case c.BuildMemory < 128:
		return s, fmt.Errorf("--build-memory: %d MiB is too little for any build; at least 128", c.BuildMemory)
	case c.MariaDBMemory != 0 && c.MariaDBMemory < 128:
		return s, fmt.Errorf("--mariadb-memory: %d MiB is too little for MariaDB; at least 128", c.MariaDBMemory)
	case c.DatabaseSize < 0:
		return s, fmt.Errorf("--database-size: %d MiB is negative", c.DatabaseSize)
	case c.BuildTime < time.Second:
		return s, fmt.Errorf("--build-time: %s is too short for any build", c.BuildTime)
	}
	for _, r := range c.Roles {
		if !slices.Contains([]string{"api", "worker", "edge"}, r) {
			return s, fmt.Errorf("--roles: %q must be api, worker or edge", r)
		}
	}
	if err := wordpress.CheckSource(c.WordPressSource); err != nil {
		return s, fmt.Errorf("--wordpress-source: %w", err)
	}
	if c.MariaDB != "" {
		if _, err := database.ParseServer(c.MariaDB); err != nil {
			return s, fmt.Errorf("--mariadb: %w", err)
		}
	}
	if len(c.Roles) == 0 {
		return s, errors.New("--roles: name at least one of api, worker, edge")
	}
	if c.Database != "" && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		return s, errors.New("--database: the address must begin with postgres://")
	}
	if err := c.checkBlobs(); err != nil {
		return s, fmt.Errorf("--blobs: %w", err)
	}
	if err := checkBackup(c.Backup); err != nil {
		return s, err
	}
	if c.BlobCache < 0 {
		return s, fmt.Errorf("--blob-cache: %d is not a number of MiB", c.BlobCache)
	}
	for _, text := range c.PublicAddress {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return s, fmt.Errorf("--public-address: %q is not an IP address that others can reach", text)
		}
		s.public = append(s.public, a.Unmap())
	}
	if c.Prices != "" {
		if s.prices, err = domain.LoadPrices(c.Prices); err != nil {
			return s, fmt.Errorf("--prices: %w", err)
		}
	}
	if s.limits, err = readLimits(c.Limits); err != nil {
		return s, err
	}
	return s, s.checkACME()
}

// readLimits reads the operator's limits; without a file there are none.
func readLimits(file string) (account.LimitSettings, error) {
	if file == "" {
		return account.LimitSettings{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return account.LimitSettings{}, fmt.Errorf("--limits: %w", err)
	}
	limits, err := account.ParseLimits(string(text))
	if err != nil {
		return account.LimitSettings{}, fmt.Errorf("--limits: %s: %w", file, err)
	}
	return limits, nil
}

// listens is the address of the edge, if it has a certain one.
func (s settings) listens() []netip.Addr {
	host, _, _ := net.SplitHostPort(s.EdgeHTTPS)
	if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() {
		return []netip.Addr{a.Unmap()}
	}
	return nil
}

func (s settings) role(name string) bool { return slices.Contains(s.Roles, name) }

func isPort(p string) bool {
	n, err := strconv.Atoi(p)
	return err == nil && n >= 0 && n <= 65535
}

func baseURL(flag, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%s: %q is not an address such as https://slipway.example.com", flag, text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// registrable is the part of a name that somebody registered; names without one, such as
// localhost or an address, stand for themselves.
func registrable(host string) string {
	if d, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil {
		return d
	}
	return host
}

func prefixes(flag string, list []string) ([]netip.Prefix, error) {
	out, err := egress.ParseNetworks(list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return out, nil
}
