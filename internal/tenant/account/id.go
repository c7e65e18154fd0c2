package account

import "slipway/internal/platform/id"

// The ids of what this package owns.
type (
	UserID    = id.User
	OwnerID   = id.Owner
	KeyID     = id.Key
	SessionID = id.Session
)
