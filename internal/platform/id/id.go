// Package id owns the id types that several districts use: a site's id is a Site everywhere, also below the package
// that owns sites. Each noun's package names its own type ID.
package id

import "strings"

// From converts untrusted texts to ids, which may not exist. nil stays nil.
func From[T ~string](texts []string) []T {
	if texts == nil {
		return nil
	}
	ids := make([]T, len(texts))
	for i, one := range texts {
		ids[i] = T(one)
	}
	return ids
}

// Split returns the ids in a text that Join made.
func Split[T ~string](text string) []T { return From[T](strings.Fields(text)) }

// Join returns ids as text, separated by spaces.
func Join[T ~string](ids []T) string {
	var b strings.Builder
	for i, one := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(one))
	}
	return b.String()
}

// User identifies a user who signs in: "usr_" and 26 characters.
type User string

// Owner identifies the owner of sites, domains, webhooks and keys: "own_" and 26 characters. An owner is a personal
// account or a team.
type Owner string

// Topic returns the topic (see db.DB.Listen) that announces changes of an owner's things. Whoever changes one notifies
// it.
func (o Owner) Topic() string { return "owner/" + string(o) }

// Key names an API key: "key_" and 26 characters. It is not the secret.
type Key string

// Session names a session: "ses_" and 26 characters. It is not the secret.
type Session string

// Site names a site: "site_" and 26 characters.
type Site string

// Deployment names a deployment: "dep_" and 26 characters.
type Deployment string

// Label returns the part of the id used in the deployment's own address.
func (d Deployment) Label() string { return string(d[max(0, len(d)-12):]) }

// Release is the digest of a release's manifest: 64 hex digits.
type Release string

// Bundle is the digest of a bundle's manifest: 64 hex digits.
type Bundle string

// Upload names an upload: "upl_" and 26 characters.
type Upload string

// Operation names an operation: "op_" and 26 characters.
type Operation string

// Webhook names a webhook: "hook_" and 26 characters.
type Webhook string

// Channel names a channel of notifications: "nch_" and 26 characters.
type Channel string

// Domain names a domain: "dom_" and 26 characters.
type Domain string

// Connection names a Git connection: "git_" and 26 characters; older ones begin with "con_".
type Connection string

// Team names a team: "team_" and 26 characters.
type Team string

// Database names a database: "db_" and 26 characters.
type Database string

// Backup names a backup: "bkp_" and 26 characters.
type Backup string
