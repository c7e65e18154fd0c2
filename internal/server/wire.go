package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/retention"
	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/deploy/actions"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/thumbnail"
	"slipway/internal/deploy/upload"
	"slipway/internal/edge/access"
	"slipway/internal/edge/certs"
	"slipway/internal/edge/country"
	"slipway/internal/edge/edge"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/ports"
	"slipway/internal/edge/visits"
	"slipway/internal/git/fetch"
	"slipway/internal/launch"
	"slipway/internal/operator/admin"
	"slipway/internal/operator/config"
	"slipway/internal/operator/metrics"
	"slipway/internal/operator/upgrade"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/memory"
	fleet "slipway/internal/platform/node"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/systemd"
	"slipway/internal/program/app"
	"slipway/internal/program/database"
	"slipway/internal/program/placement"
	"slipway/internal/program/relay"
	"slipway/internal/program/runtime"
	"slipway/internal/program/volume"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/vies"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/mail"
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
	"slipway/internal/web/api"
	"slipway/internal/web/control"
	"slipway/internal/web/dashboard"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/mcp"
	weboauth "slipway/internal/web/oauth"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/requestinfo"
	"slipway/internal/wordpress/wordpress"
)

// node is every package of one process, built and wired.
type node struct {
	s       config.Settings
	db      *db.DB
	seal    *seal.Sealer
	self    *fleet.Self
	places  *placement.Places // nil with SQLite: there is no other node
	relay   *relay.Server     // nil: other nodes don't reach this one
	volume  *volume.Volume    // of sites' storage
	mark    string            // of a volume that all nodes mount; empty: it is this node's own
	metrics *prometheus.Registry

	accounts    *account.Accounts
	teams       *team.Teams
	webhooks    *webhook.Webhooks
	operations  *operation.Operations
	sites       *site.Sites
	deployments *deploy.Deployments
	uploads     *upload.Uploads
	rules       *ruletest.Rules
	thumbnails  *thumbnail.Thumbnails
	screenshots *screenshot.Screenshots
	camera      *screenshot.Camera // nil where programs can't run
	git         *pushes.Pushes
	connections *connection.Connections
	notify      *notify.Notifications
	domains     *domain.Domains
	traffic     *traffic.Traffic
	usage       *usage.Usage
	billing     *billing.Billing // nil: there are no plans
	stripe      *stripe.Stripe   // nil: there are no plans
	vies        *vies.Vies
	oauth       *oauth.Server
	sso         *sso.SSO
	answers     *idempotency.Answers
	limiter     *ratelimit.Limiter
	jobs        *job.Jobs
	gc          *gc.Collector
	apps        *app.Apps
	databases   *database.Databases
	wordpress   *wordpress.WordPress
	backups     *backup.Backups
	retention   *retention.Retention // nil: there are no plans
	launch      *launch.Launch
	engine      *runtime.Processes // nil where programs can't run
	bundles     *bundle.Bundles
	source      *fetch.Fetcher
	api         *api.API             // nil without the role
	pages       *dashboard.Dashboard // nil without the role
	agents      *mcp.Server          // nil without the role
	tokens      *weboauth.Endpoints  // nil without the role
	edge        *edge.Edge           // nil without the role
	certs       *certs.Certs         // nil without the role edge

	door      *control.Door
	members   *member.Members
	draining  atomic.Bool // since the first sign of the end
	tell      systemd.Notifier
	activated bool        // systemd holds the sockets
	serving   atomic.Bool // between the opening of the listeners and the first sign of the end
}

// workers is how many jobs of each queue run at once in one process. Builds have a
// tighter limit of their own; the rest of a deployment is mostly waiting.
var workers = map[string]int{
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

// wire makes every package from the settings. It opens the database and starts nothing.
func wire(ctx context.Context, s config.Settings, l *ports.Ports) (_ *node, err error) {
	h := &node{s: s, metrics: prometheus.NewRegistry()}
	if h.db, h.seal, err = s.Open(ctx, s.Log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.db.Close()
		}
	}()
	address := s.NodeAddress
	if !s.Role("worker") { // it has nothing to be reached for
		address = ""
	}
	if err := h.openVolume(ctx); err != nil {
		return nil, err
	}
	h.self, err = fleet.New(fleet.Config{
		DB: h.db, Dir: s.DataDir, Version: s.Version, Roles: s.Roles, Address: address, Blobs: s.Shared(), SiteDomain: s.SiteDomain,
		Storage: h.mark, Log: s.Log,
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
	store, err := s.OpenBlobs(gc.NewRecord(h.db), s.Log)
	if err != nil {
		return nil, err
	}
	if err := s.ProbeBlobs(ctx, store, s.Log); err != nil {
		return nil, err
	}
	releases := release.New(release.Config{
		Blobs: store, Log: s.Log,
		MaxFile: int64(s.MaxFileSize) << 20, MaxBytes: int64(s.MaxReleaseSize) << 20,
	})
	h.source, err = fetch.New(fetch.Config{
		Dir:    s.Path("source"),
		Egress: out,
		Hosts:  s.GitAt,
		Depth:  s.GitHistory,
		Disk:   s.Store,
		Log:    s.Log,
	})
	if err != nil {
		return nil, err
	}
	bundles, err := bundle.New(bundle.Config{Blobs: store, Dir: s.Path("bundles"), Log: s.Log})
	if err != nil {
		return nil, err
	}
	h.bundles = bundles
	builds := build.New(build.Config{Why: "this node doesn't have the worker role"})
	h.places = placement.New(h.db, h.self, h.mark != "")
	apps := app.Config{
		DB: h.db, Why: "this node doesn't have the worker role", Places: h.places, Node: h.self.ID(), Log: s.Log,
	}
	if apps.Relay, err = h.openRelay(ctx, l); err != nil {
		return nil, err
	}
	if s.Role("worker") {
		if builds, err = h.openBuilds(ctx, out, bundles, l); err != nil {
			return nil, err
		}
		if h.engine != nil {
			apps.Engine, apps.Storage, apps.Why = h.engine, h.engine, ""
		} else {
			apps.Why = "programs need the sandbox, which this server lacks; slipway doctor shows more"
		}
	}
	h.operations = operation.New(operation.Config{DB: h.db, Log: s.Log})
	apps.Operations = h.operations
	quotas := limits.New(s.AccountLimits)
	apps.Limits = quotas
	h.usage = usage.New(usage.Config{DB: h.db, Limits: quotas, Log: s.Log})
	apps.Usage = h.usage
	h.apps = app.New(apps)
	if h.relay != nil {
		h.relay.Programs = h.apps
	}
	quotas.Count(limits.Programs, func(_ context.Context, _ db.Reader, owner account.OwnerID) (int64, error) {
		return h.apps.Running(owner), nil
	})
	quotas.Count(limits.Storage, h.apps.StorageOf)
	h.accounts = account.New(account.Config{DB: h.db, Limits: quotas, Seal: h.seal, Mail: s.Mailer, Site: s.BaseURL, Log: s.Log})
	h.webhooks = webhook.New(webhook.Config{
		DB:         h.db,
		Limits:     quotas,
		Seal:       h.seal,
		Out:        out.PooledClient(15*time.Second, 512),
		Log:        s.Log,
		Metrics:    h.metrics,
		Mail:       h.accounts,
		Operations: h.operations,
		Billing:    s.Billing,
	})
	if s.Billing {
		h.billing = billing.New(billing.Config{DB: h.db, Usage: h.usage, Hooks: h.webhooks, Limits: quotas, Mail: h.accounts, Log: s.Log})
		quotas.Connect(h.billing)
		h.stripe = stripe.New(stripe.Config{
			DB: h.db, Seal: h.seal, Billing: h.billing, Out: stripe.Client(out, s.StripeAPI), API: s.StripeAPI, Log: s.Log,
		})
		h.billing.Connect(h.stripe)
		h.vies = vies.New(vies.Config{DB: h.db, Parties: h.billing.Parties, Out: out.Client(15 * time.Second), Log: s.Log})
	}
	h.wireForges(out)
	h.sites = site.New(site.Config{
		DB:          h.db,
		Limits:      quotas,
		Hooks:       h.webhooks,
		Seal:        h.seal,
		Domain:      s.SiteDomain,
		Port:        s.SitePort,
		Connections: h.connections,
	})
	h.members = member.New(member.Config{
		DB: h.db, Seal: h.seal, Sites: h.sites, Accounts: h.accounts, BaseURL: s.BaseURL, GrantPath: access.GrantPath,
	})
	h.teams = team.New(team.Config{
		DB: h.db, Accounts: h.accounts, Limits: quotas, Sites: h.sites, Hooks: h.webhooks, Operations: h.operations, Log: s.Log,
	})
	h.door = control.New(control.Config{Listen: s.Listen, Hosts: s.OwnHosts, Draining: &h.draining})
	if err := h.openDatabases(quotas, apps.Why); err != nil {
		return nil, err
	}
	h.usage.Connect(usage.Notices{Notify: h.notify, Hooks: h.webhooks})
	h.traffic = traffic.New(traffic.Config{DB: h.db, Usage: h.usage})
	arriving := s.Path("upload-tmp") // its files have no names: a crash leaves none
	if err := os.MkdirAll(arriving, 0o700); err != nil {
		return nil, err
	}
	h.uploads = upload.New(upload.Config{
		DB: h.db, Sites: h.sites, Releases: releases, Blobs: store, Limits: quotas, Scratch: arriving, Log: s.Log,
	})
	h.deployments = deploy.New(deploy.Config{
		DB:          h.db,
		Limits:      quotas,
		Usage:       h.usage,
		Sites:       h.sites,
		Hooks:       h.webhooks,
		Source:      h.source,
		Releases:    releases,
		Builds:      builds,
		Bundles:     bundles,
		Uploads:     h.uploads,
		Countries:   s.CountryDatabase != "",
		Log:         s.Log,
		Connections: h.connections,
		Notify:      h.notify,
		Programs:    h.apps,
		BaseURL:     s.BaseURL,
		Gone:        []func(context.Context, site.ID) error{h.forget},
	})
	h.rules = ruletest.New(ruletest.Config{
		DB:          h.db,
		Sites:       h.sites,
		Deployments: h.deployments,
		Releases:    releases,
		Countries:   s.CountryDatabase != "",
	})
	h.thumbnails = thumbnail.New(h.db, releases)
	h.screenshots = screenshot.New(screenshot.Config{DB: h.db, Sites: h.sites, Camera: h.camera, Users: builds, Log: s.Log})
	h.git = pushes.New(pushes.Config{
		DB: h.db, Sites: h.sites, Deployments: h.deployments, Seal: h.seal,
		Repositories: pushes.Look{Source: h.source, Sites: h.sites}, Log: s.Log,
	})
	h.gc = gc.New(gc.Config{DB: h.db, Blobs: store, Log: s.Log})
	h.gc.Register("deployments", h.deployments.Roots)
	h.gc.Register("uploads", h.uploads.Roots) // after deployments, on whose releases they rely
	if err := h.openBackups(store, quotas); err != nil {
		return nil, err
	}
	h.domains = domain.New(h.domainConfig(out, authorities, quotas))
	h.openWordPress(out, bundles)
	h.gc.Register("WordPress", h.wordpress.Roots)
	h.connections.Connect(h.deployments)
	h.deployments.Connect(h.wordpress)
	h.launch = launch.New(launch.Config{
		DB:          h.db,
		Apps:        h.apps,
		Engine:      h.engine,
		Node:        h.self.ID(),
		Log:         s.Log,
		Sites:       h.sites,
		Deployments: h.deployments,
		Databases:   h.databases,
		WordPress:   h.wordpress,
		Mail:        s.Mailer != nil,
		Previews:    h.deployments.Previews,
		Git:         h.git,
	})
	h.apps.Connect(h.launch, h.notify)
	h.backups.Connect(h.wordpress, h.launch)
	if h.billing != nil {
		h.retention = retention.New(retention.Config{
			DB: h.db, Billing: h.billing, Sites: h.sites, Backups: h.backups, Hooks: h.webhooks, Mail: h.accounts, Log: s.Log,
		})
	}
	if h.engine != nil {
		ways := &launch.Ways{Databases: h.databases, WordPress: h.wordpress}
		if s.Mailer != nil {
			ways.Mail = mail.NewRelay(mail.RelayConfig{
				Mailer:  s.Mailer,
				Dir:     s.DataDir,
				Senders: launch.Senders{DB: h.db, Sites: h.sites, Apps: h.apps},
			})
		}
		h.engine.Connect(ways)
	}
	h.sso = sso.New(sso.Config{
		DB: h.db, Accounts: h.accounts, Seal: h.seal, Out: out.Client(5 * time.Second), Base: s.BaseURL, Members: h.teams,
		Records: h.domains, Log: s.Log,
	})
	h.oauth = oauth.New(oauth.Config{
		DB: h.db, Accounts: h.accounts, Limits: quotas, Seal: h.seal, Issuer: s.BaseURL, Out: out.Client(5 * time.Second), Log: s.Log,
		Hooks: h.webhooks, Registration: s.OAuthRegistration,
	})
	h.oauth.Connect(oauth.Removers{Webhooks: h.webhooks, DeployHooks: h.sites, Channels: h.notify})
	h.connectTransfers(builds)
	h.answers = idempotency.New(idempotency.Config{DB: h.db, Seal: h.seal, Log: s.Log})
	h.limiter = ratelimit.New(ratelimit.Config{DB: h.db, Log: s.Log})
	h.jobs = job.New(job.Config{
		DB: h.db, Log: s.Log, Drain: drain / 2,
		Queues: workers, Node: h.self.ID(),
	})
	h.accounts.Work(h.jobs)
	h.teams.Work(h.jobs)
	h.connections.Work(h.jobs)
	h.notify.Work(h.jobs)
	h.sites.Work(h.jobs)
	h.webhooks.Work(h.jobs)
	h.deployments.Work(h.jobs)
	h.uploads.Work(h.jobs)
	h.thumbnails.Work(h.jobs)
	h.screenshots.Work(h.jobs)
	h.apps.Work(h.jobs)
	h.databases.Work(h.jobs)
	h.backups.Work(h.jobs)
	h.wordpress.Work(h.jobs)
	h.traffic.Work(h.jobs)
	h.usage.Work(h.jobs)
	if h.billing != nil {
		h.billing.Work(h.jobs)
		h.stripe.Work(h.jobs)
		h.vies.Work(h.jobs)
		h.retention.Work(h.jobs)
	}
	h.gc.Work(h.jobs)
	if s.Role("api") {
		// One user has so many streams and downloads, whether of pages or of the API.
		streams := requestinfo.NewStreams(requestinfo.AllStreams, requestinfo.UserStreams, requestinfo.NetworkStreams)
		pages := h.dashboardConfig()
		pages.Streams = streams
		h.pages = dashboard.New(pages)
		h.api = api.New(api.Config{
			DB:             h.db,
			Limits:         quotas,
			Accounts:       h.accounts,
			Teams:          h.teams,
			Sites:          h.sites,
			Deployments:    h.deployments,
			Uploads:        h.uploads,
			Rules:          h.rules,
			Git:            h.git,
			Connections:    h.connections,
			Notify:         h.notify,
			Domains:        h.domains,
			Certificates:   h.addresses(),
			Traffic:        h.traffic,
			Usage:          h.usage,
			Apps:           h.apps,
			Databases:      h.databases,
			WordPress:      h.wordpress,
			Backups:        h.backups,
			Webhooks:       h.webhooks,
			Operations:     h.operations,
			OAuth:          h.oauth,
			SSO:            h.sso,
			Billing:        h.billing,
			Stripe:         h.stripe,
			Answers:        h.answers,
			Streams:        streams,
			Limiter:        h.limiter,
			Log:            s.Log,
			BaseURL:        s.BaseURL,
			APIURL:         s.APIURL,
			RateLimit:      s.RateLimit,
			TrustedProxies: s.Proxies,
			Ready:          &h.serving,
			Version:        s.Version,
			FontURL:        h.pages.FontURL(),
			IconURL:        h.pages.IconURL(),
		})
		h.agents = mcp.New(mcp.Config{
			API: h.api, Limiter: h.limiter, Confirm: confirmation.New(h.db), BaseURL: s.BaseURL, Version: s.Version, Ready: &h.serving, Log: s.Log,
			TrustedProxies: s.Proxies,
		})
		h.tokens = weboauth.New(weboauth.Config{
			Server: h.oauth, Limiter: h.limiter, TrustedProxies: s.Proxies, Ready: &h.serving, Log: s.Log,
			Workflows: actions.New(actions.Config{
				DB: h.db, Accounts: h.accounts, Sites: h.sites, Git: h.git, Out: out.Client(5 * time.Second), Issuer: s.ActionsIssuer,
				Audience: s.BaseURL, Log: s.Log,
			}),
		})
	}
	if h.certs, err = h.certificates(authorities, l); err != nil {
		return nil, err
	}
	if s.Role("edge") {
		var countries visits.Countries
		if s.CountryDatabase != "" {
			if countries, err = country.Open(s.CountryDatabase); err != nil {
				return nil, fmt.Errorf("--country-database: %w", err)
			}
		}
		h.edge = edge.New(edge.Config{
			Programs: map[string]endpoint.Source{
				framework.Node:      h.apps,
				framework.PHP:       endpoint.NotHTTP{Source: h.apps},
				framework.WordPress: h.wordpress,
			},
			DB:           h.db,
			Releases:     releases,
			Blobs:        store,
			SiteDomain:   s.SiteDomain,
			HTTPSPort:    s.SitePort,
			Control:      h.door.Bounded(h.public()),
			Draining:     &h.draining,
			NoFastPath:   s.NoFastPath,
			HTTP3:        s.HTTP3,
			Countries:    countries,
			ControlHosts: s.ControlHosts,
			Certificates: h.certs,
			Lender:       usage.Lender{Usage: h.usage, Node: db.NewID("edge")},
			Visits:       &edgeVisits{Traffic: h.traffic, source: usage.ProcessSource("edge")},
			Out:          out.Client(0).Transport,
			Password:     site.VerifyPassword,
			Members:      edgeMembers{h.members},
			Log:          s.Log,
			Metrics:      h.metrics,
		})
	}
	metrics.Register(h.metrics, h.db, s.DataDir)
	return h, nil
}

func (h *node) domainConfig(out *egress.Egress, authorities *http.Client, quotas *limits.Limits) domain.Config {
	c := domain.Config{
		DB:         h.db,
		Limits:     quotas,
		Out:        out.Client(3 * time.Second),
		Sites:      h.sites,
		Events:     domain.EventsOf(h.webhooks, h.notify),
		SiteDomain: h.s.SiteDomain,
		Registry:   h.s.Registry,
		Prices:     h.s.PriceList,
		Reserved:   h.s.OwnHosts,
		Addrs:      h.s.Public,
		Listens:    h.s.Listens(),
		Resolver:   &domain.DNS{Server: h.s.DNSResolver},
		Log:        h.s.Log,
		Allow:      h.s.Allow,
	}
	if len(h.s.ACMECA) > 0 {
		c.Certificates = certs.NewPermits(h.s.ACMECA, authorities, h.s.ACMEDNSZone)
	}
	return c
}

// prepare does what must be done once before serving.
func (h *node) prepare(ctx context.Context) error {
	if err := h.self.Join(ctx); err != nil {
		return err
	}
	if err := h.adopt(ctx); err != nil {
		return err
	}
	for _, schedule := range []func(context.Context) error{
		h.deployments.Schedule, h.uploads.Schedule, h.traffic.Schedule,
		h.usage.Schedule, h.backups.Schedule, h.gc.Schedule,
	} {
		if err := schedule(ctx); err != nil {
			return err
		}
	}
	if err := billing.Switch(ctx, h.db, h.billing != nil); err != nil {
		return err
	}
	if h.billing != nil {
		if err := h.billing.Schedule(ctx); err != nil {
			return err
		}
		if err := h.stripe.Schedule(ctx); err != nil {
			return err
		}
		if err := h.vies.Schedule(ctx); err != nil {
			return err
		}
		if err := h.retention.Schedule(ctx); err != nil {
			return err
		}
	}
	if h.pages != nil {
		if err := admin.Invite(ctx, h.accounts, h.s.BaseURL, os.Stderr); err != nil {
			return err
		}
	}
	if h.edge == nil {
		return nil
	}
	return h.certs.WriteRoot(ctx, h.s.Path("root.pem"))
}

// adopt pins the sites that have files or databases on this node, as those of earlier versions do.
func (h *node) adopt(ctx context.Context) error {
	if h.places == nil {
		return nil
	}
	sites, err := h.databases.Sites(ctx)
	if err != nil {
		return err
	}
	if h.engine != nil && h.mark == "" {
		stored, err := h.engine.StorageSites()
		if err != nil {
			return err
		}
		sites = append(sites, stored...)
	}
	others, err := h.places.Adopt(ctx, sites)
	if len(others) > 0 {
		h.s.Log.WarnContext(
			ctx, "sites have storage here, but belong to another node: what is here is not used; compare it, and delete it", "sites", others)
	}
	return err
}

// works returns an error while the service is down in a way that a restart heals: a PostgreSQL that is away is none of it.
func (h *node) works(ctx context.Context) error {
	if !h.db.Single() {
		return nil
	}
	if err := h.db.Ping(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// service is something that runs until its context ends.
type service struct {
	name string
	run  func(context.Context) error
}

// services run on every node for as long as it serves.
func (h *node) services() []service {
	list := []service{
		{"database", h.db.Run},
		{"node", h.self.Run},
		{"accounts", h.accounts.Run},
		{"answers", h.answers.Run},
		{"operations", h.operations.Run},
		{"OAuth", h.oauth.Run},
		{"rate limit", h.limiter.Run},
		{"memory", memory.GiveBack},
		{"usage", h.usage.Run},
	}
	if h.pages != nil {
		list = append(list, service{"dashboard", h.pages.Run})
	}
	if h.edge != nil {
		list = append(list, service{"edge", h.edge.Run})
	}
	if h.certs != nil {
		list = append(list, service{"certificates", h.certs.Run})
	}
	return list
}

// workers run on nodes with that role.
func (h *node) workers() []service {
	list := []service{
		{"storage", h.volume.Run},
		{"jobs", h.jobs.Run},
		{"programs", h.apps.Run},
		{"databases", h.databases.Run},
		{"WordPress", h.wordpress.Run},
		{"program files", h.bundles.Run},
		{"webhooks", h.webhooks.Run},
		{"domains", h.domains.Run},
		{"git", h.git.Run},
		{"connections", h.connections.Run},
		{"sign-in domains", h.sso.Run},
		{"upgrades", (&upgrade.Announcer{Store: h.s.Store, DB: h.db, To: h.accounts, Log: h.s.Log}).Run},
	}
	if h.engine != nil {
		list = append(list, service{"fence", h.engine.Fence})
	}
	return list
}

// openRelay makes what reaches other nodes, and what they reach; nil where there can be none.
func (h *node) openRelay(ctx context.Context, l *ports.Ports) (*relay.Dialer, error) {
	if h.db.Single() {
		return nil, nil
	}
	listens, connects, err := certs.NodeTLS(ctx, h.db, h.seal)
	if err != nil {
		return nil, err
	}
	if l.Node != nil {
		h.relay = &relay.Server{Listener: l.Node, TLS: listens, Log: h.s.Log}
	}
	return &relay.Dialer{TLS: connects}, nil
}
