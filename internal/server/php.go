package server

import (
	"context"
	"path"

	"slipway/internal/app"
	"slipway/internal/deploy"
	"slipway/internal/framework"
	"slipway/internal/php"
	"slipway/internal/runtime"
)

// applyPHP makes PHP-FPM of a program that the plan says is PHP.
func applyPHP(w *app.Wanted, p deploy.Program) {
	if p.Runtime != framework.PHP {
		return
	}
	w.PHP = &app.PHP{Root: path.Join(p.Root, p.Start.DocumentRoot), Front: p.Start.FrontController}
	w.Spec.PHP = &runtime.PHP{Version: p.PHP}
	w.Spec.Dir = p.Root
	w.Spec.Argv, w.Spec.Shell = nil, ""
}

// phpVersion returns the version of PHP that a constraint of composer.json gets.
func phpVersion(ctx context.Context, constraint string) (string, error) {
	v, err := php.Choose(ctx, constraint)
	return v.Number, err
}
