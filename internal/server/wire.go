package server

import (
	"context"
	"os"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/refill"
	"slipway/internal/backup/retention"
	"slipway/internal/backup/snapshot"
	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/deploy/actions"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/upload"
	"slipway/internal/edge/access"
	"slipway/internal/edge/certs"
	"slipway/internal/edge/edge"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/ports"
	"slipway/internal/git/fetch"
	"slipway/internal/launch"
	"slipway/internal/operator/admin"
	"slipway/internal/operator/cleanup"
	"slipway/internal/operator/config"
	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/operator/metrics"
	"slipway/internal/operator/recovery"
	"slipway/internal/operator/upgrade"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/memory"
	fleet "slipway/internal/platform/node"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/systemd"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/placement"
	"slipway/internal/program/redis"
	"slipway/internal/program/relay"
	"slipway/internal/program/runtime"
	"slipway/internal/program/volume"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/billing/vies"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/member"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/stripe"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/control"
	"slipway/internal/web/dashboard/operator"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/services"
	"slipway/internal/wordpress/wordpress"
)

// node holds all packages of one process.
type node struct {
	services.Services
	s       config.Settings
	seal    *seal.Sealer
	self    *fleet.Self
	places  *placement.Places // nil with SQLite, which has only one node
	relay   *relay.Server     // nil if other nodes can't reach this one
	volume  *volume.Volume    // storage of sites
	metrics *prometheus.Registry

	camera   *screenshot.Camera // nil if programs can't run
	engine   runtime.Host       // nil if programs can't run
	launches *launch.Launch
	control  *control.Interface // nil without the role api
	edge     *edge.Edge         // nil without the role edge
	certs    *certs.Certs       // nil without the role edge

	hasJobs  []worker
	services []service // run on every node while it serves
	workers  []service // run on nodes with the role worker

	door      *control.Door
	draining  atomic.Bool // set when the shutdown begins
	tell      systemd.Notifier
	activated bool        // systemd holds the sockets
	serving   atomic.Bool // from opening the listeners until the shutdown begins
}

// queues is the number of concurrent jobs per queue in one process. Builds have a lower limit of their own; deployments
// mostly wait.
var queues = map[string]int{
	"default":               4,
	app.CommandQueue:        max(8, 4*goruntime.NumCPU()),
	account.MailQueue:       2,
	deploy.QueueName:        max(16, 4*goruntime.NumCPU()),
	backup.QueueName:        2,
	backup.VerifyQueue:      2,
	wordpress.QueueName:     4,
	wordpress.DownloadQueue: 4,
	connection.QueueName:    4,
	notify.QueueName:        4,
	screenshot.QueueName:    1, // a browser takes much memory
}

// wire creates all packages from the settings. It opens the database and starts nothing.
func wire(ctx context.Context, s config.Settings, l *ports.Ports, elsewhere Elsewhere) (_ *node, err error) {
	h := &node{s: s, metrics: prometheus.NewRegistry(), Services: services.Services{
		Limits:         limits.New(s.AccountLimits),
		Certificates:   certs.Addresses{SiteDomain: s.SiteDomain, Public: len(s.ACMECA) > 0, Shared: s.ACMEDNSZone != ""},
		Log:            s.Log,
		BaseURL:        s.BaseURL,
		APIURL:         s.APIURL,
		TrustedProxies: s.Proxies,
		Version:        s.Version,
	}}
	h.Ready = &h.serving
	if h.DB, err = s.OpenDatabase(ctx, s.Log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.DB.Close()
		}
	}()
	h.volume = volume.New(volume.Config{Dir: s.Path("storage")})
	if s.Role("worker") {
		if h.volume, err = volume.Open(ctx, h.DB, s.Storage, s.Path("storage"), s.Log); err != nil {
			return nil, err
		}
	}
	store, files, err := h.openFiles(ctx)
	if err != nil {
		return nil, err
	}
	if h.seal, err = s.Secrets(ctx, h.DB); err != nil {
		return nil, err
	}
	h.self, err = fleet.New(fleet.Config{
		DB: h.DB, Dir: s.DataDir, Version: s.Version, Roles: s.Roles, Address: s.NodeAddress, Blobs: s.Shared(), SiteDomain: s.SiteDomain,
		Storage: h.volume.Place(), Files: files, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	out, err := egress.New(egress.Config{Allow: s.Allow, Own: s.Public, OwnPorts: []uint16{443}, CAFile: s.OutboundCAFile, Log: s.Log})
	if err != nil {
		return nil, err
	}
	authorities, err := certs.AuthorityClient(s.OutboundCAFile, s.Log)
	if err != nil {
		return nil, err
	}
	releases := release.New(release.Config{
		Blobs: store, Log: s.Log, MaxFile: int64(s.MaxFileSize) << 20, MaxBytes: int64(s.MaxReleaseSize) << 20,
	})
	source, err := fetch.New(fetch.Config{
		Dir: s.Path("source"), Egress: out, Hosts: s.GitAt, Depth: s.GitHistory, Disk: s.Store, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	bundles, err := bundle.New(bundle.Config{Blobs: store, Dir: s.Path("bundles"), Log: s.Log})
	if err != nil {
		return nil, err
	}
	builds := build.New(build.Config{Why: "this node doesn't have the worker role"})
	h.places = placement.New(h.DB, h.self, elsewhere != nil || h.volume.Shared())
	h.Operations = operation.New(operation.Config{DB: h.DB, Log: s.Log})
	h.Usage = usage.New(usage.Config{DB: h.DB, Limits: h.Limits, Log: s.Log})
	apps := app.Config{
		DB: h.DB, Why: "this node doesn't have the worker role", Places: h.places, Node: h.self.ID(), Log: s.Log,
		Operations: h.Operations, Limits: h.Limits, Usage: h.Usage,
	}
	if apps.Relay, err = h.openRelay(ctx, l); err != nil {
		return nil, err
	}
	if s.Role("worker") {
		if apps.Spool, err = s.Scratch("spool"); err != nil {
			return nil, err
		}
		if builds, err = h.openBuilds(ctx, out, bundles, l, elsewhere); err != nil {
			return nil, err
		}
		if h.engine != nil {
			apps.Engine, apps.Storage, apps.Why = h.engine, h.engine, ""
		} else {
			apps.Why = "programs need the sandbox, which this server lacks; slipway doctor shows more"
		}
	}
	h.Apps = app.New(apps)
	if h.relay != nil {
		h.relay.Programs = h.Apps
	}
	h.Limits.Count(limits.Programs, h.Apps.RunningOf)
	h.Limits.Count(limits.Storage, h.Apps.StorageOf)
	h.Accounts = account.New(account.Config{DB: h.DB, Limits: h.Limits, Seal: h.seal, Mail: s.Mailer, Site: s.BaseURL, Log: s.Log})
	h.Webhooks = webhook.New(webhook.Config{
		DB:         h.DB,
		Limits:     h.Limits,
		Seal:       h.seal,
		Out:        out.PooledClient(15*time.Second, 512),
		Log:        s.Log,
		Metrics:    h.metrics,
		Mail:       h.Accounts,
		Operations: h.Operations,
		Billing:    s.Billing,
	})
	if s.Billing {
		h.Billing = billing.New(billing.Config{DB: h.DB, Usage: h.Usage, Hooks: h.Webhooks, Limits: h.Limits, Mail: h.Accounts, Log: s.Log})
		h.Limits.Connect(h.Billing)
		h.Sellers = seller.NewHosts(seller.HostsConfig{
			DB: h.DB, BaseURL: s.BaseURL, Own: s.OwnHosts, SiteDomain: s.SiteDomain, Shared: s.SharedDomain, Log: s.Log,
		})
		if err := h.Sellers.Read(ctx); err != nil {
			return nil, err
		}
		h.services = append(h.services, service{"hosts of sellers", h.Sellers.Run})
		h.Stripe = stripe.New(stripe.Config{
			DB: h.DB, Seal: h.seal, Billing: h.Billing, Out: stripe.Client(out, s.StripeAPI), API: s.StripeAPI, Log: s.Log,
		})
		h.Billing.Connect(h.Stripe)
		h.hasJobs = append(h.hasJobs, h.Billing, h.Stripe, vies.New(vies.Config{
			DB: h.DB, Parties: h.Billing.Parties, Out: out.Client(15 * time.Second), Log: s.Log,
		}))
	}
	h.Connections = connection.New(connection.Config{
		DB:     h.DB,
		Seal:   h.seal,
		Out:    out.Client(30 * time.Second),
		Hosts:  s.GitAt,
		Egress: out,
		Base:   s.BaseURL,
		Hooks:  s.APIURL,
		Log:    s.Log,
	})
	h.Notify = notify.New(notify.Config{
		DB:     h.DB,
		Seal:   h.seal,
		Out:    out.Client(20 * time.Second),
		Owners: h.Accounts,
		Mail:   s.Mailer,
		Base:   s.BaseURL,
		Log:    s.Log,
	})
	h.Sites = site.New(site.Config{
		DB:          h.DB,
		Limits:      h.Limits,
		Hooks:       h.Webhooks,
		Seal:        h.seal,
		Domain:      s.SiteDomain,
		Port:        s.SitePort,
		Connections: h.Connections,
	})
	h.Members = member.New(member.Config{
		DB: h.DB, Seal: h.seal, Sites: h.Sites, Accounts: h.Accounts, BaseURL: s.BaseURL, GrantPath: access.GrantPath,
	})
	h.Teams = team.New(team.Config{
		DB: h.DB, Accounts: h.Accounts, Limits: h.Limits, Sites: h.Sites, Hooks: h.Webhooks, Operations: h.Operations, Log: s.Log,
	})
	h.door = control.New(control.Config{Listen: s.Listen, Hosts: s.OwnHosts, Sellers: h.Sellers, Draining: &h.draining})
	data := database.Config{
		DB:       h.DB,
		Sites:    h.Sites,
		Limits:   h.Limits,
		Seal:     h.seal,
		Dir:      s.Path("mariadb"),
		UID:      installation.DatabaseUID,
		FirstUID: installation.FirstDatabaseUID,
		UIDs:     installation.DatabaseUIDs,
		External: s.MariaDB,
		Why:      apps.Why,
		Memory:   int64(s.MariaDBMemory) << 20,
		Size:     int64(s.DatabaseSize) << 20,
		Log:      s.Log,
		Logs:     h.Apps,
		Places:   h.places,
	}
	switch {
	case apps.Why != "":
	case elsewhere != nil && s.MariaDB == "":
		data.Why = "databases need a MariaDB server here that the operator names"
	case elsewhere == nil:
		// Use the same directory as builds and programs, so that leftovers of an earlier process are removed.
		if data.Runner, err = sandbox.New(sandbox.Config{Dir: s.Path("builds", "sandbox"), Log: s.Log}); err != nil {
			return nil, err
		}
	}
	if h.Databases, err = database.New(data); err != nil {
		return nil, err
	}
	objects, err := redis.Open(ctx, s.Redis, h.Apps, s.Log)
	if err != nil {
		return nil, err
	}
	h.Usage.Connect(usage.Notices{Notify: h.Notify, Hooks: h.Webhooks})
	h.Traffic = traffic.New(traffic.Config{DB: h.DB, Usage: h.Usage})
	arriving, err := s.Scratch("upload-tmp")
	if err != nil {
		return nil, err
	}
	h.Uploads = upload.New(upload.Config{
		DB: h.DB, Sites: h.Sites, Releases: releases, Blobs: store, Limits: h.Limits, Scratch: arriving, Log: s.Log,
	})
	h.Deployments = deploy.New(deploy.Config{
		DB:          h.DB,
		Limits:      h.Limits,
		Usage:       h.Usage,
		Sites:       h.Sites,
		Hooks:       h.Webhooks,
		Source:      source,
		Releases:    releases,
		Builds:      builds,
		Bundles:     bundles,
		Uploads:     h.Uploads,
		Countries:   s.CountryDatabase != "",
		Log:         s.Log,
		Connections: h.Connections,
		Notify:      h.Notify,
		Programs:    h.Apps,
		BaseURL:     s.BaseURL,
	})
	h.Rules = ruletest.New(ruletest.Config{
		DB: h.DB, Sites: h.Sites, Deployments: h.Deployments, Releases: releases, Countries: s.CountryDatabase != "",
	})
	h.Releases = releases
	h.Screenshots = screenshot.New(screenshot.Config{DB: h.DB, Sites: h.Sites, Camera: h.camera, Users: builds, Log: s.Log})
	h.Git = pushes.New(pushes.Config{
		DB: h.DB, Sites: h.Sites, Deployments: h.Deployments, Seal: h.seal,
		Repositories: pushes.Look{Source: source, Sites: h.Sites}, Log: s.Log,
	})
	unused := gc.New(gc.Config{DB: h.DB, Blobs: store, Log: s.Log})
	unused.Register("deployments", h.Deployments.Roots)
	unused.Register("uploads", h.Uploads.Roots) // after deployments, whose releases they use
	kept := backup.Config{
		DB:          h.DB,
		Limits:      h.Limits,
		Sites:       h.Sites,
		Deployments: h.Deployments,
		Hooks:       h.Webhooks,
		Notify:      h.Notify,
		Operations:  h.Operations,
		Blobs:       store,
		Databases:   snapshot.DatabasesOf(h.Databases, h.DB),
		Every:       s.Backup.Every,
		Alarm:       s.Backup.Alarm,
		Log:         s.Log,
		Mail:        h.Accounts,
		Operators:   h.Accounts,
		Places:      h.places,
	}
	if h.engine != nil {
		kept.Storage = snapshot.Storage(h.engine)
	}
	whole := &recovery.Installation{
		Store:     s.Store,
		Settings:  s.Backup,
		DB:        h.DB,
		Seal:      h.seal,
		Blobs:     store,
		Databases: kept.Databases,
		Storage:   kept.Storage,
		Version:   s.Version,
		Log:       s.Log,
	}
	kept.Installation = whole
	if kept.Scratch, err = s.Scratch("backup-tmp"); err != nil {
		return nil, err
	}
	if kept.Repository, kept.Why, err = recovery.Open(s.Store, s.Backup, h.seal, s.Log); err != nil {
		return nil, err
	}
	h.Backups = backup.New(kept)
	names := domain.Config{
		DB:         h.DB,
		Limits:     h.Limits,
		Out:        out.Client(3 * time.Second),
		Sites:      h.Sites,
		Events:     domain.EventsOf(h.Webhooks, h.Notify),
		SiteDomain: s.SiteDomain,
		Registry:   s.Registry,
		Prices:     s.PriceList,
		Reserved:   s.OwnHosts,
		Addrs:      s.Public,
		Listens:    s.Listens(),
		Resolver:   &domain.DNS{Server: s.DNSResolver},
		Log:        s.Log,
		Allow:      s.Allow,
	}
	if len(s.ACMECA) > 0 {
		names.Certificates = certs.NewPermits(s.ACMECA, authorities, s.ACMEDNSZone)
	}
	h.Domains = domain.New(names)
	press := wordpress.Config{
		DB:          h.DB,
		Sites:       h.Sites,
		Domains:     h.Domains,
		Databases:   h.Databases,
		Bundles:     bundles,
		Seal:        h.seal,
		Out:         out.Client(5 * time.Minute),
		Operations:  h.Operations,
		Backups:     h.Backups,
		Deployments: h.Deployments,
		Screenshots: h.Screenshots,
		Programs:    h.Apps,
		Dir:         s.Path("wordpress"),
		Source:      s.WordPressSource,
		Places:      h.places,
		Apart:       !s.Role("worker"),
		Volume:      h.volume,
		Log:         s.Log,
	}
	if h.engine != nil {
		press.Host = h.engine
	}
	h.WordPress = wordpress.New(press)
	unused.Register("WordPress", h.WordPress.Roots)
	h.Connections.Connect(h.Deployments)
	h.Deployments.Connect(h.WordPress)
	h.Deployments.ConnectParts([]deploy.Keeper{h.Databases, h.Apps, h.Traffic, objects}, h.Domains, h.Git,
		h.Connections, h.Notify, h.Teams, h.Webhooks, h.Backups, h.Uploads, h.WordPress)
	launches := launch.New(launch.Config{
		DB:          h.DB,
		Apps:        h.Apps,
		Engine:      h.engine,
		Node:        h.self.ID(),
		Log:         s.Log,
		Sites:       h.Sites,
		Deployments: h.Deployments,
		Databases:   h.Databases,
		WordPress:   h.WordPress,
		Mailer:      s.Mailer,
		Redis:       objects,
		Dir:         s.DataDir,
		Previews:    h.Deployments.Previews,
		Git:         h.Git,
	})
	h.launches = launches
	h.Apps.Connect(launches, h.Notify)
	h.Backups.Connect(h.WordPress, launches)
	h.hasJobs = append(h.hasJobs, cleanup.New(cleanup.Config{DB: h.DB, Operations: h.Operations, Garbage: unused}), refill.New(refill.Config{
		DB: h.DB, Operations: h.Operations, Places: h.places, Storage: kept.Storage, Programs: launches, Sites: h.Backups,
		Copies: whole, Log: s.Log,
	}))
	if h.Billing != nil {
		h.hasJobs = append(h.hasJobs, retention.New(retention.Config{
			DB: h.DB, Billing: h.Billing, Sites: h.Sites, Backups: h.Backups, Hooks: h.Webhooks, Mail: h.Accounts, Log: s.Log,
		}))
	}
	h.OAuth = oauth.New(oauth.Config{
		DB: h.DB, Accounts: h.Accounts, Limits: h.Limits, Seal: h.seal, Issuer: s.BaseURL, Out: out.Client(5 * time.Second), Log: s.Log,
		Hooks: h.Webhooks, Registration: s.OAuthRegistration,
	})
	h.SSO = sso.New(sso.Config{
		DB: h.DB, Accounts: h.Accounts, Seal: h.seal, Out: out.Client(5 * time.Second), Base: s.BaseURL, Members: h.Teams,
		Records: h.Domains, Grants: h.OAuth, Log: s.Log,
	})
	h.OAuth.Connect(oauth.Removers{
		Webhooks: h.Webhooks, DeployHooks: h.Sites, Channels: h.Notify, Polling: h.Git, Repositories: pushes.ChosenByApp{Pushes: h.Git},
	})
	h.Teams.Connect(
		h.Git, team.Ties{
			Accounts: h.Accounts, Connections: h.Connections, Webhooks: h.Webhooks, Notify: h.Notify, OAuth: h.OAuth, SSO: h.SSO,
		},
		team.NamedPart{Name: "deployments", Part: h.Deployments}, // first, because it refuses while a deployment runs
		team.NamedPart{Name: "uploads", Part: h.Uploads},
		team.NamedPart{Name: "backups", Part: h.Backups},
		team.NamedPart{Name: "sites", Part: h.Sites},
		team.NamedPart{Name: "domains", Part: h.Domains},
		team.NamedPart{Name: "databases", Part: h.Databases},
		team.NamedPart{Name: "WordPress installations", Part: h.WordPress},
		team.NamedPart{Name: "workers and scheduled commands", Part: h.Apps},
		team.NamedPart{Name: "build caches", Part: builds},
	)
	answers := idempotency.New(idempotency.Config{DB: h.DB, Seal: h.seal, Log: s.Log})
	limiter := ratelimit.New(ratelimit.Config{DB: h.DB, Log: s.Log})
	h.hasJobs = append(
		h.hasJobs, h.Accounts, h.Teams, h.Connections, h.Notify, h.Sites, h.Webhooks, h.Deployments, h.Uploads, h.Screenshots,
		h.Apps, h.Databases, h.Backups, h.WordPress, h.Traffic, h.Usage, unused,
	)
	jobs := job.New(job.Config{DB: h.DB, Log: s.Log, Drain: drain / 2, Queues: queues, Node: h.self.ID()})
	for _, x := range h.hasJobs {
		x.Work(jobs)
	}
	h.services = append(h.services, []service{
		{"database", h.DB.Run},
		{"node", h.self.Run},
		{"accounts", h.Accounts.Run},
		{"answers", answers.Run},
		{"operations", h.Operations.Run},
		{"OAuth", h.OAuth.Run},
		{"rate limit", limiter.Run},
		{"memory", memory.GiveBack},
		{"usage", h.Usage.Run},
		{"pages", h.WordPress.Follow},
	}...)
	h.workers = []service{
		{"storage", h.volume.Run},
		{"jobs", jobs.Run},
		{"programs", h.Apps.Run},
		{"databases", h.Databases.Run},
		{"WordPress", h.WordPress.Run},
		{"program files", bundles.Run},
		{"webhooks", h.Webhooks.Run},
		{"domains", h.Domains.Run},
		{"git", h.Git.Run},
		{"connections", h.Connections.Run},
		{"sign-in domains", h.SSO.Run},
		{"upgrades", (&upgrade.Announcer{Store: s.Store, DB: h.DB, To: h.Accounts, Log: s.Log}).Run},
	}
	if roots := builds.Roots(); roots != nil {
		h.workers = append(h.workers, service{"roots", roots.Run})
	}
	if h.engine != nil {
		h.workers = append(h.workers, service{"fence", h.engine.Fence})
	}
	if s.Role("api") {
		h.control = control.NewInterface(control.InterfaceConfig{
			Services:     h.Services,
			Answers:      answers,
			Limiter:      limiter,
			Repositories: pushes.Look{Source: source, Sites: h.Sites},
			SignUp:       s.SignUp,
			RateLimit:    s.RateLimit,
			DataDir:      s.DataDir,
			Workflows: actions.New(actions.Config{
				DB: h.DB, Accounts: h.Accounts, Sites: h.Sites, Git: h.Git, Out: out.Client(5 * time.Second), Issuer: s.ActionsIssuer,
				Audience: s.BaseURL, Log: s.Log,
			}),
			Installation: &operator.Host{
				DB: h.DB, Accounts: h.Accounts, Store: s.Store, SMTP: s.SMTP, Workers: queues,
				Certificates: doctor.Certificates{SiteDomain: s.SiteDomain, Public: len(s.ACMECA) > 0, DNS: s.ACMEDNS != ""},
			},
		})
		h.services = append(h.services, service{"dashboard", h.control.Run})
	}
	if s.Role("edge") {
		var names *certs.DNS
		if l.DNS != nil {
			names = &certs.DNS{Zone: s.ACMEDNSZone, Packets: l.Packets, Stream: l.DNS}
			if len(s.ControlHosts) > 0 { // the address is known to lead here
				names.Host = s.ControlHosts[0]
			}
		}
		h.certs, err = certs.New(certs.Config{
			DB: h.DB, Seal: h.seal, Out: authorities, CAs: s.ACMECA, Email: s.ACMEEmail, Bindings: s.Bindings, DNS: names,
			SiteDomain: s.SiteDomain, Hosts: s.ControlHosts,
			Domains: certified{h.Domains}, HTTP01: s.EdgeHTTP != "", TLSALPN01: true, Log: s.Log, Metrics: h.metrics,
		})
		if err != nil {
			return nil, err
		}
		h.edge = edge.New(edge.Config{
			Programs: map[string]endpoint.Source{
				framework.Node:      h.Apps,
				framework.PHP:       endpoint.NotHTTP{Source: h.Apps},
				framework.WordPress: h.WordPress,
			},
			DB:           h.DB,
			Releases:     releases,
			Blobs:        store,
			SiteDomain:   s.SiteDomain,
			HTTPSPort:    s.SitePort,
			Control:      h.door.Bounded(h.control),
			Draining:     &h.draining,
			Proxies:      s.Proxies,
			NoFastPath:   s.NoFastPath,
			HTTP3:        s.HTTP3,
			Countries:    s.Countries,
			ControlHosts: s.ControlHosts,
			MoreControl:  h.Sellers,
			Certificates: h.certs,
			Lender:       usage.Lender{Usage: h.Usage, Node: db.NewID("edge")},
			Visits:       h.Traffic.Recorder(),
			Out:          out.Client(0).Transport,
			Password:     site.VerifyPassword,
			Members:      h.Members,
			Log:          s.Log,
			Metrics:      h.metrics,
		})
		h.services = append(h.services, service{"edge", h.edge.Run}, service{"certificates", h.certs.Run})
	}
	metrics.Register(h.metrics, h.DB, s.DataDir, s.Mailer)
	return h, nil
}

// prepare does one-time work before serving.
func (h *node) prepare(ctx context.Context) error {
	if err := h.self.Join(ctx); err != nil {
		return err
	}
	h.DB.Guard(h.self.Guard)
	if err := h.DB.Shrinkable(ctx); err != nil {
		h.s.Log.WarnContext(ctx, "the database can't return free space to the disk", "err", err)
	}
	if h.engine != nil && !h.engine.StorageShared() { // where it is shared, storage makes no site this node's
		if err := h.launches.ForgetTrial(); err != nil {
			h.s.Log.WarnContext(ctx, "storage of a backup's trial not removed", "err", err)
		}
	}
	if err := h.Apps.Adopt(ctx, h.Databases); err != nil {
		return err
	}
	for _, x := range h.hasJobs {
		if x, recurs := x.(interface{ Schedule(context.Context) error }); recurs {
			if err := x.Schedule(ctx); err != nil {
				return err
			}
		}
	}
	if err := billing.Switch(ctx, h.DB, h.Billing != nil); err != nil {
		return err
	}
	if h.control != nil {
		if err := admin.Invite(ctx, h.Accounts, h.s.BaseURL, os.Stderr); err != nil {
			return err
		}
	}
	if h.certs != nil {
		return h.certs.WriteRoot(ctx, h.s.Path("root.pem"))
	}
	return nil
}

// openFiles opens the store of files if it belongs to the installation.
func (h *node) openFiles(ctx context.Context) (store *blob.Store, files *fleet.Place, err error) {
	if !h.s.Remote() { // opening a directory would create it
		if files, err = h.s.Files(ctx, h.DB, nil); err != nil {
			return nil, nil, err
		}
	}
	if store, err = h.s.OpenBlobs(gc.NewRecord(h.DB), h.s.Log); err != nil {
		return nil, nil, err
	}
	if err := h.s.ProbeBlobs(ctx, store, h.s.Log); err != nil {
		return nil, nil, err
	}
	if h.s.Remote() {
		files, err = h.s.Files(ctx, h.DB, store)
	}
	return store, files, err
}

// worker registers jobs with the queue. Recurring jobs also have a Schedule method.
type worker interface{ Work(jobs *job.Jobs) }

// service runs until its context ends.
type service struct {
	name string
	run  func(context.Context) error
}

// openRelay opens the connections between nodes; it returns nil if there can be no other node.
func (h *node) openRelay(ctx context.Context, l *ports.Ports) (*relay.Dialer, error) {
	if h.DB.Single() {
		return nil, nil
	}
	listens, connects, err := certs.NodeTLS(ctx, h.DB, h.seal, h.self.ID(), fleet.NewRoster(h.DB, h.s.Version))
	if err != nil {
		return nil, err
	}
	if l.Node != nil {
		h.relay = &relay.Server{Listener: l.Node, TLS: listens, Log: h.s.Log}
	}
	return &relay.Dialer{TLS: connects}, nil
}
