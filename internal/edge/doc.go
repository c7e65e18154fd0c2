// Package edge owns no code. It is the district of what visitors of sites meet: ports, TLS,
// certificates, hosts, files, passing on to programs.
//
// Its rule: it imports nothing of tenant: it reads views and swaps pointers.
//
// Begin with edge/edge.go, then serve.go; fastpath/fastpath.go is ahead of both.
package edge
