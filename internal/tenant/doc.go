// Package tenant is the district of people and what they own: accounts, sites, domains, members, connections, webhooks,
// notifications, traffic, usage, plans and invoices.
//
// Its rule: everything belongs to an OwnerID, and only each noun's package writes its tables.
//
// Begin with account/caller.go, which says who makes a request, and site/site.go, which defines a site.
package tenant
