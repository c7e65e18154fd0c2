package kube

import (
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spread distributes a site's pods over nodes if there is room, so that other instances survive a node's end.
func spread(site string) []core.TopologySpreadConstraint {
	return []core.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: core.LabelHostname, WhenUnsatisfiable: core.ScheduleAnyway,
		LabelSelector: &meta.LabelSelector{MatchLabels: map[string]string{labelSite: site}},
	}}
}
