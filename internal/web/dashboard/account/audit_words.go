package account

import "strings"

// auditLabels holds the labels of audit actions.
var auditLabels = map[string]string{
	"session.started":             "Signed in",
	"session.refused":             "Sign-in refused",
	"session.raised":              "Session confirmed with two-factor authentication",
	"session.ended":               "Session ended",
	"sessions.ended":              "Other sessions ended",
	"password.set":                "Password set",
	"password.changed":            "Password changed",
	"password.link":               "Password reset link created",
	"password.reset_mailed":       "Password reset email sent",
	"mail.undelivered":            "Email delivery failed",
	"second_factor.enabled":       "Two-factor authentication enabled",
	"second_factor.disabled":      "Two-factor authentication disabled",
	"second_factor.codes_renewed": "Recovery codes regenerated",
	"site.command":                "Command run",
	"site.terminal":               "Terminal opened",
	"site.terminal_closed":        "Terminal closed",
	"site.terminal_enabled":       "Terminal enabled",
	"site.terminal_disabled":      "Terminal disabled",
	"passkey.added":               "Passkey added",
	"passkey.removed":             "Passkey removed",
	"upload.created":              "Upload opened",
	"upload.deleted":              "Upload deleted",
	"wordpress.login":             "WordPress login link created",
	"wordpress.purged":            "Page cache purged",
	"wordpress.update":            "WordPress update started",
	"wordpress.extensions":        "Plugins or themes changed",
	"wordpress.user":              "WordPress user changed",
	"wordpress.search_replace":    "Search and replace started",
	"wordpress.import":            "WordPress import started",
	"site.cloned":                 "Site cloned",
	"site.pushed":                 "Site pushed",
	"database.created":            "Database created",
	"database.deleted":            "Database deleted",
	"database.rotated":            "Database password rotated",
	"database.downloaded":         "Database downloaded",
	"database.read":               "Database read",
	"database.queried":            "Database queried",
	"subscription.created":        "Plan chosen",
	"subscription.changed":        "Plan changed",
	"subscription.canceled":       "Subscription canceled",
	"subscription.resumed":        "Subscription resumed",
	"billing.budget_changed":      "Budget changed",
	"billing.profile_changed":     "Billing profile changed",
	"account.signed_up":           "Account created",
	"billing.card_deleted":        "Card deleted",
	"billing.credited":            "Credit added",
	"billing.grant_deleted":       "Grant deleted",
	"billing.granted":             "Limit granted",
	"billing.seller_added":        "Seller added",
	"billing.seller_changed":      "Seller changed",
	"billing.seller_updated":      "Seller updated",
	"billing.vat_checked":         "VAT number checked",
	"invoice.finalized":           "Invoice finalized",
	"invoice.credited":            "Credit note issued",
	"invoice.written_off":         "Invoice written off",
	"payment.recorded":            "Payment recorded",
	"payment.refunded":            "Refund recorded",
	"webhook.pinged":              "Test event sent",
	"webhook.redelivered":         "Events redelivered",
	"webhook.secret_rotated":      "Webhook secret rotated",
	"webhook.secret_shown":        "Webhook secret revealed",
	"webhook.listener_started":    "Webhook listener started",
	"webhook.listener_stopped":    "Webhook listener stopped",
	"node.forgotten":              "Node forgotten",
	"key.created":                 "API key created",
	"key.revoked":                 "API key revoked",
	"agent_call.approved":         "Agent's call approved",
	"agent_call.declined":         "Agent's call declined",
	"app.created":                 "App registered",
	"app.updated":                 "App changed",
	"app.disabled":                "App disabled",
	"app.enabled":                 "App enabled",
	"app.deleted":                 "App deleted",
	"app.secret_rotated":          "Client secret rotated",
	"app.authorized":              "App authorized",
	"app.requested":               "Approval of an app requested",
	"app.approved":                "App approved",
	"app.approval_removed":        "Approval of an app removed",
	"app.revoked":                 "Access of an app revoked",
	"app.reuse_detected":          "Stolen token detected",
	"identity.linked":             "Account at a provider linked",
	"identity.unlinked":           "Account at a provider unlinked",
	"sso_provider.added":          "Sign-in provider added",
	"sso_provider.removed":        "Sign-in provider removed",
	"team.break_glass":            "Emergency owner signed in without the team's provider",
	"member.emergency":            "Emergency owner changed",
	"sso_provider.updated":        "Sign-in provider changed",
	"sso_domain.added":            "Email domain added",
	"sso_domain.checked":          "Email domain checked",
	"sso_domain.verified":         "Email domain verified",
	"sso_domain.missing":          "TXT record of an email domain is missing",
	"sso_domain.lost":             "Email domain no longer verified",
	"sso_domain.removed":          "Email domain removed",
	"user.invited":                "User invited",
	"user.uninvited":              "Invite revoked",
	"user.suspended":              "User suspended",
	"user.resumed":                "User unsuspended",
	"user.role":                   "Role changed",
	"user.deleted":                "User deleted",
	"user.erased":                 "User deleted and erased",
	"user.exported":               "User data exported",

	"user.created":                  "User created",
	"installation.backup_failed":    "Backups of the installation need attention",
	"installation.backup_recovered": "Backups of the installation work again",
}

// nouns holds the nouns whose display name differs.
var nouns = map[string]string{
	"env": "variable", "hook": "deploy hook", "git_hook": "Git hook", "git_app": "Git app",
	"connection": "Git account",
}

// AuditLabel returns an action's label, or the action itself if it has none.
func AuditLabel(action string) string {
	if w, ok := auditLabels[action]; ok {
		return w
	}
	noun, verb, _ := strings.Cut(action, ".")
	if noun == "" || verb == "" {
		return action
	}
	if name := nouns[noun]; name != "" {
		noun = name
	}
	return upperFirst(strings.ReplaceAll(noun+" "+verb, "_", " "))
}

// NounWords returns the label of a filter's noun.
func NounWords(noun string) string {
	switch noun {
	case "key":
		return "API keys"
	case "env":
		return "Environment"
	case "second_factor":
		return "Two-factor"
	case "hook":
		return "Deploy hooks"
	case "mail":
		return "Mail"
	}
	return upperFirst(strings.ReplaceAll(noun, "_", " ")) + "s"
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
