// Package tenant owns no code. It is the district of people and what is theirs: accounts, sites,
// domains, members, connections, webhooks, notifications, traffic, usage, plans
// and invoices.
//
// Its rule: everything belongs to an OwnerID, and each noun's package alone writes its tables.
//
// Begin with account/caller.go says who asks, site/site.go what a site is.
package tenant
