package kube

import (
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spread has the pods of a site go to different nodes where there is room, so that one node's end leaves other instances.
func spread(site string) []core.TopologySpreadConstraint {
	return []core.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: core.LabelHostname, WhenUnsatisfiable: core.ScheduleAnyway,
		LabelSelector: &meta.LabelSelector{MatchLabels: map[string]string{labelSite: site}},
	}}
}
