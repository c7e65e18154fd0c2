// Package deploy is the district of deployments: from a push, a click or a call to a live release.
//
// Its rule: nothing is visible before the one transaction that activates.
//
// Begin with deploy/run.go: the pipeline on one screen.
package deploy
