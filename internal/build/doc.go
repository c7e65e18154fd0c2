// Package build is the district that turns files into something that can be served: detection, builds in the sandbox,
// releases and bundles.
//
// Its rule: releases and bundles never change, because their names are digests of their content.
//
// Begin with framework/framework.go, which detects, build/run.go, which builds, and release/release.go, which stores.
package build
