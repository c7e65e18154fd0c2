package flags

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/operator/config"
	"slipway/internal/operator/recovery"
)

// Serve holds the flags of `serve`.
type Serve struct {
	Data
	Listen        string        `help:"Address of the API, deploy hooks and dashboard." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	EdgeHTTP      *string       `name:"edge-http" help:"Address of sites over HTTP (127.0.0.1:8081). Empty disables it." placeholder:"HOST:PORT"`
	EdgeHTTPS     *string       `name:"edge-https" help:"Address of sites over HTTPS (127.0.0.1:8443). Empty disables it." placeholder:"HOST:PORT"`
	BaseURL       string        `name:"base-url" help:"Public URL of the API and the dashboard. Default: derived from --listen." placeholder:"URL"`
	APIURL        string        `name:"api-url" help:"Public URL of deploy hooks. Default: --base-url." placeholder:"URL"`
	SiteDomain    string        `help:"Sites live at <subdomain>.<site-domain>." default:"localhost" placeholder:"DOMAIN"`
	SharedDomain  bool          `help:"Allow sites and control plane to share a registrable domain."`
	ACMECA        []string      `name:"acme-ca" help:"ACME directory for real certificates; a local authority without it. Repeatable: a further one is asked when the first can't help." placeholder:"URL"`
	ACMEEmail     string        `name:"acme-email" help:"Contact email for the ACME account." placeholder:"EMAIL"`
	ACMEEAB       []string      `name:"acme-eab" help:"External account binding of an ACME directory, prefixed with its host if there are several directories. Prefer the environment variable. Repeatable." placeholder:"[HOST=]KID:HMAC"`
	ACMEDNS       string        `name:"acme-dns" help:"Address that answers ACME DNS challenges over UDP and TCP, for wildcard certificates." placeholder:"HOST:PORT"`
	ACMEDNSZone   string        `name:"acme-dns-zone" help:"Zone served at --acme-dns; delegate it to this server with an NS record." placeholder:"DOMAIN"`
	PublicAddr    []string      `name:"public-address" help:"Public IP address that domains must point to. Default: the addresses of the site domain. Repeatable." placeholder:"IP"`
	BlobCache     int           `name:"blob-cache" help:"Size in MiB of the local cache for an object store." default:"2048"`
	BackupTo      string        `name:"backup-to" help:"Where backups are stored: s3://BUCKET?endpoint=https://HOST or a directory; the data directory when absent." placeholder:"URL"`
	BackupFor     []string      `name:"backup-recipient" help:"Public key of age (age1…) for which the key of the backups is encrypted too. Repeatable." placeholder:"KEY"`
	BackupEvery   time.Duration `name:"backup-every" help:"How often the whole installation is backed up to --backup-to, such as 24h. 0 disables scheduled backups." default:"0"`
	BackupAlarm   time.Duration `name:"backup-alarm" help:"How long a site with a backup schedule may be without a verified backup before its owner gets a mail, such as 36h. 0: three intervals of its schedule." default:"0"`
	Roles         []string      `help:"Roles of this node: api, worker, edge." default:"api,worker,edge"`
	NodeListen    string        `help:"Address at which other nodes reach this one's programs, over TLS. Needs --database." placeholder:"HOST:PORT"`
	NodeAddress   string        `help:"The same address as other nodes see it. Default: --node-listen." placeholder:"HOST:PORT"`
	NodeTemporary bool          `help:"The data directory is lost when the process ends, as in a pod: the node leaves slipway node list when it stops."`
	GitHost       []string      `help:"HOST=ADDRESS: fetch the repositories of a host from an address, such as example.test=http://127.0.0.1:3000 or …=file:///srv/git. Repeatable." placeholder:"HOST=ADDRESS"`

	OutboundAllow     []string      `help:"Private network (CIDR) that webhooks and Git fetches may reach. Repeatable." placeholder:"CIDR"`
	OutboundCAFile    string        `name:"outbound-ca-file" help:"Additional root certificates to trust for webhook deliveries, Git fetches and email." type:"path" placeholder:"FILE"`
	Limits            string        `help:"TOML file with limits per account (sites, domains and so on) and exceptions per user. See docs/configuration.md." type:"path" placeholder:"FILE"`
	Billing           bool          `help:"Sell hosting: plans, subscriptions, invoices and payments. Without it there are none."`
	StripeAPI         string        `name:"stripe-api" help:"Address of the Stripe API, for tests with a stand-in." hidden:"" placeholder:"URL"`
	DNSResolver       string        `name:"dns-resolver" help:"DNS resolver (host:port) for domain verification. Default: the system's." placeholder:"HOST:PORT"`
	RateLimit         int           `help:"API requests per minute and API key." default:"100"`
	SignUp            string        `name:"sign-up" help:"Who creates accounts: closed (operators, and those whom they invite) or open (everybody who confirms an email address)." default:"closed" enum:"open,closed"`
	ActionsIssuer     string        `name:"actions-issuer" help:"Who signs ID tokens for workflows of GitHub Actions. GitHub Enterprise Server: https://HOST/_services/token." default:"https://token.actions.githubusercontent.com" placeholder:"URL"`
	OAuthRegistration string        `name:"oauth-registration" help:"Whether OAuth apps may register themselves (RFC 7591): open or closed." default:"closed" enum:"open,closed"`
	Registry          string        `help:"Source of domain availability: auto, rdap or local." default:"auto" enum:"auto,rdap,local"`
	Prices            string        `help:"Price list for domain availability, in addition to the built-in one: lines of suffix, price, currency." type:"path" placeholder:"FILE"`
	TrustedProxy      []string      `help:"Network (CIDR) of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted. Repeatable." placeholder:"CIDR"`
	ProxyHeader       string        `name:"trusted-proxy-header" help:"Header in which --trusted-proxy sends the visitor's address, such as CF-Connecting-IP. Default: X-Forwarded-For." placeholder:"NAME"`
	ProxyProtocol     bool          `help:"Connections from --trusted-proxy to --edge-http and --edge-https begin with the PROXY protocol, which names the visitor."`
	MaxConns          int           `name:"max-connections" help:"Maximum number of visitor connections. 0: as many as the open file limit allows." default:"0" placeholder:"N"`
	MaxConnsOfOne     int           `name:"max-connections-per-address" help:"Maximum number of visitor connections per IP address or IPv6 /64. 0: an eighth of all." default:"0" placeholder:"N"`
	FastPath          bool          `help:"Answer plain requests for files ahead of net/http. On by default; --no-fast-path leaves everything to net/http." default:"true" negatable:""`
	CountryDB         string        `name:"country-database" help:"Database of countries by IP address (.mmdb), for traffic statistics." type:"path" placeholder:"FILE"`
	HTTP3             bool          `name:"http3" env:"SLIPWAY_HTTP3" help:"Serve sites over HTTP/3 (QUIC) as well, on the UDP port of --edge-https."`
	DrainDelay        time.Duration `help:"How long listeners stay open after SIGTERM while /readyz answers 503." default:"3s"`
	Builds            int           `help:"Number of concurrent builds. 0: half the number of CPUs." default:"0"`
	MaxFileSize       int           `help:"Maximum size of one published file in MiB." default:"2048"`
	GitHistory        int           `help:"Commits of a branch that builds see." default:"10"`
	MaxReleaseSize    int           `help:"Maximum size of one release in MiB." default:"4096"`
	BuildMemory       int           `help:"Memory limit of one build in MiB. 0: 4096, or 2048 if the machine has less than 8 GiB." default:"0"`
	BuildDisk         int           `help:"Disk limit of one build in MiB." default:"12288"`
	BuildTime         time.Duration `help:"Timeout of one build stage." default:"15m"`
	Storage           string        `help:"Directory of sites' storage folders that every node mounts. Default: each node has its own in the data directory." placeholder:"DIR"`
	MariaDB           string        `name:"mariadb" help:"MariaDB server for sites' databases, as mysql://USER:PASSWORD@HOST:PORT, with ?tls=true if encrypted. Default: a private one for each account, if mariadbd is installed." placeholder:"ADDRESS"`
	MariaDBMemory     int           `name:"mariadb-memory" help:"Memory limit of one account's private MariaDB server in MiB." default:"1024"`
	DatabaseSize      int           `name:"database-size" help:"Maximum size of one database in MiB." default:"2048"`
	WPCLI             string        `name:"wp-cli" help:"wp-cli that commands of WordPress sites call as wp: a program, or https://….phar#sha256=…. Default: wp in PATH, if it is below /usr, or else a release from github.com, whose checksum is compared." placeholder:"SOURCE"`
	NodeVersion       string        `name:"nodejs" help:"Node.js of projects that name no version: lts for the newest line with long-term support, host for the server's own, or a version such as 24." default:"lts" placeholder:"VERSION"`
	DebianMirror      string        `name:"debian-mirror" help:"Mirror of Debian from which PHP versions and site generators are installed that the server lacks; its security updates are at the same address with -security. Default: http://deb.debian.org/debian." placeholder:"URL"`
	Redis             string        `name:"redis" help:"Redis server for sites' programs and object caches, as redis://USER:PASSWORD@HOST:PORT, or rediss:// if encrypted. Default: none." placeholder:"ADDRESS"`
	RedisServer       string        `name:"redis-server" help:"Redis server program that WordPress sites can have as an object cache. Default: redis-server in PATH, if installed." placeholder:"FILE"`
	Browser           string        `name:"browser" help:"Chromium that takes screenshots of sites for the dashboard, or none. Default: chromium-headless-shell or chromium in PATH, if installed." placeholder:"FILE"`
	WordPress         string        `name:"wordpress-source" help:"WordPress of new sites: a directory, debian, or https://….tar.gz#sha256=…. Default: the current release." placeholder:"SOURCE"`
	Mail
	InsecureBuilds bool `help:"Run builds without a sandbox, as the user that runs slipway. Only safe if you trust every user."`

	LogFormat string `help:"Log format: text or json." default:"text" enum:"text,json"`
	LogLevel  string `help:"Log level: debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
}

// Settings returns what the service is started with.
func (s Serve) Settings(version string) config.Config {
	str := func(p *string, otherwise string) string {
		if p == nil {
			return otherwise
		}
		return *p
	}
	store := s.Store()
	store.Storage, store.Redis = s.Storage, s.Redis
	store.BlobCache = s.BlobCache
	return config.Config{
		Store:                    store,
		Version:                  version,
		Log:                      s.Logger(os.Stderr),
		Listen:                   s.Listen,
		EdgeHTTP:                 str(s.EdgeHTTP, "127.0.0.1:8081"),
		EdgeHTTPS:                str(s.EdgeHTTPS, "127.0.0.1:8443"),
		BaseURL:                  s.BaseURL,
		APIURL:                   s.APIURL,
		SiteDomain:               s.SiteDomain,
		SharedDomain:             s.SharedDomain,
		ACMECA:                   s.ACMECA,
		ACMEEmail:                s.ACMEEmail,
		ACMEEAB:                  s.ACMEEAB,
		ACMEDNS:                  s.ACMEDNS,
		ACMEDNSZone:              s.ACMEDNSZone,
		PublicAddress:            s.PublicAddr,
		Prices:                   s.Prices,
		Limits:                   s.Limits,
		Billing:                  s.Billing,
		StripeAPI:                s.StripeAPI,
		Roles:                    s.Roles,
		NodeListen:               s.NodeListen,
		NodeAddress:              s.NodeAddress,
		NodeTemporary:            s.NodeTemporary,
		GitHosts:                 s.GitHost,
		OutboundAllow:            s.OutboundAllow,
		OutboundCAFile:           s.OutboundCAFile,
		DNSResolver:              s.DNSResolver,
		RateLimit:                s.RateLimit,
		SignUp:                   s.SignUp == "open",
		ActionsIssuer:            s.ActionsIssuer,
		OAuthRegistration:        s.OAuthRegistration == "open",
		Registry:                 s.Registry,
		TrustedProxies:           s.TrustedProxy,
		ProxyHeader:              s.ProxyHeader,
		ProxyProtocol:            s.ProxyProtocol,
		NoFastPath:               !s.FastPath,
		HTTP3:                    s.HTTP3,
		CountryDatabase:          s.CountryDB,
		MaxConnections:           s.MaxConns,
		MaxConnectionsPerAddress: s.MaxConnsOfOne,
		DrainDelay:               s.DrainDelay,
		GitHistory:               s.GitHistory,
		MaxFileSize:              s.MaxFileSize,
		MaxReleaseSize:           s.MaxReleaseSize,
		Builds:                   s.Builds,
		BuildMemory:              cmp.Or(s.BuildMemory, buildMemory()),
		BuildDisk:                s.BuildDisk,
		BuildTime:                s.BuildTime,
		WordPressSource:          s.WordPress,
		RedisServer:              s.RedisServer,
		Browser:                  s.Browser,
		WPCLI:                    s.WPCLI,
		Node:                     strings.TrimPrefix(s.NodeVersion, "host"),
		DebianMirror:             s.DebianMirror,
		MariaDB:                  s.MariaDB,
		MariaDBMemory:            s.MariaDBMemory,
		DatabaseSize:             s.DatabaseSize,
		InsecureBuilds:           s.InsecureBuilds,
		SMTP:                     s.Mail.Settings(),
		Backup:                   recovery.Settings{To: s.BackupTo, Recipients: s.BackupFor, Every: s.BackupEvery, Alarm: s.BackupAlarm},
	}
}

// Logger returns a log in the format and from the level that the flags name.
func (s Serve) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelInfo // kong has checked it
	}
	o := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// buildMemory returns the memory limit of a build that the machine allows, in MiB.
func buildMemory() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil || uint64(info.Totalram)*uint64(info.Unit) < 7<<30 { // 8 GiB, without what the kernel keeps
		return 2048
	}
	return 4096
}
