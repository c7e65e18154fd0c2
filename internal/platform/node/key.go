package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
)

// Secrets reads the installation's key at path, and makes one for an installation that has none. Where the secrets in the
// database are sealed with a key that is not there, it is an error, and nothing is made: what another key seals, the
// other nodes could not open.
func Secrets(ctx context.Context, d *db.DB, path string) (*seal.Sealer, error) {
	known, err := keyID(ctx, d)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); os.IsNotExist(err) && known != "" {
		return nil, fmt.Errorf("%s is missing: this installation has a key already, copy the file from another node or a backup", path)
	}
	s, err := seal.Load(path)
	if err != nil {
		return nil, err
	}
	if known == "" {
		if known, err = writeKeyID(ctx, d, s.Newest(), false); err != nil {
			return nil, err
		}
	}
	if !s.Has(known) {
		return nil, fmt.Errorf(
			"%s is not this installation's key: copy the file from another node or a backup (slipway node accept-key says that it is "+
				"lost for good)", path)
	}
	if known != s.Newest() { // it has got a newer one, and the old one too
		_, err = writeKeyID(ctx, d, s.Newest(), true)
	}
	return s, err
}

// AcceptKey makes the key in a data directory the installation's, also where another one is known. It returns the key's id.
func AcceptKey(ctx context.Context, d *db.DB, dir string) (id string, err error) {
	s, err := seal.Load(filepath.Join(dir, "secrets.key"))
	if err != nil {
		return "", err
	}
	return writeKeyID(ctx, d, s.Newest(), true)
}

func keyID(ctx context.Context, r db.Reader) (id string, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(MAX(key_id), '') FROM secrets_keys WHERE id = 1`).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("read id of the secrets key: %w", err)
	}
	return id, nil
}

// writeKeyID notes the key's id where none is known, or over the one that is, and returns which is known then: of two nodes
// that start first at once, one was quicker.
func writeKeyID(ctx context.Context, d *db.DB, id string, over bool) (known string, err error) {
	err = d.Write(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `
			INSERT INTO secrets_keys (id, key_id) VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET key_id = CASE WHEN $2 THEN excluded.key_id ELSE secrets_keys.key_id END
			RETURNING key_id`, id, over).Scan(&known)
	})
	if err != nil {
		return "", fmt.Errorf("note id of the secrets key: %w", err)
	}
	return known, nil
}
