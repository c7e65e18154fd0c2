package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/job"
	"slipway/internal/operation"
)

// RestartTx opens the operation that restarts a site's program without a dropped request.
// The caller knows that the site is the owner's.
func (a *Apps) RestartTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site, deployment string) (operation.Operation, error) {
	op, err := a.c.Operations.OpenTx(ctx, tx, owner, operation.NewOperation{Kind: "site.restart", Site: site, Unique: "site.restart/" + site})
	if err != nil {
		return op, err
	}
	_, err = job.Enqueue(ctx, tx, RestartSite{Operation: op.ID, Deployment: deployment}, job.Options{Unique: "restart/" + string(op.ID), Share: string(owner)})
	return op, err
}

// RestartSite is the job that does such an operation. It may run twice: a second restart
// does no harm.
type RestartSite struct {
	Operation  operation.ID
	Deployment string
}

// Kind names the job.
func (RestartSite) Kind() string { return "app.restart" }

// Work registers the jobs of programs.
func (a *Apps) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 15 * time.Minute, GivenUp: a.restartGivenUp}, a.restart)
}

func (a *Apps) restart(ctx context.Context, r RestartSite, _ int64) error {
	message, failure := "Restarted", ""
	if err := a.c.DB.Write(ctx, func(tx *db.Tx) error { return a.c.Operations.AdvanceTx(ctx, tx, r.Operation, -1, "", "Restarting") }); err != nil {
		return err
	}
	if a.Status(r.Deployment).State == Sleeping {
		message = "The application is asleep: the next request starts it with the current settings"
	}
	if err := a.Restart(ctx, r.Deployment); err != nil {
		f := fault.As(err)
		if f == nil {
			return err
		}
		if message, failure = "", f.Message; f.Details != "" {
			failure += ": " + f.Details
		}
	}
	return a.c.DB.Write(ctx, func(tx *db.Tx) error { return a.c.Operations.EndTx(ctx, tx, r.Operation, message, failure, nil) })
}

func (a *Apps) restartGivenUp(ctx context.Context, args []byte, _ error) error {
	var r RestartSite
	if err := json.Unmarshal(args, &r); err != nil {
		return fmt.Errorf("read job arguments: %w", err)
	}
	return a.c.DB.Write(ctx, func(tx *db.Tx) error {
		return a.c.Operations.EndTx(ctx, tx, r.Operation, "", "Internal error; the operator's log has the details", nil)
	})
}
