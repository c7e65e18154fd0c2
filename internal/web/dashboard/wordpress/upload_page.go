package wordpress

import (
	"context"
	"io"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/wordpress/wordpress"
)

// receiveArchive stores an import's archive during its upload. It first checks the typed site name, which precedes the
// file, so that a wrong one is refused before the upload.
func (d *Pages) receiveArchive(ctx context.Context, q *shell.Request, file io.Reader) (any, func(), error) {
	if err := d.ConfirmedHere(ctx, q, "nothing was imported"); err != nil {
		return nil, nil, err
	}
	i, drop, err := d.WordPress.Receive(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id"), file)
	if err != nil {
		return nil, nil, err
	}
	return i, drop, nil
}

// uploadArchive starts the import of the received archive.
func (d *Pages) uploadArchive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.ConfirmedHere(ctx, q, "nothing was imported"); err != nil {
		return shell.Answer{}, err
	}
	i, ok := q.Received.(wordpress.Import)
	if !ok {
		return shell.Answer{}, fault.New(fault.Invalid, "invalid_import", "No archive is selected", "choose a .tar.gz or .zip file")
	}
	return d.actOnWordPress(ctx, q, "wordpress.import", "Import started", func(tx *db.Tx, id site.ID) error {
		_, err := d.WordPress.ImportArchiveTx(ctx, tx, q.Caller.Owner, id, i)
		return err
	})
}
