// Package rights owns the table of what ends a right: each kind of right that Slipway grants, and the effect of each
// event. This package's test checks every row with the real program, and docs/rights.md is generated from the table.
package rights

// Event is something that may end rights.
type Event string

// The events, in the order of the table's columns. The right belongs to a member of a team with the role admin,
// and concerns the team's site, unless its row says otherwise.
const (
	RoleLowered     Event = "role lowered"
	MemberRemoved   Event = "member removed"
	FactorRequired  Event = "two-factor required"
	SSORequired     Event = "SSO required"
	AppsExcluded    Event = "apps excluded"
	PasswordChanged Event = "password changed"
	Revoked         Event = "revoked"
	SiteMoved       Event = "site transferred"
	SiteDeleted     Event = "site deleted"
	UserSuspended   Event = "user suspended"
	UserDeleted     Event = "user deleted"
	TeamDeleted     Event = "team deleted"
	Unpaid          Event = "account unpaid" // the invoice was overdue for too long, and the account's sites are paused
)

// Events lists the columns of the table.
var Events = []Event{
	RoleLowered, MemberRemoved, FactorRequired, SSORequired, AppsExcluded, PasswordChanged, Revoked, SiteMoved, SiteDeleted, UserSuspended, UserDeleted,
	TeamDeleted, Unpaid,
}

// Outcome says what an event does to a right.
type Outcome string

const (
	Ends   Outcome = "ends"   // it is refused within Seconds
	Stays  Outcome = "stays"  // it still works, for the reason in Why
	Pauses Outcome = "pauses" // it is refused until the invoice is paid
	Apart  Outcome = "–"      // the event doesn't apply to the right
)

// Right is a row of the table.
type Right struct {
	Name  string
	Why   string            // one sentence that explains the outcomes Stays. Empty if the right always ends.
	After map[Event]Outcome // missing events have the outcome Apart, except Unpaid, which has Stays
	// The test in e2e/wordpress that checks the row. Optional: empty means TestRights.
	Told string
	// Columns of the database, as table.column, that store the right.
	Stored []string
}

// Seconds is how long a right that ends may still work: requests are refused at once, streams are closed and watched
// settings applied within this time.
const Seconds = 5

// Outcome returns what an event does to the right.
func (r Right) Outcome(e Event) Outcome {
	if o, ok := r.After[e]; ok {
		return o
	}
	if e == Unpaid { // the account stays open so that its users can sign in and pay
		return Stays
	}
	return Apart
}

// all returns the outcome o for every event except Unpaid, and the outcomes of but.
func all(o Outcome, but map[Event]Outcome) map[Event]Outcome {
	m := map[Event]Outcome{}
	for _, e := range Events {
		m[e] = o
	}
	delete(m, Unpaid)
	for e, o := range but {
		m[e] = o
	}
	return m
}

// ofTheSite returns the outcomes of a right that belongs to the team's site, whichever member created it.
func ofTheSite() map[Event]Outcome {
	return all(Stays, map[Event]Outcome{Revoked: Ends, SiteMoved: Ends, SiteDeleted: Ends, TeamDeleted: Ends})
}

// Table has a row for each kind of right.
var Table = []Right{
	{
		Name: "session of the dashboard", Stored: []string{"sessions.hash"},
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart}),
	},
	{
		Name: "API key of a member", Stored: []string{"api_keys.hash"},
		Why:   "A key is a credential of its own: a member who changes the password revokes keys on the page of keys.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays}),
	},
	{
		Name:  "service key of a team",
		Why:   "An admin makes it for the team, and it outlives its creator; the response to a removal lists the service keys to rotate.",
		After: ofTheSite(),
	},
	{
		Name: "access token of an app", Stored: []string{"oauth_tokens.hash", "oauth_tokens.parent", "oauth_tokens.next"},
		Why:   "A new password doesn't end what the user allowed apps: they revoke apps on the page of apps.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays}),
	},
	{
		Name: "refresh token of an app", Why: "As the access token.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays}),
	},
	{
		Name: "authorization code of an app", Stored: []string{"oauth_codes.hash"}, Why: "As the access token.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, Revoked: Apart}),
	},
	{
		Name: "device code that was approved", Stored: []string{"oauth_devices.hash"}, Why: "As the access token.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, Revoked: Apart}),
	},
	{
		Name: "deploy hook", Stored: []string{"deploy_hooks.digest", "deploy_hooks.sealed"},
		Why: "A hook belongs to the site, also one that was made with a key or the command line: `slipway logout` ends the access alone. " +
			"Rotate the hooks that a former member knows.",
		After: ofTheSite(),
	},
	{
		Name: "deploy hook that an app made", Why: "A new password doesn't end what the user allowed apps. While the member is blocked or suspended, it goes on, too: they come back.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, FactorRequired: Stays, SSORequired: Stays, UserSuspended: Stays}),
	},
	{
		Name: "Git hook", Stored: []string{"git_settings.hook_digest", "git_settings.hook_sealed", "git_settings.secret"},
		Why:   "The hook belongs to the site: the Git provider calls it.",
		After: ofTheSite(),
	},
	{
		Name: "webhook of a team", Stored: []string{"webhooks.secret", "webhooks.prev_secret"},
		Why:   "A webhook belongs to the team and stays with it; of a site that the team no longer has it gets nothing.",
		After: ofTheSite(),
	},
	{
		Name: "webhook that an app made", Why: "A new password doesn't end what the user allowed apps. While the member is blocked or suspended, it goes on, too: they come back.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, FactorRequired: Stays, SSORequired: Stays, UserSuspended: Stays}),
	},
	{
		Name: "notification channel of a team", Stored: []string{"notify_channels.url"},
		Why:   "A channel belongs to the team and stays with it; of a site that the team no longer has it gets nothing.",
		After: ofTheSite(),
	},
	{
		Name: "notification channel that an app made", Why: "As the webhook that an app made.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, FactorRequired: Stays, SSORequired: Stays, UserSuspended: Stays}),
	},
	{
		Name: "listener of slipway webhooks listen", Why: "As the key with which it is followed; it concerns all sites of the team.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays, SiteMoved: Stays, SiteDeleted: Stays}),
	},
	{
		Name: "application log that is followed", Why: "The key is a credential of its own.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays}),
	},
	{
		Name: "application log that an app follows", Why: "As the access token.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays}),
	},
	{
		Name: "listener of an app", Why: "As the access token with which it is followed; it concerns all sites of the team.",
		After: all(Ends, map[Event]Outcome{PasswordChanged: Stays, SiteMoved: Stays, SiteDeleted: Stays}),
	},
	{
		Name:  "application log on a page",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart}),
	},
	{
		Name: "terminal of a key", Why: "The key is a credential of its own.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays}),
	},
	{
		Name: "download under way", Why: "The key is a credential of its own.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays}),
	},
	{Name: "terminal of the dashboard", After: all(Ends, map[Event]Outcome{AppsExcluded: Apart})},
	{
		Name: "invitation that is not yet accepted", Stored: []string{"team_invitations.hash"},
		Why: "It is the team's, and concerns no site; a new password of its sender says nothing about the role.",
		After: all(Ends, map[Event]Outcome{
			AppsExcluded: Apart, PasswordChanged: Stays, SiteMoved: Apart, SiteDeleted: Apart,
		}),
	},
	{
		Name: "password link", Stored: []string{"setup_links.hash"},
		Why: "It is the user's, and opens no team by itself; who is suspended can't sign in with the new password.",
		After: map[Event]Outcome{
			RoleLowered: Stays, MemberRemoved: Stays, FactorRequired: Stays, SSORequired: Stays, PasswordChanged: Ends,
			UserDeleted: Ends, UserSuspended: Stays, TeamDeleted: Stays,
		},
	},
	{
		Name: "credential of a repository", Stored: []string{"sites.credential"},
		Why:   "It belongs to the site: the team deploys with it.",
		After: ofTheSite(),
	},
	{
		Name: "key of a workflow's run", Why: "As the API key of a member, who allowed the workflow; it expires after an hour.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays}),
	},
	{
		Name: "sign-in at a protected address", Why: "A viewer may see the site, too.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, RoleLowered: Stays, Unpaid: Pauses}),
	},
	{
		Name: "visitors' password of a site", Stored: []string{"site_serving.settings"},
		Why: "It belongs to the site and is its visitors', also one that an app set: an admin or the receiver of the site changes it, " +
			"which ends the access of everybody who knew it.",
		After: all(Stays, map[Event]Outcome{Revoked: Ends, SiteDeleted: Ends, TeamDeleted: Ends, Unpaid: Pauses}),
	},
	{
		Name: "login link of WordPress", Told: "TestWordPress",
		Why: "It works once, within five minutes. The session that it begins is one of WordPress, where administrators end it.",
		After: all(Stays, map[Event]Outcome{
			AppsExcluded: Apart, Revoked: Apart, SiteMoved: Ends, SiteDeleted: Ends, TeamDeleted: Ends, Unpaid: Pauses,
		}),
	},
	{Name: "polling of a repository", Why: "It belongs to the site.", After: ofTheSite()},
	// Last, because it moves the site if the right still works.
	{
		Name: "offer of a transfer", Stored: []string{"site_transfers.hash"},
		Why:   "A new password of its sender says nothing about the role.",
		After: all(Ends, map[Event]Outcome{AppsExcluded: Apart, PasswordChanged: Stays, SiteMoved: Apart, Unpaid: Pauses}),
	},
}

// Others lists the columns that look like secrets but give no one outside a right, and explains each.
var Others = map[string]string{
	"users.password":              "what a person knows; a change ends sessions and password links (rows above)",
	"second_factors.secret":       "a second factor of the user's, deleted with the user or by them",
	"recovery_codes.hash":         "second factors of the user's, deleted with the user or by them",
	"passkeys.credential":         "an authenticator of the user's, deleted with the user or by them",
	"ceremonies.hash":             "a passkey that is being added or used: bound to its session, for minutes",
	"totp_offers.hash":            "a second factor that is being added: bound to its session, for 15 minutes",
	"totp_offers.secret":          "a second factor that is being added: bound to its session, for 15 minutes",
	"sign_ups.hash":               "a sign-up that is not yet confirmed: there is no user yet",
	"first_links.sealed":          "the link of the first start: there is no user yet",
	"webhooks.url_key":            "a key of an index: not a secret",
	"deploy_hooks.secret":         "signs calls of a deploy hook, and ends with it",
	"deployments.commit_hash":     "a commit: not a secret",
	"git_pulls.commit_hash":       "a commit: not a secret",
	"git_events.commit_hash":      "a commit: not a secret",
	"uploads.commit_hash":         "a commit: not a secret",
	"git_deliveries.digest":       "recognizes an event that was sent twice: not a secret",
	"domains.proof_token":         "public: the TXT record that proved the domain",
	"domain_tokens.token":         "public: the value of a TXT record",
	"sso_domains.token":           "public: the value of a TXT record",
	"authority.private_key":       "the installation's own",
	"acme_storage.value":          "the installation's own",
	"idempotent_answers.answer":   "found with the credential that the request was sent with alone",
	"acme_storage.key":            "a name of a file: not a secret",
	"acme_challenges.token":       "public, for the certificate authority",
	"rate_windows.key":            "what is counted: not a secret",
	"idempotent_answers.key":      "the caller's Idempotency-Key, found with the caller's credential alone",
	"env.key":                     "the name of a variable: not a secret",
	"databases.password":          "reaches the program of its site alone, and moves with the site",
	"wordpress_sites.secret":      "salts of the site's own WordPress, and moves with the site",
	"connections.token":           "the account's own at a Git provider; a site that moves is disconnected",
	"git_apps.hook_digest":        "the installation's own app at a Git provider",
	"git_apps.secrets":            "the installation's own app at a Git provider",
	"git_sign_ins.digest":         "a Git account that is being connected: bound to its session, for minutes",
	"git_sign_ins.verifier":       "a Git account that is being connected: bound to its session, for minutes",
	"blob_deletions.digest":       "of a file: not a secret",
	"upload_parts.digest":         "of a file: not a secret",
	"notify_asked.digest":         "of an email address: not a secret",
	"notify_refused.digest":       "of an email address: not a secret",
	"address_mails.digest":        "of an email address: not a secret",
	"oauth_apps.secret":           "authenticates an app, which has no right without a user's grant",
	"oauth_apps.old_secret":       "authenticates an app, which has no right without a user's grant",
	"sso_providers.secret":        "authenticates Slipway at an identity provider",
	"sso_sign_ins.digest":         "a sign-in under way: for minutes, before there is a session",
	"sso_sign_ins.secrets":        "a sign-in under way: for minutes, before there is a session",
	"billing_invoices.digest":     "of a document: not a secret",
	"billing_ledger.txn_key":      "names a booking: not a secret",
	"billing_setups.digest":       "of a price that was shown: not a secret",
	"billing_sellers.logo_digest": "of a picture: not a secret",
	"stripe_accounts.api_key":     "the installation's own at Stripe",
	"stripe_accounts.secret":      "the installation's own at Stripe",
	"stripe_accounts.old_secret":  "the installation's own at Stripe",
	"action_runs.token":           "recognizes an identity of a workflow's run that was used: not a secret",
	"confirmations.binding":       "a call that waits for a person, found with the agent's credential alone",
}
