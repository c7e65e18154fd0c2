package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Progress is how far a restore or a verification of a site's backup is, or how it ended a
// short while ago.
type Progress struct {
	Kind     string  // backup.restore, backup.verify or site.delete
	Done     float64 // 0 to 1; -1: unknown
	Message  string
	Error    string
	Ended    bool
	BackupID ID // that undoes the restore; empty: none
	At       db.Time
}

// shownFor is how long the end of an operation is shown.
const shownFor = 10 * time.Minute

// Under returns what is being done with the backups of the owner's site, the newest first.
func (s *Backups) Under(ctx context.Context, owner account.OwnerID, id site.ID) (list []Progress, err error) {
	ops, _, err := s.c.Operations.List(ctx, owner, id, 1, 20)
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	for _, o := range ops {
		if !strings.HasPrefix(
			o.Kind,
			"backup.",
		) && o.Kind != "site.delete" || o.CompletedAt != 0 && time.Since(o.CompletedAt.Time()) > shownFor {
			continue
		}
		p := Progress{Kind: o.Kind, Done: o.Progress, Message: o.Message, Error: o.Error, Ended: o.CompletedAt != 0, At: o.CreatedAt}
		if o.Kind == "backup.restore" && o.Status == operation.Success {
			p.BackupID = undoes(o.Result)
		}
		list = append(list, p)
	}
	return list, nil
}

// undoes reads which backup a restore has taken first.
func undoes(result json.RawMessage) ID {
	var r struct {
		BackupID ID `json:"backupId"`
	}
	_ = json.Unmarshal(result, &r) // without one there is none
	return r.BackupID
}

// Possible says why there are no backups here; empty: there are.
func (s *Backups) Possible() string {
	if s.c.Repository != nil {
		return ""
	}
	return s.c.Why
}
