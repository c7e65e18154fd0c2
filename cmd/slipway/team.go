//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
)

type teamCommand struct {
	SetOwner    teamSetOwner    `cmd:"" help:"Make a user an owner of a team whose owners can't be reached."`
	OptionalSSO teamOptionalSSO `cmd:"" name:"optional-sso" help:"Let members of a team sign in without its provider, for example when it is gone."`
}

type teamSetOwner struct {
	flags.Data
	Team  string `help:"Slug or id of the team." required:"" placeholder:"SLUG"`
	Email string `help:"Email address of the user." required:"" placeholder:"EMAIL"`
}

// Run appoints the owner, also while the server runs.
func (t teamSetOwner) Run(ctx context.Context) error {
	return admin.SetTeamOwner(ctx, t.Store(), t.Team, t.Email, stdout)
}

type teamOptionalSSO struct {
	flags.Data
	Team string `help:"Slug or id of the team." required:"" placeholder:"SLUG"`
}

// Run makes single sign-on optional, also while the server runs.
func (t teamOptionalSSO) Run(ctx context.Context) error {
	return admin.FreeTeam(ctx, t.Store(), t.Team, stdout)
}
