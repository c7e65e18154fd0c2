package deploy

import (
	"context"
	"fmt"

	"slipway/internal/framework"
	"slipway/internal/site"
)

// startedBy says in the log what answers for a program.
func startedBy(plan framework.Plan) string {
	if command := plan.Start.Command.String(); command != "" {
		return command
	}
	return "PHP-FPM"
}

// storageOf are the folders that a site's settings, or else slipway.toml, call storage.
func storageOf(s site.Site, plan framework.Plan) []string {
	switch {
	case s.Run.Storage != nil:
		return *s.Run.Storage
	case plan.Run != nil && plan.Run.Storage != nil:
		return *plan.Run.Storage
	}
	return nil
}

// readyPHP finds out, before anything is built, that the PHP which a plan asks for is here.
func (d *Deployments) readyPHP(ctx context.Context, plan framework.Plan, p *progress) error {
	if plan.Runtime != framework.PHP || d.c.PHP == nil {
		return nil
	}
	version, err := d.c.PHP(ctx, plan.Asks("php"))
	if err != nil {
		return fmt.Errorf("choose PHP: %w", err)
	}
	p.Printf("info", "PHP %s", version)
	return nil
}
