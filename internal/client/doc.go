// Package client owns no code. It is the district of what runs on a developer's machine: the command
// line that signs in at an installation and drives it through its REST interface.
//
// Its rule: it imports nothing of the server, so that it can be built alone.
//
// Begin with cli/cli.go, then rest/rest.go.
package client
