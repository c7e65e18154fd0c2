package archive

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
	"strings"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
)

func notDownloaded(why string) error {
	return fault.New(fault.Conflict, "import_not_downloaded", "The archive could not be downloaded",
		why+"; nothing of the site was changed")
}

// Bounds of a download besides the site's storage.
const (
	maxRedirects     = 5
	downloadTime     = time.Hour
	downloadPatience = time.Minute // in which at least leastDownload must come
	leastDownload    = 1 << 20
)

var errSlowDownload = errors.New("the download is too slow")

// fetchTo writes what is at an address. told hears how much has come, and of how much where
// that is known.
func Fetch(ctx context.Context, out *http.Client, f io.Writer, address, sum string, most int64, told func(read, size int64)) error {
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
	client := *out
	client.Timeout, client.CheckRedirect = 0, onlySecure // it may take longer than other questions
	resp, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return notDownloaded(fmt.Sprintf("its server answered with status %d", resp.StatusCode))
	}
	large := fault.New(fault.TooLarge, "import_too_large", "The archive is too large",
		fmt.Sprintf("this site may store %d MiB; raise run.storageMiB", most>>20))
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
			if disk.Full(err) {
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
