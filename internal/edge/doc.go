// Package edge is the district of everything that visitors of sites meet: ports, TLS, certificates, hosts, files and
// forwarding to programs. It has no code of its own.
//
// Its rule: it imports nothing of tenant; it reads views and swaps pointers.
//
// Start with edge/edge.go and serve.go. fastpath/fastpath.go comes before both in a request.
package edge
