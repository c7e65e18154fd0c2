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

// s3 is the Backend on a bucket: one object for each blob, its name the prefix and the
// blob's own. An object appears whole or not at all, because each is one PUT. What is read
// goes through a cache on the local disk, which goes on serving what it has while the
// object store is away.
type s3 struct {
	S3
	client *minio.Core
	cache  *cache
	stall  time.Duration // stallAfter, except in tests

	awayUntil atomic.Int64 // Unix milliseconds: no download is tried before
}

// Bounds of one request. The waits between retries are the client's: up to a second.
const (
	tries        = 4
	dialTimeout  = 5 * time.Second
	answerWithin = 15 * time.Second // from the end of a request to the head of its answer
	stallAfter   = 20 * time.Second // without a byte in either direction

	// After a download that failed because the store is away, others fail at once for this
	// long: visitors of what has no copy get their answer, and no queue of downloads builds up.
	awayFor = time.Second
)

// ErrUnavailable is the error of an object store that does not answer, or not in time.
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
	transport.DisableCompression = true // bytes as they are stored
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

// Put leaves an object alone that is young and holds the very bytes, as far as the entity
// tag tells (the MD5 of the content, where the store doesn't encrypt). Otherwise it writes.
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
		case !seekable || try == tries: // absent is no answer to a PUT: some gateways give it when they are busy
			return fmt.Errorf("%w: %s says of a new object that it is absent", ErrUnavailable, s.S3)
		}
		if _, err := rs.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// putOptions make one PUT of each object, with a checksum that the store compares.
var putOptions = minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true, DisableMultipart: true}

// there reports whether an object needs no Put, and leaves r at its beginning.
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

// Begin starts a bulk in which each Put is durable by itself.
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

// download writes an object's bytes to w.
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
				continue // not ours
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

// Distrust drops the copy.
func (s *s3) Distrust(name string) { s.cache.forget(name) }

func (s *s3) Close() {}

// words turns an answer of the object store into a sentence for the operator. Neither has
// a secret in it: credentials travel in headers, signed.
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

// watch returns a context that ends when alive has not been called for d.
func watch(ctx context.Context, d time.Duration) (watched context.Context, alive, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(d, func() { cancel(errStalled) })
	return watched, func() { timer.Reset(d) }, func() { timer.Stop(); cancel(nil) }
}

// living says that bytes come.
type living struct {
	r     io.Reader
	alive func()
}

func (l *living) Read(p []byte) (int, error) {
	l.alive()
	return l.r.Read(p)
}

var errLonger = errors.New("more bytes came than were announced")

// exact reads size bytes of r and withholds the last of them when there are more, or
// fewer: then nothing is stored.
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

// end is io.EOF if r has nothing more.
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

// Seek goes back for another try, where r can.
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
