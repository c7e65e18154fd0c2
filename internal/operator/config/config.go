// Package config owns the operator's settings: they are checked as a whole, and derived values
// are computed, before anything is changed.
//
// An error is one line that names the flag.
package config

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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/publicsuffix"

	"slipway/internal/deploy/screenshot"
	"slipway/internal/edge/certs"
	"slipway/internal/edge/country"
	"slipway/internal/edge/ports"
	"slipway/internal/edge/visits"
	"slipway/internal/operator/installation"
	"slipway/internal/operator/recovery"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/program/database"
	"slipway/internal/program/redis"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/mail"
	"slipway/internal/wordpress/core"
)

// Config holds the operator's settings as they were given.
type Config struct {
	installation.Store
	Version string
	Log     *slog.Logger

	Listen        string
	EdgeHTTP      string // empty: off
	EdgeHTTPS     string // empty: off
	BaseURL       string // empty: from Listen
	APIURL        string // empty: BaseURL
	SiteDomain    string
	SharedDomain  bool
	ACMECA        []string // ACME directories, the preferred one first
	ACMEEmail     string
	ACMEEAB       []string // [HOST=]KID:HMAC
	ACMEDNS       string   // empty: challenges in the DNS are not answered
	ACMEDNSZone   string
	Roles         []string
	NodeListen    string   // where other nodes reach this one's programs; empty: they don't
	NodeAddress   string   // the same as they see it; empty: NodeListen
	NodeTemporary bool     // its data directory is lost when it ends
	GitHosts      []string // HOST=ADDRESS

	OutboundAllow     []string
	OutboundCAFile    string
	DNSResolver       string
	RateLimit         int
	SignUp            bool   // people may create accounts
	OAuthRegistration bool   // apps may register themselves
	ActionsIssuer     string // who signs for workflows of GitHub Actions
	Registry          string
	Prices            string   // file
	Limits            string   // file
	Billing           bool     // plans, subscriptions and invoices
	StripeAPI         string   // in place of Stripe's own address, for tests
	PublicAddress     []string // where the internet finds the edge
	TrustedProxies    []string
	ProxyProtocol     bool // of the trusted proxies, which forward connections instead of requests

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
	BuildDisk      int           // MiB per build
	BuildTime      time.Duration // per stage
	InsecureBuilds bool          // without a sandbox

	WordPressSource string // of the core that WordPress sites run from; empty: the current release
	WPCLI           string // program wp of commands of WordPress sites; empty: the one in PATH, if it is below /usr
	Browser         string // that takes screenshots of sites; empty: the one in PATH; screenshot.NoBrowser: none
	RedisServer     string // program that WordPress sites have as their object cache; empty: the one in PATH

	MariaDB       string // address of a MariaDB server; empty: private ones
	MariaDBMemory int    // MiB of our own; 0: the default
	DatabaseSize  int    // MiB of one database; 0: the default

	SMTP   SMTP
	Backup recovery.Settings
}

// reachable returns where this machine reaches a listener that may listen on all addresses.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || host != "" && !net.ParseIP(host).IsUnspecified() {
		return listen
	}
	return net.JoinHostPort("localhost", port)
}

// Settings are a Config that Check has found valid, with what follows from it: BaseURL,
// APIURL, SiteDomain, DataDir and ACMEDNSZone are in their canonical form.
type Settings struct {
	Config
	OwnHosts      []string          // of the control plane's addresses
	ControlHosts  []string          // hosts that the edge answers for the control plane, where its address is https
	GitAt         map[string]string // from which address a host's repositories are fetched
	Allow         []netip.Prefix    // private networks that may be reached
	Proxies       []netip.Prefix    // that are trusted
	SitePort      int
	Bindings      map[string]certs.Binding // of ACME accounts, by authority
	PriceList     domain.Prices
	AccountLimits limits.Settings
	Public        []netip.Addr     // where the internet finds the edge
	Mailer        *mail.Mailer     // nil: no mails
	Countries     visits.Countries // nil: no database, or no edge on this node
}

var domainForm = lazyregexp.New(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// Check validates the settings and returns what follows from them. Its error is one line.
// It changes nothing.
func (c Config) Check() (Settings, error) {
	s := Settings{Config: c, GitAt: map[string]string{}}
	var err error
	if s.DataDir, err = filepath.Abs(c.DataDir); err != nil { // what runs in sandboxes is mounted from there
		return s, fmt.Errorf("--data-dir: %w", err)
	}
	for flag, addr := range map[string]string{
		"--listen":     c.Listen,
		"--edge-http":  c.EdgeHTTP,
		"--edge-https": c.EdgeHTTPS,
		"--acme-dns":   c.ACMEDNS,

		"--node-listen":  c.NodeListen,
		"--node-address": c.NodeAddress,
	} {
		if addr == "" && flag != "--listen" {
			continue
		}
		if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
			return s, fmt.Errorf("%s: %q is not HOST:PORT", flag, addr)
		}
	}
	if err := s.checkNode(); err != nil {
		return s, err
	}
	if !s.Role("worker") { // it has nothing to be reached for
		s.NodeAddress = ""
	}
	if err := s.checkStorage(); err != nil {
		return s, err
	}
	if c.EdgeHTTPS != "" {
		_, port, _ := net.SplitHostPort(c.EdgeHTTPS)
		s.SitePort, _ = strconv.Atoi(port)
	}
	s.SiteDomain = strings.ToLower(strings.TrimSuffix(c.SiteDomain, "."))
	if !domainForm.MatchString(s.SiteDomain) || len(s.SiteDomain) > 190 {
		return s, fmt.Errorf("--site-domain: %q is not a domain name", c.SiteDomain)
	}
	if s.BaseURL, err = baseURL("--base-url", cmp.Or(c.BaseURL, "http://"+reachable(c.Listen))); err != nil {
		return s, err
	}
	if s.APIURL, err = baseURL("--api-url", cmp.Or(c.APIURL, s.BaseURL)); err != nil {
		return s, err
	}
	for _, u := range []string{s.BaseURL, s.APIURL} {
		p, err := url.Parse(u)
		if err != nil {
			return s, err
		}
		host := strings.ToLower(p.Hostname())
		s.OwnHosts = append(s.OwnHosts, host)
		if p.Scheme != "https" {
			continue
		}
		if c.EdgeHTTPS == "" {
			return s, errors.New("--base-url is https, but --edge-https is off: nothing would serve it")
		}
		if !slices.Contains(s.ControlHosts, host) {
			s.ControlHosts = append(s.ControlHosts, host)
		}
		if !c.SharedDomain && registrable(host) == registrable(s.SiteDomain) {
			return s, fmt.Errorf(
				"the control plane (%s) and the sites (*.%s) share a registrable domain, so a site could set cookies for the dashboard: use "+
					"another --site-domain, or pass --shared-domain", host,
				s.SiteDomain,
			)
		}
	}
	if u, err := url.Parse(c.StripeAPI); err != nil ||
		c.StripeAPI != "" && (u.Port() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "") {
		return s, fmt.Errorf("--stripe-api: %q is not http://HOST:PORT or https://HOST:PORT", c.StripeAPI)
	}
	for _, m := range c.GitHosts {
		host, to, ok := strings.Cut(m, "=")
		if !ok || host == "" || to == "" {
			return s, fmt.Errorf("--git-host: %q is not HOST=ADDRESS", m)
		}
		if u, err := url.Parse(to); err != nil || u.User != nil || u.RawQuery != "" ||
			!(u.Scheme == "file" && u.Host == "" && strings.HasPrefix(
				u.Path,
				"/",
			) || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "") {
			return s, fmt.Errorf("--git-host: %q is not http://HOST:PORT, https://HOST or file:///DIRECTORY", to)
		}
		s.GitAt[host] = to
	}
	if s.Allow, err = prefixes("--outbound-allow", c.OutboundAllow); err != nil {
		return s, err
	}
	if s.Proxies, err = prefixes("--trusted-proxy", c.TrustedProxies); err != nil {
		return s, err
	}
	if c.ProxyProtocol && len(s.Proxies) == 0 {
		return s, errors.New("--proxy-protocol needs --trusted-proxy: the networks of the load balancers that send it")
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
	if s.Mailer, err = s.SMTP.Mailer(hostOf(s.BaseURL)); err != nil {
		return s, err
	}
	if s.SignUp && s.Mailer == nil {
		return s, errors.New("--sign-up open needs a mail server (--smtp), or nobody could prove an email address")
	}
	if c.RateLimit < 1 {
		return s, fmt.Errorf("--rate-limit: %d is not a positive number", c.RateLimit)
	}
	if c.CountryDatabase != "" && s.Role("edge") {
		if s.Countries, err = country.Open(c.CountryDatabase); err != nil {
			return s, fmt.Errorf("--country-database: %w", err)
		}
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
	case c.BuildDisk < 128:
		return s, fmt.Errorf("--build-disk: %d MiB is too little for any build; at least 128", c.BuildDisk)
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
	if err := core.CheckSource(c.WordPressSource); err != nil {
		return s, fmt.Errorf("--wordpress-source: %w", err)
	}
	for name, program := range map[string]string{"--redis-server": c.RedisServer, "--wp-cli": c.WPCLI, "--browser": c.Browser} {
		if program == "" || name == "--browser" && program == screenshot.NoBrowser {
			continue
		}
		if info, err := os.Stat(program); !filepath.IsAbs(program) || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return s, errors.New(name + ": give the absolute path of a program")
		}
	}
	if c.MariaDB != "" {
		if _, err := database.ParseServer(c.MariaDB); err != nil {
			return s, fmt.Errorf("--mariadb: %w", err)
		}
	}
	if c.Redis != "" {
		if _, err := redis.ParseServer(c.Redis); err != nil {
			return s, fmt.Errorf("--redis: %w", err)
		}
	}
	if len(c.Roles) == 0 {
		return s, errors.New("--roles: name at least one of api, worker, edge")
	}
	if c.Database != "" && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		return s, errors.New("--database: the address must begin with postgres://")
	}
	if err := c.CheckBlobs(); err != nil {
		return s, fmt.Errorf("--blobs: %w", err)
	}
	if err := recovery.Check(c.Backup); err != nil {
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
		s.Public = append(s.Public, a.Unmap())
	}
	if c.Prices != "" {
		if s.PriceList, err = domain.LoadPrices(c.Prices); err != nil {
			return s, fmt.Errorf("--prices: %w", err)
		}
	}
	if s.AccountLimits, err = ReadLimits(c.Limits); err != nil {
		return s, err
	}
	return s, s.checkACME()
}

// checkNode checks where other nodes reach this one, and sets the address that they are told.
func (s *Settings) checkNode() error {
	switch {
	case s.NodeListen == "" && s.NodeAddress == "":
		return nil
	case s.NodeListen == "":
		return errors.New("--node-address needs --node-listen")
	case s.Database == "":
		return errors.New("--node-listen needs --database: with SQLite there is one node")
	case s.NodeAddress != "":
		return nil
	}
	s.NodeAddress = s.NodeListen
	host, _, _ := net.SplitHostPort(s.NodeListen)
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		return errors.New("--node-address: say at which address other nodes reach --node-listen")
	}
	return nil
}

// checkStorage sees that a directory for the storage of sites can be one that other nodes mount.
func (s *Settings) checkStorage() error {
	switch {
	case s.Storage == "":
		return nil
	case !filepath.IsAbs(s.Storage):
		return errors.New("--storage: give the absolute path of the directory")
	case s.Inside(s.Storage):
		return errors.New("--storage: the directory must not be in the data directory, which is this node's own")
	}
	s.Storage = filepath.Clean(s.Storage)
	return nil
}

// ReadLimits reads the operator's limits; without a file there are none.
func ReadLimits(file string) (limits.Settings, error) {
	if file == "" {
		return limits.Settings{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return limits.Settings{}, fmt.Errorf("--limits: %w", err)
	}
	read, err := limits.Parse(string(text))
	if err != nil {
		return limits.Settings{}, fmt.Errorf("--limits: %s: %w", file, err)
	}
	return read, nil
}

// Listens is the address of the edge, if it has a certain one.
func (s Settings) Listens() []netip.Addr {
	host, _, _ := net.SplitHostPort(s.EdgeHTTPS)
	if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() {
		return []netip.Addr{a.Unmap()}
	}
	return nil
}

// Ports returns what this node listens on.
func (s Settings) Ports() ports.Config {
	c := ports.Config{Control: s.Listen}
	if s.Role("worker") {
		c.Node = s.NodeListen
	}
	if s.Role("edge") {
		c.HTTP, c.HTTPS, c.QUIC, c.DNS = s.EdgeHTTP, s.EdgeHTTPS, s.HTTP3, s.ACMEDNS
	}
	return c
}

// Connections returns the limits of what this node listens on, and who counts what they refuse.
func (s Settings) Connections(m prometheus.Registerer) ports.Limits {
	return ports.Limits{
		Total: s.MaxConnections, PerAddress: s.MaxConnectionsPerAddress, Exempt: s.Proxies, Forwarding: s.ProxyProtocol, Metrics: m,
	}
}

// Role reports whether this node has the role.
func (s Settings) Role(name string) bool { return slices.Contains(s.Roles, name) }

func isPort(p string) bool {
	n, err := strconv.Atoi(p)
	return err == nil && n >= 0 && n <= 65535
}

func baseURL(flag, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(
			u.Path,
			"/",
		) != "" {
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
