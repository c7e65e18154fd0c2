package kube

import (
	"testing"

	core "k8s.io/api/core/v1"

	"slipway/internal/program/runtime"
)

// A site's pods run with the site's user ID plus the installation's first one. Volumes belong to that group.
func TestUIDs(t *testing.T) {
	e := &Engine{c: Config{UIDs: 800_000}}
	as := e.pod(runtime.Spec{}, &core.Secret{}, "image", 200_003).Spec.SecurityContext
	for what, id := range map[string]*int64{"user": as.RunAsUser, "group": as.RunAsGroup, "volumes": as.FSGroup} {
		if id == nil || *id != 1_000_003 {
			t.Errorf("%s: %v", what, id)
		}
	}
}
