package wordpress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/wordpress/archive"
)

// Download says where the archive of an import is fetched from.
type Download struct {
	URL    string // https; it may hold a secret, as signed addresses do
	SHA256 string // of the archive, in hexadecimal. Optional.
}

// DownloadQueue is the queue of imports that fetch their archive: one for each user at a time,
// so that servers that send slowly hold up nobody else's operations.
const DownloadQueue = "import"

const maxAddress = 2048

// ImportFromTx begins to put another WordPress in the place of the owner's, whose archive the
// job fetches.
func (w *WordPress) ImportFromTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	id site.ID,
	d Download,
) (operation.Operation, error) {
	if _, err := w.c.Sites.GetTx(ctx, tx, owner, id); err != nil {
		return operation.Operation{}, err
	}
	u, err := url.Parse(d.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || len(d.URL) > maxAddress {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_import", "Invalid url",
			fmt.Sprintf("url is the https address of an archive without a user name, at most %d characters", maxAddress))
	}
	d.SHA256 = strings.ToLower(d.SHA256)
	if sum, err := hex.DecodeString(d.SHA256); err != nil || len(sum) != sha256.Size && len(sum) != 0 {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_import", "Invalid sha256",
			"sha256 is the archive's SHA-256, 64 hexadecimal digits").Got(text.Clip(d.SHA256, 100))
	}
	return w.ImportArchiveTx(ctx, tx, owner, id, Import{From: w.c.Seal.Seal([]byte(d.URL), downloadPurpose(id)), SHA256: d.SHA256})
}

func downloadPurpose(id site.ID) string { return "site/" + string(id) + "/wordpress-import" }

// archive is the file that an import's archive lies in, or is fetched into.
func (w *WordPress) archive(x Work) string {
	name := filepath.Base(x.Import.File)
	if x.Import.From != "" {
		name = "fetched-" + string(x.Operation)
	}
	if x.Import.Node != "" {
		return filepath.Join(w.ownImports(), name)
	}
	return filepath.Join(w.importDir(), name)
}

// download fetches the archive of an import, where that is not here yet.
func (r *run) download(ctx context.Context) error {
	to := r.archive(r.x)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	address, err := r.c.Seal.Open(r.x.Import.From, downloadPurpose(s.ID))
	if err != nil {
		return fmt.Errorf("read address of import: %w", err)
	}
	if r.step.Tries++; r.step.Tries > maxImportTries {
		return fault.New(fault.Conflict, "import_interrupted", "The archive can't be imported",
			"the server stopped each time while it was downloaded; nothing of the site was changed")
	}
	if err := r.to(ctx, r.step.At, -1, "Downloading the archive"); err != nil {
		return err
	}
	if err := os.MkdirAll(r.importDir(), 0o700); err != nil {
		return fmt.Errorf("store import: %w", err)
	}
	r.sweepImports()
	f, err := os.OpenFile(to+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("store import: %w", err)
	}
	defer os.Remove(f.Name()) // once it is renamed there is none
	defer f.Close()
	last := time.Now()
	err = archive.Fetch(ctx, r.c.Out, f, string(address), r.x.Import.SHA256, s.Run.StorageBytes(), func(read, size int64) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		text := fmt.Sprintf("Downloading the archive: %d MiB", read>>20)
		if size > 0 {
			text += fmt.Sprintf(" of %d MiB", size>>20)
		}
		_ = r.to(ctx, r.step.At, -1, text)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("store import: %w", err)
	}
	if err := disk.Rename(f.Name(), to); err != nil { // from here on it is whole
		return fmt.Errorf("store import: %w", err)
	}
	r.step.Tries = 0 // of unpacking
	return r.to(ctx, r.step.At, 0, "Downloaded the archive")
}
