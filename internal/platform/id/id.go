// Package id owns the types of ids that several districts name: a site's id is a Site everywhere, also
// below the package that knows what a site is. Each noun's package calls its own ID.
package id

// User names a user, somebody who signs in: "usr_" and 26 characters.
type User string

// Owner names what sites, domains, webhooks and keys belong to: "own_" and 26
// characters. Today each owner is one user's personal account.
type Owner string

// Topic returns the topic that wakes those who show an owner's things (db.DB.Listen). Whoever changes
// one of them notifies it; the changes of others wake nobody.
func (o Owner) Topic() string { return "owner/" + string(o) }

// Key names an API key: "key_" and 26 characters. It is not the secret.
type Key string

// Session names a session: "ses_" and 26 characters. It is not the secret.
type Session string
