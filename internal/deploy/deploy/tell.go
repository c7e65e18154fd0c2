package deploy

import (
	"context"
	"strings"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/notify"
)

// tell reports a deployment's state to its Git provider and, if it failed, to the site's members. name is the site's
// name.
func (d *Deployments) tell(ctx context.Context, tx *db.Tx, x deployment.Deployment, name string) error {
	if d.c.Connections == nil || d.c.Notify == nil {
		return nil
	}
	id := x.Site
	if err := d.c.Connections.ReportTx(ctx, tx, id, x.ID, string(x.Status), x.Owner); err != nil {
		return err
	}
	what, subject := name, "production"
	if x.Target == deployment.Preview {
		subject = "preview " + x.Branch
		what += " (preview of " + x.Branch + ")"
	}
	path := "/sites/" + string(id) + "/deployments/" + string(x.ID)
	commit, _, _ := strings.Cut(x.CommitMessage, "\n")
	switch x.Status {
	case deployment.Failed:
		if err := d.c.Notify.FailedTx(ctx, tx, id, subject); err != nil {
			return err
		}
		return d.c.Notify.TellTx(ctx, tx, x.Owner, id, notify.Message{
			Event: notify.DeploymentFailed,
			Title: "Deployment of " + what + " failed",
			Text:  x.Error,
			Path:  path,
		})
	case deployment.Success:
		again, err := d.c.Notify.RecoveredTx(ctx, tx, id, subject)
		if err != nil || !again {
			return err
		}
		return d.c.Notify.TellTx(ctx, tx, x.Owner, id, notify.Message{
			Event: notify.DeploymentRecovered,
			Good:  true,
			Title: "Deployment of " + what + " works again",
			Text:  commit,
			Path:  path,
		})
	}
	return nil
}
