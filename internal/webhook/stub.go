package webhook

import (
	"context"
	"slipway/internal/account"
	"slipway/internal/db"
)

type Event struct{ Name string }
type Site struct{ ID, Name string }
type Deployment struct {
	ID, URL, Status string
	CreatedAt       db.Time
}
type Webhooks struct{}

func (w *Webhooks) EmitTx(ctx context.Context, tx *db.Tx, owner account.ID, e Event) error {
	return nil
}
func SiteCreated(s Site) Event                       { return Event{} }
func SiteUpdated(s Site) Event                       { return Event{} }
func SiteDeleted(s Site) Event                       { return Event{} }
func DeploymentStarted(s Site, d Deployment) Event   { return Event{} }
func DeploymentCompleted(s Site, d Deployment) Event { return Event{} }
func DeploymentFailed(s Site, d Deployment) Event    { return Event{} }

type Config struct {
	DB                *db.DB
	Seal              any
	Out, Log, Metrics any
}

func (w *Webhooks) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func New(Config) *Webhooks { return &Webhooks{} }
