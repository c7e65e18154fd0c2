package event

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Entry is a name in the catalogue of events.
type Entry struct {
	Name        string
	Description string
	Group       string          // deployment, domain, ssl, site, backup, team, usage, subscription or payment
	SameAs      string          // the other set's name for the same event; empty: none
	Schema      json.RawMessage // JSON Schema (2020-12) of the body
	Sample      json.RawMessage // an example body
}

// Catalogue lists the names that can be subscribed to, sorted by group as in the documentation. billing includes those
// that only exist with billing.
func Catalogue(billing bool) []Entry {
	entries, _ := loadCatalogue()
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return sold(e.Name) && !billing })
}

// Known reports whether an event has this name. billing includes names that only exist with billing.
func Known(name string, billing bool) bool {
	_, names := loadCatalogue()
	return names[name] && (billing || !sold(name))
}

// loadCatalogue builds the catalogue on first use, since this program also runs as the helper in every sandbox, where
// it isn't needed.
var loadCatalogue = sync.OnceValues(func() ([]Entry, map[string]bool) {
	at := db.Time(1767225600000) // 2026-01-01
	s := Site{"site_abcdefghijklmnopqrstuvwxyz", "My site", "https://my-site.example.com"}
	d := func(status, why string, ended db.Time) Deployment {
		return Deployment{
			ID:            "dep_abcdefghijklmnopqrstuvwxyz",
			URL:           "https://opqrstuvwxyz--my-site.example.com",
			Status:        status,
			Branch:        "main",
			CommitHash:    "6dcb09b5b57875f334f61aebed695e2e4193db5e",
			CommitMessage: "Fix the header",
			CommitAuthor:  "Ada Lovelace",
			Trigger:       "api",
			Target:        "production",
			Error:         why,
			CreatedAt:     at,
			StartedAt:     at + 200,
			CompletedAt:   ended,
		}
	}
	dom := func(status, ssl, why string) Domain {
		return Domain{"dom_abcdefghijklmnopqrstuvwxyz", "www.example.com", status, ssl, why, at}
	}
	cert := Certificate{Domain: "www.example.com", Issuer: "Let's Encrypt", NotBefore: at, ExpiresAt: at + 90*86_400_000}
	sub := func(status, reason string) Subscription {
		s := Subscription{
			ID: "sub_abcdefghijklmnopqrstuvwxyz", Plan: "pro", Status: status, CurrentPeriodStart: at,
			CurrentPeriodEnd: at + 31*86_400_000, Reason: reason,
		}
		if reason != "" {
			s.CancelAt = s.CurrentPeriodEnd
		}
		return s
	}
	pay := func(status, failure string, next db.Time) Payment {
		return Payment{
			ID: "pay_abcdefghijklmnopqrstuvwxyz", Amount: 1900, Currency: "USD", Status: status,
			Invoice: "inv_abcdefghijklmnopqrstuvwxyz", InvoiceNumber: "2026-000412", Subscription: "sub_abcdefghijklmnopqrstuvwxyz",
			Provider: "manual", Attempt: 1, FailureCode: failure, NextAttemptAt: next,
		}
	}
	moved := func(status, dispute string) Payment {
		p := pay(status, "", 0)
		p.Provider, p.Moved, p.Dispute = "stripe", 1900, dispute
		return p
	}
	inv := Invoice{
		ID: "inv_abcdefghijklmnopqrstuvwxyz", Number: "2026-000412", Status: "open", Net: 1900, Tax: 361, Total: 2261, Currency: "EUR",
		Subscription: "sub_abcdefghijklmnopqrstuvwxyz", DueAt: at + 14*86_400_000,
	}
	mem := func(role string) Member {
		return Member{
			Team: "team_abcdefghijklmnopqrstuvwxyz", User: "usr_abcdefghijklmnopqrstuvwxyz", Email: "ada@example.com", Role: role,
			Sites: []SiteRole{{"site_abcdefghijklmnopqrstuvwxyz", "manager"}},
		}
	}
	gra := Grant{
		App: "app_abcdefghijklmnopqrstuvwxyz", Name: "Acme Deploys", ID: "grt_abcdefghijklmnopqrstuvwxyz", User: "usr_abcdefghijklmnopqrstuvwxyz",
		Scopes: []string{"sites:read", "deployments:write"}, Sites: []id.Site{"site_abcdefghijklmnopqrstuvwxyz"},
	}
	all := []struct {
		Event
		about string
	}{
		{DeploymentStarted(s, d("building", "", 0)), "A deployment left the queue and started."},
		{DeploymentCompleted(s, d("ready", "", at+42_300)), "A deployment completed and is live."},
		{DeploymentFailed(s, d("error", "npm run build exited with status 1", at+17_800)), "A deployment ended without becoming live."},
		{DomainAdded(s, dom("pending", "pending", "Waiting for the TXT record _slipway.www.example.com")), "A domain was added to a site."},
		{DomainVerified(s, dom("active", "pending", "")), "The ownership of a domain was verified."},
		{DomainFailed(s, dom("failed", "pending", "www.example.com points to another service")), "The verification of a domain failed."},
		{SSLIssued(s, cert), "A first certificate was obtained."},
		{SSLRenewed(s, cert), "A certificate was renewed."},
		{
			SSLFailed(s, Certificate{Domain: "www.example.com", LastError: "the domain doesn't point here", NextAttemptAt: at}),
			"An attempt to obtain a certificate failed.",
		},
		{SiteCreated(s), "A site was created."},
		{SiteUpdated(s, "name", "branch"), "The name, branch, settings, env or status of a site changed."},
		{SiteDeleted(s), "A site was deleted."},
		{
			SiteTransferred(s, "", "team_abcdefghijklmnopqrstuvwxyz"),
			"A site moved to another team or account. Both the old and the new owner get the event.",
		},
		{BackupCompleted(s, Backup{"bkp_abcdefghijklmnopqrstuvwxyz", "scheduled", "completed", 48_213_004, 0, ""}), "A backup was taken."},
		{
			BackupFailed(s, Backup{"bkp_abcdefghijklmnopqrstuvwxyz", "scheduled", "failed", 0, 0, "The backup storage is full"}),
			"A backup could not be taken.",
		},
		{MemberAdded(mem("developer")), "A user joined the team."},
		{MemberRemoved(mem("developer")), "A member left the team or was removed from it."},
		{MemberRoleChanged(mem("admin")), "The role of a member in the team or on a site changed."},
		{AppAuthorized(gra), "An app was authorized. The account that it acts for and the account that registered the app get the event."},
		{
			AppRevoked(gra),
			"The access of an app was revoked or has expired. The account that it acted for and the account that registered the app get the event.",
		},
		{
			UsageThreshold(Usage{"bandwidth.bytes", 1_793_491_200_000, 1_796_083_200_000, 75, 75_000_000_000, 100_000_000_000}),
			"50, 75, 90 or 100 percent of a month's limit are used: one event for each. At 100 percent sites are paused, or builds refused.",
		},
		{SubscriptionCreated(sub("active", "")), "A subscription began."},
		{SubscriptionRenewed(sub("active", "")), "A subscription entered its next period."},
		{SubscriptionCanceled(sub("canceled", "requested")), "A subscription will not be renewed."},
		{SubscriptionExpired(sub("expired", "requested")), "A subscription ended."},
		{
			DeletionScheduled(sub("expired", "unpaid"), at+14*86_400_000),
			"The sites of an account whose subscription ended unpaid will be deleted: one event for each of three notices.",
		},
		{PaymentCompleted(pay("completed", "", 0)), "A payment completed."},
		{PaymentFailed(pay("failed", "not_received", at+14*86_400_000)), "A payment failed, or was not received when it was due."},
		{PaymentRefunded(moved("refunded", "")), "A part of a payment, or all of it, was paid back to the card."},
		{PaymentDisputed(moved("disputed", "open")), "A bank took a payment back, or the dispute was won or lost."},
		{InvoiceFinalized(inv), "An invoice got its number."},
	}
	var entries []Entry
	names := map[string]bool{}
	for _, a := range all {
		for i, n := range a.names {
			e := Entry{Name: n, Description: a.about}
			switch e.Group, _, _ = strings.Cut(n, "."); e.Group {
			case "member", "app":
				e.Group = "team"
			case "invoice":
				e.Group = "payment"
			}
			if len(a.names) == 2 {
				e.SameAs = a.names[1-i]
			}
			e.Sample, _ = freeze(payload{"evt_abcdefghijklmnopqrstuvwxyz", n, at.String(), a.data})
			e.Schema = bodySchema(n, a.data)
			entries = append(entries, e)
			names[n] = true
		}
	}
	return entries, names
})

// bodySchema returns the JSON Schema (2020-12) of an event's body. It allows additional properties everywhere, since
// fields may be added later.
func bodySchema(name string, d data) json.RawMessage {
	s := schemaOf(reflect.TypeFor[payload](), "")
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", name
	properties := s["properties"].(map[string]any)
	properties["event"] = map[string]any{"const": name}
	properties["timestamp"].(map[string]any)["format"] = "date-time"
	of := properties["data"].(map[string]any)
	parts, present := of["properties"].(map[string]any), []string{}
	v := reflect.ValueOf(d)
	for i := range v.NumField() {
		field, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).IsZero() {
			delete(parts, field)
		} else {
			present = append(present, field)
		}
	}
	of["required"] = present
	out, _ := json.Marshal(s)
	return out
}

// schemaOf returns the JSON Schema of a Go type. Pointers are nullable.
func schemaOf(t reflect.Type, tag reflect.StructTag) map[string]any {
	s := map[string]any{}
	kind := func(name string) {
		s["type"] = name
		if t.Kind() == reflect.Pointer {
			s["type"] = []string{name, "null"}
		}
	}
	of := t
	if t.Kind() == reflect.Pointer {
		of = t.Elem()
	}
	switch of.Kind() {
	case reflect.Int64:
		kind("integer")
	case reflect.Slice:
		s["type"], s["items"] = "array", schemaOf(of.Elem(), "")
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range of.NumField() {
			f := of.Field(i)
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			properties[name] = schemaOf(f.Type, f.Tag)
			if option != "omitempty" {
				required = append(required, name)
			}
		}
		s["type"], s["properties"], s["required"] = "object", properties, required
	default:
		kind("string")
	}
	if f := tag.Get("format"); f != "" {
		s["format"] = f
	}
	if e := tag.Get("enum"); e != "" {
		s["enum"] = strings.Split(e, ",")
	}
	return s
}
