package wordpress

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Download says where the archive of an import is fetched from.
type Download struct {
	URL    string // https; it may hold a secret, as signed addresses do
	SHA256 string // of the archive, in hexadecimal. Optional.
}

// DownloadQueue is the queue of imports that fetch their archive: one for each user at a time,
// so that servers that send slowly hold up nobody else's operations.
const DownloadQueue = "import"

// Bounds of a download besides the site's storage.
const (
	maxAddress       = 2048
	maxRedirects     = 5
	downloadTime     = time.Hour
	downloadPatience = time.Minute // in which at least leastDownload must come
	leastDownload    = 1 << 20
)

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
		return operation.Operation{}, &fault.Error{
			Kind:    fault.Invalid,
			Message: "Invalid url",
			Details: fmt.Sprintf("url is the https address of an archive without a user name, at most %d characters", maxAddress),
			Code:    "invalid_import",
		}
	}
	d.SHA256 = strings.ToLower(d.SHA256)
	if sum, err := hex.DecodeString(d.SHA256); err != nil || len(sum) != sha256.Size && len(sum) != 0 {
		return operation.Operation{}, &fault.Error{
			Kind:     fault.Invalid,
			Message:  "Invalid sha256",
			Details:  "sha256 is the archive's SHA-256, 64 hexadecimal digits",
			Received: text.Clip(d.SHA256, 100),
			Code:     "invalid_import",
		}
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
		return &fault.Error{
			Kind:    fault.Conflict,
			Message: "The archive can't be imported",
			Details: "the server stopped each time while it was downloaded; nothing of the site was changed",
			Code:    "import_interrupted",
		}
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
	err = r.fetchTo(ctx, f, string(address), r.x.Import.SHA256, s.Run.StorageBytes(), func(read, size int64) {
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
	if err := os.Rename(f.Name(), to); err != nil { // from here on it is whole
		return fmt.Errorf("store import: %w", err)
	}
	r.step.Tries = 0 // of unpacking
	return r.to(ctx, r.step.At, 0, "Downloaded the archive")
}

func notDownloaded(why string) error {
	return &fault.Error{
		Kind:    fault.Conflict,
		Message: "The archive could not be downloaded",
		Details: why + "; nothing of the site was changed",
		Code:    "import_not_downloaded",
	}
}

var errSlowDownload = errors.New("the download is too slow")

// fetchTo writes what is at an address. told hears how much has come, and of how much where
// that is known.
func (w *WordPress) fetchTo(ctx context.Context, f io.Writer, address, sum string, most int64, told func(read, size int64)) error {
	job := ctx
	ctx, stop := context.WithTimeout(ctx, downloadTime)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(downloadPatience, func() { cancel(errSlowDownload) })
	defer patience.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return notDownloaded("its address can't be read")
	}
	failed := func(err error) error {
		if job.Err() != nil { // the service is stopping: it begins again
			return context.Cause(job)
		}
		return notDownloaded(downloadWords(ctx, err))
	}
	client := *w.c.Out
	client.Timeout, client.CheckRedirect = 0, onlySecure // it may take longer than other questions
	resp, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return notDownloaded(fmt.Sprintf("its server answered with status %d", resp.StatusCode))
	}
	large := &fault.Error{
		Kind:    fault.TooLarge,
		Message: "The archive is too large",
		Details: fmt.Sprintf("this site may store %d MiB; raise run.storageMiB", most>>20),
		Code:    "import_too_large",
	}
	if resp.ContentLength > most {
		return large
	}
	digest := sha256.New()
	var read, counted int64
	b := make([]byte, 256<<10)
	for {
		n, err := resp.Body.Read(b)
		if read += int64(n); read > most {
			return large
		}
		digest.Write(b[:n])
		if _, err := f.Write(b[:n]); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return diskFull()
			}
			return fmt.Errorf("store import: %w", err)
		}
		if read-counted >= leastDownload {
			counted = read
			patience.Reset(downloadPatience)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failed(err)
		}
		told(read, resp.ContentLength)
	}
	if have := hex.EncodeToString(digest.Sum(nil)); sum != "" && have != sum {
		return notDownloaded("its SHA-256 is " + have)
	}
	return nil
}

// onlySecure follows redirects to https addresses, as the hosts of files send them.
func onlySecure(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Scheme != "https":
		return errors.New("it is redirected to an address that is not https")
	case len(via) > maxRedirects:
		return errors.New("it is redirected too often")
	}
	r.Header.Del("Referer") // the first address may hold a secret
	return nil
}

// downloadWords says what went wrong, and nothing of what is behind the service.
func downloadWords(ctx context.Context, err error) string {
	var (
		unknown *net.DNSError
		cert    *x509.UnknownAuthorityError
		host    *x509.HostnameError
		invalid *x509.CertificateInvalidError
		where   *url.Error
	)
	switch {
	case errors.Is(context.Cause(ctx), errSlowDownload):
		return fmt.Sprintf("less than %d MiB came within a minute", leastDownload>>20)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "it took longer than an hour"
	case errors.As(err, &unknown):
		return "its host was not found"
	case errors.As(err, &cert), errors.As(err, &host), errors.As(err, &invalid):
		return "the certificate of its server is not valid"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended before the download was complete"
	case errors.As(err, &where) && strings.HasPrefix(where.Err.Error(), "it is redirected"):
		return where.Err.Error()
	}
	return "its server can't be reached"
}
