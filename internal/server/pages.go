package server

import (
	"slipway/internal/deploy/pushes"
	"slipway/internal/operator/doctor"
	"slipway/internal/web/dashboard"
	"slipway/internal/web/dashboard/operator"
	"slipway/internal/web/dashboard/sites"
)

func (h *node) dashboardConfig() dashboard.Config {
	return dashboard.Config{
		Certificates:   h.addresses(),
		DB:             h.db,
		Accounts:       h.accounts,
		Sites:          h.sites,
		Deployments:    h.deployments,
		Uploads:        h.uploads,
		Rules:          h.rules,
		Thumbnails:     h.thumbnails,
		Screenshots:    h.screenshots,
		Git:            h.git,
		Connections:    h.connections,
		Notify:         h.notify,
		Domains:        h.domains,
		Databases:      h.databases,
		Backups:        h.backups,
		WordPress:      h.wordpress,
		Traffic:        h.traffic,
		Usage:          h.usage,
		Billing:        h.billing,
		SignUp:         h.s.SignUp,
		Webhooks:       h.webhooks,
		OAuth:          h.oauth,
		SSO:            h.sso,
		Log:            h.s.Log,
		BaseURL:        h.s.BaseURL,
		APIURL:         h.s.APIURL,
		TrustedProxies: h.s.Proxies,
		Ready:          &h.serving,
		Version:        h.s.Version,
		Repositories:   pushes.Look{Source: h.source, Sites: h.sites},
		Teams:          h.teams,
		Members:        h.members,
		Installation: &operator.Host{
			DB: h.db, Accounts: h.accounts, Store: h.s.Store, SMTP: h.s.SMTP, Workers: workers,
			Certificates: doctor.Certificates{SiteDomain: h.s.SiteDomain, Public: len(h.s.ACMECA) > 0, DNS: h.s.ACMEDNS != ""},
		},
		Programs: sites.ProgramsOf(h.apps),
	}
}
