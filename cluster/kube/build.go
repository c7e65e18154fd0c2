package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"

	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

const (
	labelKind   = "slipway.dev/kind"
	kindBuild   = "build"
	kindProgram = "program"
	volumeBuild = "build"
)

// StartBuild creates the pod of a build. It differs from Start in that it has no storage, uses the given UID, has a
// build folder, and is ended by the cluster after limit. It reaches public addresses if s.Egress allows.
func (e *Engine) StartBuild(ctx context.Context, s runtime.Spec, uid int, limit time.Duration) (runtime.Program, error) {
	if e.c.BuildImage == "" {
		return nil, errors.New("no image for builds is set on this cluster")
	}
	x, err := e.launch(ctx, s, fits{image: e.c.BuildImage, limit: limit}, int64(uid), kept{})
	if err != nil {
		return nil, fmt.Errorf("start build: %w", err)
	}
	return x, nil
}

func (f fits) kind() string {
	if f.limit > 0 {
		return kindBuild
	}
	return kindProgram
}

// build adapts a pod for a build, if f is one.
func (f fits) build(p *core.Pod, s runtime.Spec) {
	if f.limit == 0 {
		return
	}
	p.Labels[labelKind] = kindBuild
	seconds := int64(f.limit / time.Second)
	p.Spec.ActiveDeadlineSeconds = &seconds
	folder := scratch(volumeBuild, s.Limits.Disk)
	p.Spec.Volumes = append(p.Spec.Volumes, folder)
	main := &p.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, core.VolumeMount{Name: folder.Name, MountPath: sandbox.Root})
}
