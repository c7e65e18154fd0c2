package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"slipway/internal/server"
)

var lookupEnv = os.LookupEnv

// common holds the settings that every command that touches the data needs.
type common struct {
	DataDir  string `help:"Database, blobs, work directories, certificates, secrets key." default:"./slipway-data" placeholder:"DIR"`
	Database string `help:"postgres://… instead of SQLite in the data directory." placeholder:"URL"`
	Blobs    string `help:"Where files are kept: s3://BUCKET?endpoint=https://HOST, with credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a directory; the data directory when absent." placeholder:"URL"`
}

func (c common) store() server.Store {
	return server.Store{DataDir: c.DataDir, Database: c.Database, Blobs: c.Blobs}
}

type serveCommand struct {
	common
	Listen       string   `help:"REST interface, deploy hooks and dashboard." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	EdgeHTTP     *string  `name:"edge-http" help:"The sites over HTTP; empty turns it off (127.0.0.1:8081)." placeholder:"HOST:PORT"`
	EdgeHTTPS    *string  `name:"edge-https" help:"The sites over HTTPS; empty turns it off (127.0.0.1:8443)." placeholder:"HOST:PORT"`
	BaseURL      string   `name:"base-url" help:"Address of the REST interface and the dashboard in links; from --listen when absent." placeholder:"URL"`
	APIURL       string   `name:"api-url" help:"Address that deploy hooks show; --base-url when absent." placeholder:"URL"`
	SiteDomain   string   `help:"Sites live at <subdomain>.<site-domain>." default:"localhost" placeholder:"DOMAIN"`
	SharedDomain bool     `help:"Allow sites and control plane to share a registrable domain."`
	ACMECA       []string `name:"acme-ca" help:"ACME directory for real certificates; a local authority without it. Repeatable: a further one is asked when the first can't help." placeholder:"URL"`
	ACMEEmail    string   `name:"acme-email" help:"Contact for the ACME directory." placeholder:"EMAIL"`
	ACMEEAB      []string `name:"acme-eab" help:"External account binding that an ACME directory asks for; its host in front where there are several. Better in the environment. Repeatable." placeholder:"[HOST=]KID:HMAC"`
	ACMEDNS      string   `name:"acme-dns" help:"Where challenges in the DNS are answered, over UDP and TCP, for wildcard certificates." placeholder:"HOST:PORT"`
	ACMEDNSZone  string   `name:"acme-dns-zone" help:"The zone that is answered for there, and delegated to it by an NS record." placeholder:"DOMAIN"`
	PublicAddr   []string `name:"public-address" help:"IP address by which the internet finds the sites, for where domains must point; from the sites' own names when absent. Repeatable." placeholder:"IP"`
	BlobCache    int      `name:"blob-cache" help:"MiB of this machine's disk for copies of files that are kept in an object store." default:"2048"`
	Roles        []string `help:"What this process does: api, worker, edge." default:"api,worker,edge"`
	GitHost      []string `help:"HOST=ADDRESS: where the repositories of a host are fetched from, such as example.test=http://127.0.0.1:3000 or …=file:///srv/git. Repeatable." placeholder:"HOST=ADDRESS"`

	OutboundAllow  []string      `help:"CIDR that webhooks and fetches may reach although it is private. Repeatable." placeholder:"CIDR"`
	OutboundCAFile string        `name:"outbound-ca-file" help:"Further roots to trust for webhook deliveries and fetches, and mail." type:"path" placeholder:"FILE"`
	Limits         string        `help:"What each account may have of sites, domains and so on, and exceptions per user, in TOML. See docs/operating.md." type:"path" placeholder:"FILE"`
	DNSResolver    string        `name:"dns-resolver" help:"host:port for domain verification; the system's when absent." placeholder:"HOST:PORT"`
	RateLimit      int           `help:"Requests per minute and key." default:"100"`
	Registry       string        `help:"Who is asked for domain availability: auto, rdap or local." default:"auto" enum:"auto,rdap,local"`
	Prices         string        `help:"Price list for domain availability, over the one that ships: lines of suffix, price, currency." type:"path" placeholder:"FILE"`
	TrustedProxy   []string      `help:"CIDR of proxies whose X-Forwarded-For is believed. Repeatable." placeholder:"CIDR"`
	MaxConns       int           `name:"max-connections" help:"Connections of visitors of sites at a time; when 0, what the limit of open files allows." default:"0" placeholder:"N"`
	MaxConnsOfOne  int           `name:"max-connections-per-address" help:"Connections of one address, or one IPv6 /64, to the sites; an eighth of all when 0." default:"0" placeholder:"N"`
	FastPath       bool          `help:"Answer plain requests for files ahead of net/http. On by default; --no-fast-path leaves everything to net/http." default:"true" negatable:""`
	DrainDelay     time.Duration `help:"How long the listeners stay open after SIGTERM, while /readyz says no." default:"3s"`
	Builds         int           `help:"Builds that run at once; half the processors when 0." default:"0"`
	MaxFileSize    int           `help:"MiB of one published file." default:"2048"`
	MaxReleaseSize int           `help:"MiB of all files of one release." default:"4096"`
	BuildMemory    int           `help:"MiB of memory that one build may use." default:"2048"`
	BuildTime      time.Duration `help:"How long one stage of a build may take." default:"15m"`
	mailFlags
	InsecureBuilds bool `help:"Run builds without a sandbox, as the user that runs slipway. Only where every user is trusted."`

	LogFormat string `help:"Log lines as text or json." default:"text" enum:"text,json"`
	LogLevel  string `help:"debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
}

// Run serves until a signal.
func (s serveCommand) Run(ctx context.Context) error {
	str := func(p *string, otherwise string) string {
		if p == nil {
			return otherwise
		}
		return *p
	}
	store := s.store()
	store.BlobCache = s.BlobCache
	return server.Serve(ctx, server.Config{
		Store: store, Version: version, Log: s.logger(),
		Listen: s.Listen, EdgeHTTP: str(s.EdgeHTTP, "127.0.0.1:8081"), EdgeHTTPS: str(s.EdgeHTTPS, "127.0.0.1:8443"),
		BaseURL: s.BaseURL, APIURL: s.APIURL, SiteDomain: s.SiteDomain, SharedDomain: s.SharedDomain,
		ACMECA: s.ACMECA, ACMEEmail: s.ACMEEmail, ACMEEAB: s.ACMEEAB, ACMEDNS: s.ACMEDNS, ACMEDNSZone: s.ACMEDNSZone, PublicAddress: s.PublicAddr, Prices: s.Prices, Limits: s.Limits,
		Roles: s.Roles, GitHosts: s.GitHost,
		OutboundAllow: s.OutboundAllow, OutboundCAFile: s.OutboundCAFile, DNSResolver: s.DNSResolver,
		RateLimit: s.RateLimit, Registry: s.Registry, TrustedProxies: s.TrustedProxy,
		NoFastPath: !s.FastPath, MaxConnections: s.MaxConns, MaxConnectionsPerAddress: s.MaxConnsOfOne, DrainDelay: s.DrainDelay,
		MaxFileSize: s.MaxFileSize, MaxReleaseSize: s.MaxReleaseSize,
		Builds: s.Builds, BuildMemory: s.BuildMemory, BuildTime: s.BuildTime, InsecureBuilds: s.InsecureBuilds, SMTP: s.smtp(),
	})
}

func (s serveCommand) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelInfo // kong has checked it
	}
	o := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
