package connection

import (
	"path/filepath"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
)

// Deleting an owner deletes the owner's connections and revokes their tokens, even if a token can't be decrypted. Other
// owners' connections stay.
func TestCloseOwner(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{DB: d, Seal: key})
	add := func(id ID, owner, token string) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO connections (id, owner_id, provider, host, login, token, error, error_at, created_at,
				updated_at, app_id) VALUES ($1, $2, 'github', 'github.com', 'octo', $3, '', 0, 1, 1, 'gap_1')`, id, owner, token)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	add("git_1", "own_a", key.Seal([]byte(`{"token": "secret"}`), purpose("git_1")))
	add("git_2", "own_a", "of a key that is lost")
	add("git_3", "own_b", key.Seal([]byte(`{"token": "secret"}`), purpose("git_3")))
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return s.CloseOwnerTx(t.Context(), tx, "own_a") }); err != nil {
		t.Fatal(err)
	}
	var left, others, revoked int
	if err := d.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM connections WHERE owner_id = 'own_a'),
		(SELECT count(*) FROM connections WHERE owner_id = 'own_b'), (SELECT count(*) FROM jobs WHERE kind = 'connection.revoke')`).
		Scan(&left, &others, &revoked); err != nil || left != 0 || others != 1 || revoked != 1 {
		t.Errorf("%d connections are left, %d of others, %d tokens are revoked, %v", left, others, revoked, err)
	}
}
