// Package git is the district that talks to Git: it fetches commits with a hardened git, and understands the webhooks
// of Git providers.
//
// Its rule: every byte of a repository is hostile.
//
// Begin with fetch/fetch.go and forge/forge.go.
package git
