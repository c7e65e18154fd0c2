package deploy

import (
	"context"

	"slipway/internal/deploy/deployment"
)

// reporting passes a build's progress to its deployment.
type reporting struct {
	ctx   context.Context // of this build
	d     *Deployments
	id    deployment.ID
	p     *progress
	meter *meter
}

func (r *reporting) Line(level, message, raw string) { r.p.Line(level, message, raw) }

func (r *reporting) Enter(stage string) {
	switch stage {
	case "publish":
		r.p.enter(stage, deployment.Deploying)
	case "queue": // a deployment that waits for a slot isn't building
		r.p.enter(stage, deployment.Pending)
	default:
		r.p.enter(stage, deployment.Building)
	}
}

func (r *reporting) Skip(stage string) { r.p.Skip(stage) }

func (r *reporting) Wait(place int) {
	r.meter.stop()
	if r.p.Queued(place) {
		r.p.clock.Stop()          // waiting doesn't count toward the timeout,
		r.d.survived(r.ctx, r.id) // and a crash meanwhile doesn't count against the deployment
	}
}

func (r *reporting) Begin() {
	r.meter.start()
	r.p.clock.Start()
	r.d.working(r.ctx, r.id)
}
