package backup

import (
	"context"
	"encoding/json"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// WordPress knows what a WordPress has besides files and a database. Package wordpress
// stands on this one.
type WordPress interface {
	// Export returns what must be known of a site's WordPress to bring it back; nil: it is none.
	Export(ctx context.Context, id site.ID) (json.RawMessage, error)
	// ImportTx gives a site what of it belongs to what is restored in the same transaction.
	ImportTx(ctx context.Context, tx *db.Tx, s site.Site, e json.RawMessage, of Restored) error
	// AdoptTx begins to make databases that were another site's this one's own, and goes on with
	// the restore's operation, which ends with the result. It returns false where there is
	// nothing to do.
	AdoptTx(ctx context.Context, tx *db.Tx, s site.Site, from site.ID, o operation.ID, result map[string]any) (begun bool, err error)
}

// Programs are the programs of sites. Package launch, which stands on this one, says what they run.
type Programs interface {
	// Room returns how many bytes the storage of a site may hold; live is what it serves once
	// it is restored, nil where that doesn't change.
	Room(ctx context.Context, id site.ID, live *deployment.Live) (int64, error)
	// Renew ends a site's programs, which start with the next request: what they stand on
	// has been replaced.
	Renew(ctx context.Context, id site.ID) error
	// Quiet makes requests to a site wait until release is called, after those under way have ended, for which it waits so long.
	Quiet(id site.ID, drain time.Duration) (release func())
	// Trial makes a place in which what a backup holds runs once it is verified.
	Trial(ctx context.Context) (Trial, error)
}
