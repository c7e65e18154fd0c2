// Package config owns the operator's settings: they are checked as a whole, and derived values
// are computed, before anything is changed.
//
// An error is a line for each wrong setting, in a fixed order, which names the flag.
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

	"slipway/internal/build/root"
	"slipway/internal/build/toolchain"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/edge/certs"
	"slipway/internal/edge/country"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/front"
	"slipway/internal/edge/ports"
	"slipway/internal/edge/visits"
	"slipway/internal/operator/installation"
	"slipway/internal/operator/recovery"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/program/database"
	"slipway/internal/program/redis"
	"slipway/internal/program/wpcli"
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
	ProxyHeader       string // in which they name the visitor; empty: X-Forwarded-For
	ProxyProtocol     bool   // of the trusted proxies, which forward connections instead of requests

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
	WPCLI           string // program wp of commands of WordPress sites, see wpcli.CheckSource; empty: the host's or the release
	Browser         string // that takes screenshots of sites; empty: the one in PATH; screenshot.NoBrowser: none
	Node            string // of projects that name none, as toolchain.Want has it; empty: the server's own
	DebianMirror    string // from which tools are installed that the host lacks; empty: Debian's own
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
	Proxies       front.Proxies
	SitePort      int
	Bindings      map[string]certs.Binding // of ACME accounts, by authority
	PriceList     domain.Prices
	AccountLimits limits.Settings
	Public        []netip.Addr     // where the internet finds the edge
	Mailer        *mail.Mailer     // nil: no mails
	Countries     visits.Countries // nil: no database, or no edge on this node
}

var domainForm = lazyregexp.New(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// Problems are what is wrong with settings, in the order of the checks.
type Problems []error

// Error returns a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, err := range p {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems.
func (p Problems) Unwrap() []error { return p }

// Lines returns the problems, to be shown a line each.
func (p Problems) Lines() []error { return p }

// add adds what is an error and isn't among the problems yet. It reports whether all is well with what was checked.
func (p *Problems) add(err error) bool {
	same := func(x error) bool { return x.Error() == err.Error() }
	if err != nil && !slices.ContainsFunc(*p, same) {
		*p = append(*p, err)
	}
	return err == nil
}

// Check validates the settings and returns what follows from them. Its error is Problems: a line each. What depends on a wrong setting
// isn't checked. It changes nothing.
func (c Config) Check() (Settings, error) {
	s := Settings{Config: c, GitAt: map[string]string{}}
	var wrong Problems
	s.checkAddresses(&wrong)
	wrong.add(s.checkStorage())
	s.checkNames(&wrong)
	s.checkOutside(&wrong)
	s.checkMail(&wrong, c.BaseURL != "")
	s.checkAmounts(&wrong)
	s.checkParts(&wrong)
	s.checkFiles(&wrong)
	s.checkACME(&wrong)
	if len(wrong) > 0 {
		return s, wrong
	}
	return s, nil
}

// checkAddresses checks where this node is and listens.
func (s *Settings) checkAddresses(wrong *Problems) {
	var err error
	if s.DataDir, err = filepath.Abs(s.DataDir); err != nil { // what runs in sandboxes is mounted from there
		wrong.add(fmt.Errorf("--data-dir: %w", err))
	}
	for _, x := range [][2]string{
		{"--listen", s.Listen},
		{"--edge-http", s.EdgeHTTP},
		{"--edge-https", s.EdgeHTTPS},
		{"--acme-dns", s.ACMEDNS},
		{"--node-listen", s.NodeListen},
		{"--node-address", s.NodeAddress},
		{"--dns-resolver", s.DNSResolver},
	} {
		if flag, addr := x[0], x[1]; !isAddress(addr) && (addr != "" || flag == "--listen") {
			wrong.add(fmt.Errorf("%s: %q is not HOST:PORT", flag, addr))
		}
	}
	if s.NodeListen == "" || isAddress(s.NodeListen) {
		wrong.add(s.checkNode())
	}
	if !s.Role("worker") { // it has nothing to be reached for
		s.NodeAddress = ""
	}
	if s.EdgeHTTPS != "" {
		_, port, _ := net.SplitHostPort(s.EdgeHTTPS)
		s.SitePort, _ = strconv.Atoi(port)
	}
}

// checkNames checks how the control plane and the sites are called.
func (s *Settings) checkNames(wrong *Problems) {
	said := s.SiteDomain
	s.SiteDomain = strings.ToLower(strings.TrimSuffix(said, "."))
	named := domainForm.MatchString(s.SiteDomain) && len(s.SiteDomain) <= 190
	if !named {
		wrong.add(fmt.Errorf("--site-domain: %q is not a domain name", said))
	}
	base, api := s.BaseURL, s.APIURL
	var err error
	if s.BaseURL = ""; base != "" || isAddress(s.Listen) {
		s.BaseURL, err = baseURL("--base-url", cmp.Or(base, "http://"+reachable(s.Listen)))
		wrong.add(err)
	}
	if s.APIURL = s.BaseURL; api != "" {
		s.APIURL, err = baseURL("--api-url", api)
		wrong.add(err)
	}
	for _, address := range []string{s.BaseURL, s.APIURL} {
		u, err := url.Parse(address)
		if !wrong.add(err) || address == "" {
			continue
		}
		host := strings.ToLower(u.Hostname())
		s.OwnHosts = append(s.OwnHosts, host)
		if u.Scheme != "https" {
			continue
		}
		if s.EdgeHTTPS == "" {
			wrong.add(errors.New("--base-url is https, but --edge-https is off: nothing would serve it"))
		}
		if !slices.Contains(s.ControlHosts, host) {
			s.ControlHosts = append(s.ControlHosts, host)
		}
		if named && !s.SharedDomain && registrable(host) == registrable(s.SiteDomain) {
			wrong.add(fmt.Errorf(
				"the control plane (%s) and the sites (*.%s) share a registrable domain, so a site could set cookies for the dashboard: use "+
					"another --site-domain, or pass --shared-domain", host,
				s.SiteDomain,
			))
		}
	}
}

// checkOutside checks what is reached outside, and who may reach this node in the name of others.
func (s *Settings) checkOutside(wrong *Problems) {
	if u, err := url.Parse(s.StripeAPI); err != nil ||
		s.StripeAPI != "" && (u.Port() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "") {
		wrong.add(fmt.Errorf("--stripe-api: %q is not http://HOST:PORT or https://HOST:PORT", s.StripeAPI))
	}
	for _, m := range s.GitHosts {
		host, to, ok := strings.Cut(m, "=")
		if !ok || host == "" || to == "" {
			wrong.add(fmt.Errorf("--git-host: %q is not HOST=ADDRESS", m))
			continue
		}
		u, err := url.Parse(to)
		if err != nil || u.User != nil || u.RawQuery != "" || !(u.Scheme == "file" && u.Host == "" && strings.HasPrefix(u.Path, "/") ||
			(u.Scheme == "http" || u.Scheme == "https") && u.Host != "") {
			wrong.add(fmt.Errorf("--git-host: %q is not http://HOST:PORT, https://HOST or file:///DIRECTORY", to))
		}
		s.GitAt[host] = to
	}
	var err error
	s.Allow, err = prefixes("--outbound-allow", s.OutboundAllow)
	wrong.add(err)
	s.Proxies.Networks, err = prefixes("--trusted-proxy", s.TrustedProxies)
	wrong.add(err)
	s.Proxies.Header = s.ProxyHeader
	switch {
	case s.ProxyHeader == "":
	case !fastpath.Token(s.ProxyHeader):
		wrong.add(fmt.Errorf("--trusted-proxy-header: %q is not the name of a header", s.ProxyHeader))
	case len(s.TrustedProxies) == 0:
		wrong.add(errors.New("--trusted-proxy-header needs --trusted-proxy: the networks of the proxies that send it"))
	}
	if s.ProxyProtocol && len(s.TrustedProxies) == 0 {
		wrong.add(errors.New("--proxy-protocol needs --trusted-proxy: the networks of the load balancers that send it"))
	}
	if s.OutboundCAFile != "" {
		pem, err := os.ReadFile(s.OutboundCAFile)
		switch {
		case err != nil:
			wrong.add(fmt.Errorf("--outbound-ca-file: %w", err))
		case !x509.NewCertPool().AppendCertsFromPEM(pem):
			wrong.add(fmt.Errorf("--outbound-ca-file: %s holds no certificate in PEM form", s.OutboundCAFile))
		}
	}
}

// checkMail checks how mails are sent, and what needs them. named: the operator gave a base URL.
func (s *Settings) checkMail(wrong *Problems, named bool) {
	if s.SMTP.Addr != "" && !named {
		wrong.add(errors.New("--smtp needs --base-url: the links in emails point to it"))
	}
	s.SMTP.CAFile = s.OutboundCAFile
	var err error
	s.Mailer, err = s.SMTP.Mailer(hostOf(s.BaseURL))
	if wrong.add(err) && s.SignUp && s.Mailer == nil {
		wrong.add(errors.New("--sign-up open needs a mail server (--smtp), or nobody could prove an email address"))
	}
}

// checkAmounts checks numbers and times.
func (s *Settings) checkAmounts(wrong *Problems) {
	for _, x := range []struct {
		bad  bool
		text string
		said any
	}{
		{s.RateLimit < 1, "--rate-limit: %v is not a positive number", s.RateLimit},
		{s.MaxConnections < 0, "--max-connections: %v is negative", s.MaxConnections},
		{s.MaxConnectionsPerAddress < 0, "--max-connections-per-address: %v is negative", s.MaxConnectionsPerAddress},
		{s.DrainDelay < 0 || s.DrainDelay > 10*time.Minute, "--drain-delay: %v is not from 0s to 10m", s.DrainDelay},
		{s.Builds < 0 || s.Builds > 1000, "--builds: %v is not a number from 0 to 1000", s.Builds},
		{s.MaxFileSize < 1 || s.MaxFileSize > 1<<20, "--max-file-size: %v MiB is not from 1 MiB to 1 TiB", s.MaxFileSize},
		{s.GitHistory < 1 || s.GitHistory > 10_000, "--git-history: %v commits are not from 1 to 10000", s.GitHistory},
		{
			s.MaxReleaseSize < s.MaxFileSize || s.MaxReleaseSize > 1<<20,
			"--max-release-size: %v MiB is less than --max-file-size, or more than 1 TiB", s.MaxReleaseSize,
		},
		{s.BuildMemory < 128, "--build-memory: %v MiB is too little for any build; at least 128", s.BuildMemory},
		{s.BuildDisk < 128, "--build-disk: %v MiB is too little for any build; at least 128", s.BuildDisk},
		{
			s.MariaDBMemory != 0 && s.MariaDBMemory < 128,
			"--mariadb-memory: %v MiB is too little for MariaDB; at least 128", s.MariaDBMemory,
		},
		{s.DatabaseSize < 0, "--database-size: %v MiB is negative", s.DatabaseSize},
		{s.BuildTime < time.Second, "--build-time: %v is too short for any build", s.BuildTime},
		{s.BlobCache < 0, "--blob-cache: %v is not a number of MiB", s.BlobCache},
	} {
		if x.bad {
			wrong.add(fmt.Errorf(x.text, x.said))
		}
	}
}

// checkParts checks what this node does, with which programs and servers.
func (s *Settings) checkParts(wrong *Problems) {
	for _, r := range s.Roles {
		if !slices.Contains([]string{"api", "worker", "edge"}, r) {
			wrong.add(fmt.Errorf("--roles: %q must be api, worker or edge", r))
		}
	}
	if len(s.Roles) == 0 {
		wrong.add(errors.New("--roles: name at least one of api, worker, edge"))
	}
	named := func(flag string, err error) {
		if err != nil {
			wrong.add(fmt.Errorf("%s: %w", flag, err))
		}
	}
	named("--wordpress-source", core.CheckSource(s.WordPressSource))
	named("--wp-cli", wpcli.CheckSource(s.WPCLI))
	named("--nodejs", toolchain.CheckNode(s.Node))
	named("--debian-mirror", root.CheckMirror(s.DebianMirror))
	for _, x := range [][2]string{{"--redis-server", s.RedisServer}, {"--browser", s.Browser}} {
		flag, program := x[0], x[1]
		if program == "" || flag == "--browser" && program == screenshot.NoBrowser {
			continue
		}
		if info, err := os.Stat(program); !filepath.IsAbs(program) || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			wrong.add(errors.New(flag + ": give the absolute path of a program"))
		}
	}
	if s.MariaDB != "" {
		_, err := database.ParseServer(s.MariaDB)
		named("--mariadb", err)
	}
	if s.Redis != "" {
		_, err := redis.ParseServer(s.Redis)
		named("--redis", err)
	}
	if s.Database != "" && !strings.HasPrefix(s.Database, "postgres://") && !strings.HasPrefix(s.Database, "postgresql://") {
		wrong.add(errors.New("--database: the address must begin with postgres://"))
	}
	named("--blobs", s.CheckBlobs())
	if err := recovery.Check(s.Backup); err != nil {
		wrong.add(err)
	} else if s.Backup.To != "" && s.Store.Inside(s.Backup.To) {
		wrong.add(errors.New("--backup-to: the directory must be outside the data directory, best on another disk"))
	}
	for _, text := range s.PublicAddress {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			wrong.add(fmt.Errorf("--public-address: %q is not an IP address that others can reach", text))
		}
		s.Public = append(s.Public, a.Unmap())
	}
}

// checkFiles reads the operator's files.
func (s *Settings) checkFiles(wrong *Problems) {
	var err error
	if s.CountryDatabase != "" && s.Role("edge") {
		if s.Countries, err = country.Open(s.CountryDatabase); err != nil {
			wrong.add(fmt.Errorf("--country-database: %w", err))
		}
	}
	if s.Prices != "" {
		if s.PriceList, err = domain.LoadPrices(s.Prices); err != nil {
			wrong.add(fmt.Errorf("--prices: %w", err))
		}
	}
	s.AccountLimits, err = ReadLimits(s.Limits)
	wrong.add(err)
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
		Total: s.MaxConnections, PerAddress: s.MaxConnectionsPerAddress, Exempt: s.Proxies.Networks, Forwarding: s.ProxyProtocol, Metrics: m,
	}
}

// Role reports whether this node has the role.
func (s Settings) Role(name string) bool { return slices.Contains(s.Roles, name) }

// isAddress reports whether a text is HOST:PORT.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	n, errPort := strconv.Atoi(port)
	return err == nil && errPort == nil && n >= 0 && n <= 65535
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
