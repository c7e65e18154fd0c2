// Package client is the district of what runs on a developer's machine: the command line that signs in to an
// installation and uses its REST interface. It has no code of its own.
//
// Its rule: it imports nothing of the server, so that it can be built alone.
//
// Start with cli/cli.go, then rest/rest.go.
package client
