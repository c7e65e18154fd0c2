// Package build owns no code. It is the district of from files of a commit to what is served:
// detection, builds in the sandbox, releases and bundles.
//
// Its rule: a release and a bundle never change: their names are their digests.
//
// Begin with framework/framework.go detects, build/run.go builds, release/release.go stores.
package build
