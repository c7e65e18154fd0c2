package deploy

import (
	"context"

	"slipway/internal/deploy/deployment"
)

// reporting is how a deployment hears of its build.
type reporting struct {
	ctx   context.Context // of the one build
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
	case "queue": // what waits for a slot is not being built
		r.p.enter(stage, deployment.Pending)
	default:
		r.p.enter(stage, deployment.Building)
	}
}

func (r *reporting) Skip(stage string) { r.p.Skip(stage) }

func (r *reporting) Wait(place int) {
	r.meter.stop()
	if r.p.Queued(place) {
		r.p.clock.Stop()          // waiting costs nobody their time,
		r.d.survived(r.ctx, r.id) // and a crash of the process meanwhile is not its doing
	}
}

func (r *reporting) Begin() {
	r.meter.start()
	r.p.clock.Start()
	r.d.working(r.ctx, r.id)
}
