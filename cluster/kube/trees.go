package kube

import (
	"path"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// staged returns the path where prepare lays out a tree inside a storage folder, which would hide it. It is "" for
// trees in the bundle's own files.
func staged(s runtime.Spec, i int) string {
	for _, f := range s.Storage {
		if strings.HasPrefix(s.Trees[i].Path, f.Path+"/") {
			return path.Join(pod.TreesDir, strconv.Itoa(i))
		}
	}
	return ""
}

// treeVolumes returns the volumes of trees inside storage folders, with their mounts for prepare and for the program.
func treeVolumes(s runtime.Spec) (volumes []core.Volume, before, mounts []core.VolumeMount) {
	for i, t := range s.Trees {
		stage := staged(s, i)
		if stage == "" {
			continue
		}
		name := "tree-" + strconv.Itoa(i)
		volumes = append(volumes, scratch(name, maxTree))
		before = append(before, core.VolumeMount{Name: name, MountPath: stage})
		mounts = append(mounts, core.VolumeMount{Name: name, MountPath: path.Join(runtime.AppDir, t.Path), SubPath: t.From, ReadOnly: true})
	}
	return volumes, before, mounts
}
