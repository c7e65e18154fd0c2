package account

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"slipway/internal/platform/db"
)

// use is the last time a key was used, and from where.
type use struct {
	at   db.Time
	addr netip.Addr
}

// note remembers a use until the next flush: one write per key and flush instead of one
// per request. Only keys that exist get here, so the map is bounded by their number.
func (a *Accounts) note(k KeyID, addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[k] = use{db.Now(), addr}
}

// writeUses writes what was noted. What cannot be written is kept for the next time,
// unless the key was used again meanwhile.
func (a *Accounts) writeUses(ctx context.Context) error {
	a.mu.Lock()
	batch := a.used
	a.used = map[KeyID]use{}
	a.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := a.db.Write(ctx, func(tx *db.Tx) error {
		for _, k := range slices.Sorted(maps.Keys(batch)) { // one order on every node: no deadlocks
			u := batch[k]
			if _, err := tx.Exec(ctx, `UPDATE api_keys SET used_at = $2, used_addr = $3 WHERE id = $1 AND used_at < $2`,
				k, u.at, u.addr.String()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		for k, u := range batch {
			if _, again := a.used[k]; !again {
				a.used[k] = u
			}
		}
		return fmt.Errorf("write last uses: %w", err)
	}
	return nil
}
