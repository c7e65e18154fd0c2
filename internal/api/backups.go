package api

import (
	"context"

	"slipway/internal/account"
)

type backupBody struct {
	ID          string   `json:"id" example:"bkp_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID      string   `json:"siteId"`
	Type        string   `json:"type" enum:"manual,scheduled"`
	Status      string   `json:"status" enum:"pending,running,success,failed"`
	Includes    []string `json:"includes"`
	SizeBytes   *int64   `json:"sizeBytes"`
	Checksum    *string  `json:"checksum"`
	VerifiedAt  *string  `json:"verifiedAt" format:"date-time"`
	Error       *string  `json:"error"`
	CreatedAt   string   `json:"createdAt" format:"date-time"`
	CompletedAt *string  `json:"completedAt" format:"date-time"`
	ExpiresAt   *string  `json:"expiresAt" format:"date-time"`
}

func (a *API) backupRoutes() {
	get(a, Route{Path: "/sites/{id}/backups", ID: "listBackups", Tag: "Backups", Scope: account.BackupsRead, Summary: "List a site's backups",
		Doc: "Newest first."}, a.listBackups)
}

// listBackups is empty until something makes backups: there is no service for them yet.
func (a *API) listBackups(ctx context.Context, c account.Caller, in *partOf) (data[backupBody], error) {
	_, err := a.site(ctx, c, in.ID)
	return part(in.PartIn, []backupBody{}, err)
}
