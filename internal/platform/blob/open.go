package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options holds what [Open] needs besides the address.
type Options struct {
	Cache     string // directory for copies of remote blobs, created if missing; not shared
	CacheSize int64  // limit of the copies in bytes. Optional: 0 means 2 GiB.
	Scratch   string // directory for blobs too large for memory. Optional: "" means the system's, or the store's own.
	Deletions Deletions
	Opaque    bool                // names aren't digests; the caller verifies the bytes. Optional.
	Log       *slog.Logger        // Optional.
	Getenv    func(string) string // Optional: nil means os.Getenv.
}

// Open opens the store at an address: a directory's path, optionally with file:// in front, or
// s3://BUCKET[/PREFIX]?endpoint=URL with the parameters of [ParseS3]. It doesn't contact the object store;
// [Store.Probe] does.
func Open(address string, o Options) (*Store, error) {
	b, dir, err := OpenBackend(address, o)
	if err != nil {
		return nil, err
	}
	scratch := o.Scratch
	if dir != "" {
		scratch = cmp.Or(scratch, filepath.Join(dir, tmp))
	}
	return New(Config{Backend: b, Scratch: scratch, Deletions: o.Deletions}), nil
}

// OpenBackend opens only the Backend at such an address, for objects whose names aren't digests. dir is the directory,
// or empty for a bucket.
func OpenBackend(address string, o Options) (b Backend, dir string, err error) {
	path, file := strings.CutPrefix(address, "file://")
	if file || !strings.Contains(address, "://") {
		if b, err = Dir(path); err != nil {
			return nil, "", fmt.Errorf("open blobs: %w", err)
		}
		return b, path, nil
	}
	s, err := ParseS3(address, o.Getenv)
	if err != nil {
		return nil, "", err
	}
	if b, err = newS3(s, o); err != nil {
		return nil, "", fmt.Errorf("open blobs: %w", err)
	}
	return b, "", nil
}

// S3 holds the location of a bucket and its credentials. It prints without secrets.
type S3 struct {
	Bucket    string
	Prefix    string // of every object's name; empty or ending in a slash
	Endpoint  string // host[:port]
	Plain     bool   // http instead of https
	Region    string
	PathStyle bool // the bucket is in the path instead of the host
	AccessKey string
	SecretKey string
	Token     string // session token. Optional.
}

// String returns the address without credentials.
func (s S3) String() string { return "s3://" + s.Bucket + "/" + s.Prefix + " at " + s.Endpoint }

// GoString returns String, so that %#v prints no secrets.
func (s S3) GoString() string { return s.String() }

// LogValue logs String.
func (s S3) LogValue() slog.Value { return slog.StringValue(s.String()) }

// ParseS3 parses s3://BUCKET[/PREFIX]?endpoint=…&region=…&path-style=…&access-key=…&secret-key=…&session-token=….
// Missing credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the region from
// AWS_REGION. Errors name parameters but never the address, which may contain a secret.
func ParseS3(address string, getenv func(string) string) (S3, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	u, err := url.Parse(address)
	if err != nil {
		return S3{}, errors.New("the address of the object store can't be read: it must look like s3://bucket?endpoint=https://host")
	}
	if u.Scheme != "s3" {
		return S3{}, errors.New("the address must be a directory, or begin with s3://")
	}
	if u.User != nil {
		return S3{}, errors.New(
			"the address holds credentials before the bucket: put them into the environment, or into the parameters access-key and secret-key",
		)
	}
	if u.Host == "" || strings.Contains(u.Host, ":") || u.Fragment != "" {
		return S3{}, errors.New("the address has no bucket: it must look like s3://bucket?endpoint=https://host")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return S3{}, errors.New("the parameters of the address can't be read")
	}
	for name, values := range q {
		if !slices.Contains([]string{"endpoint", "region", "path-style", "access-key", "secret-key", "session-token"}, name) {
			return S3{}, fmt.Errorf(
				"the address has a parameter %q that is not known: there are endpoint, region, path-style, access-key, secret-key and session-token",
				name,
			)
		}
		if len(values) > 1 {
			return S3{}, fmt.Errorf("the address has the parameter %s twice", name)
		}
	}
	s := S3{
		Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Region: cmp.Or(q.Get("region"), getenv("AWS_REGION"), "us-east-1"),
		AccessKey: q.Get("access-key"), SecretKey: q.Get("secret-key"), Token: q.Get("session-token"),
	}
	if s.Prefix != "" {
		s.Prefix += "/"
	}
	endpoint := cmp.Or(q.Get("endpoint"), "https://s3."+s.Region+".amazonaws.com")
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	e, err := url.Parse(endpoint)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil ||
		strings.Trim(e.Path, "/") != "" || e.RawQuery != "" {
		return S3{}, errors.New("endpoint must be an address such as https://s3.example.com or http://127.0.0.1:9000")
	}
	s.Endpoint, s.Plain = e.Host, e.Scheme == "http"
	switch style := q.Get("path-style"); style {
	case "":
		s.PathStyle = !strings.HasSuffix(e.Hostname(), ".amazonaws.com")
	case "true", "false":
		s.PathStyle = style == "true"
	default:
		return S3{}, errors.New("path-style must be true or false")
	}
	if (s.AccessKey == "") != (s.SecretKey == "") {
		return S3{}, errors.New("the address has one of access-key and secret-key: both are needed, or neither and the environment")
	}
	if s.AccessKey == "" {
		s.AccessKey, s.SecretKey, s.Token = getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SESSION_TOKEN")
	}
	if s.AccessKey == "" || s.SecretKey == "" {
		return S3{}, errors.New("no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return s, nil
}

// Probe checks whether the backend is usable and describes the problem if not. It changes nothing.
func (s *Store) Probe(ctx context.Context) error {
	_, err := s.backend.Stat(ctx, Sum(nil).String())
	for _, listErr := range s.backend.List(ctx) {
		return listErr // nil after the first name
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
