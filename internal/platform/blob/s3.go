package blob

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3 is the Backend on a bucket, with one object per blob, named by the prefix and the blob's name. Each object is one
// PUT, so it appears completely or not at all. Reads go through a cache on the local disk, which keeps serving its
// copies while the object store is down.
type s3 struct {
	S3
	client *minio.Core
	cache  *cache
	stall  time.Duration // stallAfter, except in tests

	awayUntil atomic.Int64 // Unix milliseconds; no downloads before
}

// Limits of one request. The client waits up to a second between retries.
const (
	tries        = 4
	dialTimeout  = 5 * time.Second
	answerWithin = 15 * time.Second // from the end of the request to the response header
	stallAfter   = 20 * time.Second // without a byte in either direction

	// For this long after a download failed because the store is down, other downloads fail at once: visitors get an
	// error instead of waiting, and downloads don't pile up.
	awayFor = time.Second
)

// ErrUnavailable is returned if the object store doesn't answer in time.
var ErrUnavailable = errors.New("the object store doesn't answer")

func newS3(s S3, o Options) (Backend, error) {
	lookup := minio.BucketLookupDNS
	if s.PathStyle {
		lookup = minio.BucketLookupPath
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	transport.TLSHandshakeTimeout = dialTimeout
	transport.ResponseHeaderTimeout = answerWithin
	transport.MaxIdleConnsPerHost = 2 * workers
	transport.DisableCompression = true // keep the bytes as stored
	client, err := minio.NewCore(s.Endpoint, &minio.Options{
		Creds:  credentials.NewStaticV4(s.AccessKey, s.SecretKey, s.Token),
		Secure: !s.Plain, Region: s.Region, BucketLookup: lookup, Transport: again{transport}, MaxRetries: tries,
	})
	if err != nil {
		return nil, err
	}
	c, err := newCache(o.Cache, cmp.Or(o.CacheSize, 2<<30), o.Opaque, cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &s3{S3: s, client: client, cache: c, stall: stallAfter}, nil
}

func (s *s3) key(name string) (string, error) {
	if _, err := ParseDigest(name); err != nil {
		return "", err
	}
	return s.Prefix + name, nil
}

// Put leaves a recent object alone if its entity tag says that it has the same bytes (the MD5 of the content, unless
// the store encrypts). Otherwise it writes the object.
func (s *s3) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	rs, seekable := r.(io.ReadSeeker)
	if seekable {
		if there, err := s.there(ctx, key, rs, size); err != nil || there {
			return err
		}
	}
	ctx, alive, stop := watch(ctx, s.stall)
	defer stop()
	for try := 1; ; try++ {
		_, err = s.client.Client.PutObject(ctx, s.Bucket, key, &exact{r: r, size: size, alive: alive}, size, putOptions)
		err = s.words(ctx, err)
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case !seekable || try == tries: // some busy gateways answer a PUT with "not found"; retry
			return fmt.Errorf("%w: %s says of a new object that it is absent", ErrUnavailable, s.S3)
		}
		if _, err := rs.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// putOptions makes each object one PUT, with a checksum that the store verifies.
var putOptions = minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true, DisableMultipart: true}

// there reports whether an object needs no Put, and rewinds r.
func (s *s3) there(ctx context.Context, key string, r io.ReadSeeker, size int64) (bool, error) {
	info, err := s.client.StatObject(ctx, s.Bucket, key, minio.StatObjectOptions{})
	if err = s.words(ctx, err); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if info.Size != size || time.Since(info.LastModified) > RefreshAfter {
		return false, nil
	}
	h := md5.New()
	if _, err := io.Copy(h, &contextReader{ctx, r}); err != nil {
		return false, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	return strings.Trim(info.ETag, `"`) == hex.EncodeToString(h.Sum(nil)), nil
}

// Begin returns a Bulk in which each Put is durable by itself.
func (s *s3) Begin() Bulk { return direct{s} }

type direct struct{ *s3 }

func (direct) Flush() error { return nil }
func (direct) Drop()        {}

func (s *s3) Get(ctx context.Context, name string) (io.ReadSeekCloser, int64, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, 0, err
	}
	return s.cache.open(ctx, name, func(ctx context.Context, w io.Writer) error {
		if time.Now().UnixMilli() < s.awayUntil.Load() {
			return fmt.Errorf("%w: it didn't a moment ago (%s)", ErrUnavailable, s.S3)
		}
		err := s.download(ctx, key, w)
		if errors.Is(err, ErrUnavailable) && !errors.Is(err, io.ErrUnexpectedEOF) {
			s.awayUntil.Store(time.Now().Add(awayFor).UnixMilli())
		}
		return err
	})
}

func (s *s3) download(ctx context.Context, key string, w io.Writer) error {
	ctx, alive, stop := watch(ctx, s.stall)
	defer stop()
	body, info, _, err := s.client.GetObject(ctx, s.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return s.words(ctx, err)
	}
	defer body.Close()
	n, err := io.Copy(w, &living{body, alive})
	if err == nil && info.Size >= 0 && n != info.Size {
		err = io.ErrUnexpectedEOF
	}
	return s.words(ctx, err)
}

func (s *s3) Stat(ctx context.Context, name string) (Entry, error) {
	key, err := s.key(name)
	if err != nil {
		return Entry{}, err
	}
	info, err := s.client.StatObject(ctx, s.Bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return Entry{}, s.words(ctx, err)
	}
	return Entry{name, info.Size, info.LastModified}, nil
}

func (s *s3) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	s.cache.forget(name)
	err = s.words(ctx, s.client.RemoveObject(ctx, s.Bucket, key, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *s3) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for info := range s.client.ListObjectsIter(ctx, s.Bucket, minio.ListObjectsOptions{Prefix: s.Prefix, Recursive: true}) {
			if info.Err != nil {
				yield(Entry{}, s.words(ctx, info.Err))
				return
			}
			name := strings.TrimPrefix(info.Key, s.Prefix)
			if _, err := ParseDigest(name); err != nil {
				continue // not a blob
			}
			if !yield(Entry{name, info.Size, info.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}

// Distrust drops the cached copy.
func (s *s3) Distrust(name string) { s.cache.forget(name) }

func (s *s3) Close() {}

// words turns an error of the object store into a message for the operator. Errors contain no secrets: credentials are
// sent in signed headers.
func (s *s3) words(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%w: no byte of %s for %s", ErrUnavailable, s.S3, s.stall)
	}
	if e := ctx.Err(); e != nil {
		return e
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, errLonger) {
		return err
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) || r.Code == "" && r.StatusCode == 0 {
		var n net.Error
		var op *net.OpError
		if errors.As(err, &n) || errors.As(err, &op) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("%w (%s): %w", ErrUnavailable, s.S3, err)
		}
		return fmt.Errorf("%s: %w", s.S3, err)
	}
	switch r.Code {
	case "NoSuchKey":
		return fs.ErrNotExist
	case "NoSuchBucket":
		return fmt.Errorf("the object store at %s has no bucket %s", s.Endpoint, s.Bucket)
	case "AccessDenied",
		"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccountProblem",
		"AllAccessDisabled":
		return fmt.Errorf("the object store refuses the credentials for %s (%s)", s.S3, r.Code)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("the object store at %s refuses the time of this machine's clock", s.Endpoint)
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientStorage":
		return fmt.Errorf("%w: %s answers %s", syscall.ENOSPC, s.S3, r.Code)
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "TooManyRequests", "RequestLimitExceeded", "ServiceUnavailable", "InternalError":
		return fmt.Errorf("%w: %s answers %s", ErrUnavailable, s.S3, r.Code)
	}
	switch {
	case r.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s answers with status %d", syscall.ENOSPC, s.S3, r.StatusCode)
	case r.StatusCode == http.StatusNotFound:
		return fs.ErrNotExist
	case r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the object store refuses the credentials for %s", s.S3)
	case r.StatusCode >= 500, r.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s answers with status %d", ErrUnavailable, s.S3, r.StatusCode)
	}
	return fmt.Errorf("the object store answers %s for %s", cmp.Or(r.Code, http.StatusText(r.StatusCode)), s.S3)
}

var errStalled = errors.New("stalled")

// watch returns a context that ends if alive isn't called for d.
func watch(ctx context.Context, d time.Duration) (watched context.Context, alive, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { cancel(errStalled) })
	return watched, func() { timer.Reset(d) }, func() { timer.Stop(); cancel(nil) }
}

// living calls alive for each read.
type living struct {
	r     io.Reader
	alive func()
}

func (l *living) Read(p []byte) (int, error) {
	l.alive()
	return l.r.Read(p)
}

var errLonger = errors.New("more bytes came than were announced")

// exact reads size bytes of r. If there are more or fewer, it returns an error instead of the last byte, so that
// nothing is stored.
type exact struct {
	r     io.Reader
	size  int64
	at    int64
	alive func()
}

func (e *exact) Read(p []byte) (int, error) {
	e.alive()
	if e.at == e.size {
		return 0, e.end()
	}
	if rest := e.size - e.at; int64(len(p)) > rest {
		p = p[:rest]
	}
	n, err := e.r.Read(p)
	if e.at+int64(n) < e.size {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		e.at += int64(n)
		return n, err
	}
	if err != nil && err != io.EOF {
		return 0, err
	}
	if err := e.end(); err != io.EOF {
		return 0, err
	}
	e.at += int64(n)
	return n, io.EOF
}

// end returns io.EOF if r has no more bytes.
func (e *exact) end() error {
	var more [1]byte
	n, err := io.ReadFull(e.r, more[:])
	switch {
	case n > 0:
		return errLonger
	case err == io.EOF:
		return io.EOF
	}
	return err
}

// Seek rewinds for another try, if r supports it.
func (e *exact) Seek(offset int64, whence int) (int64, error) {
	s, ok := e.r.(io.Seeker)
	if !ok || whence == io.SeekEnd {
		return 0, errors.New("can't seek")
	}
	at, err := s.Seek(offset, whence)
	if err == nil {
		e.at = at
	}
	return at, err
}
