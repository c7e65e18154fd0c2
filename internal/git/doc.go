// Package git owns no code. It is the district of what comes from Git: fetching a commit with a
// hardened git, and what forges say.
//
// Its rule: every byte of a repository is hostile.
//
// Begin with fetch/fetch.go and forge/forge.go.
package git
