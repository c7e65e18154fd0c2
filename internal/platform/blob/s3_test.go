package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/disk"
)

func store(t *testing.T, address string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Cache: filepath.Join(t.TempDir(), "cache")}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A full object store returns the same error as a full disk.
func TestFullObjectStore(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInsufficientStorage) },
		"code": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, "<Error><Code>QuotaExceeded</Code></Error>")
		},
	} {
		st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPut {
				answer(w)
				return
			}
			next.ServeHTTP(w, r)
		}))
		if _, _, err := st.Put(t.Context(), strings.NewReader(name)); !disk.Full(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// faulty puts a proxy before the object store. fault responds itself, or passes the request on to next.
func faulty(t *testing.T, s *s3test.Server, address string, fault func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.Addr})
		r.Out.Host = r.In.Host // the signature covers it
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fault(w, r, proxy) }))
	t.Cleanup(front.Close)
	u, _ := url.Parse(address)
	return s.Address(u.Host, strings.TrimPrefix(front.URL, "http://"))
}

// Put writes an old object again, which renews it, but not a new object with the same content.
func TestS3Refresh(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	var puts atomic.Int32
	st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut {
			puts.Add(1)
		}
		next.ServeHTTP(w, r)
	}))
	body := strings.Repeat("refresh ", 100)
	put := func() Digest {
		d, _, err := st.Put(t.Context(), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := put()
	put()
	if n := puts.Load(); n != 1 {
		t.Errorf("%d uploads, want 1: it was there and young", n)
	}
	old := time.Now().Add(-time.Hour)
	file := filepath.Join(s.Path(address), d.String())
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	put()
	if e, err := st.backend.Stat(t.Context(), d.String()); err != nil || time.Since(e.Time) > time.Minute || puts.Load() != 2 {
		t.Errorf("after %d uploads: %v, %v; want it young", puts.Load(), e, err)
	}
	// A damaged object of the same length is detected by its ETag and repaired.
	st.backend.(*s3).client.Client.PutObject(t.Context(), st.backend.(*s3).Bucket, d.String(),
		strings.NewReader(strings.ToUpper(body)), int64(len(body)), putOptions)
	put()
	if got, err := store(t, address).ReadAll(t.Context(), d, 1<<20); err != nil || string(got) != body {
		t.Errorf("after the damage: %d bytes, %v", len(got), err)
	}
}

// A truncated or changed download is repeated. It is never returned as complete and never stays in the cache.
func TestS3DamageOnTheWay(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	body := bytes.Repeat([]byte("damage "), 50_000)
	d, _, err := store(t, address).Put(t.Context(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]func(w http.ResponseWriter, whole []byte){
		"cut": func(w http.ResponseWriter, whole []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
			w.Write(whole[:len(whole)/2])
			panic(http.ErrAbortHandler)
		},
		"shorter": func(w http.ResponseWriter, whole []byte) { w.Write(whole[:len(whole)/2]) },
		"changed": func(w http.ResponseWriter, whole []byte) {
			whole = bytes.Clone(whole)
			whole[1000] ^= 1
			w.Write(whole)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bad atomic.Int32
			bad.Store(2)
			through := faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != http.MethodGet || bad.Add(-1) < 0 {
					next.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				for _, h := range []string{"Etag", "Last-Modified"} {
					w.Header()[h] = rec.Header()[h]
				}
				fault(w, rec.Body.Bytes())
			})
			st := store(t, through)
			if got, err := st.ReadAll(t.Context(), d, 1<<30); err != nil || !bytes.Equal(got, body) {
				t.Errorf("after two bad answers: %d bytes, %v", len(got), err)
			}
			bad.Store(1 << 30)
			st = store(t, through)
			if got, err := st.ReadAll(t.Context(), d, 1<<30); err == nil {
				t.Errorf("took %d bytes of bad answers", len(got))
			}
			if n := st.backend.(*s3).cache.order.Len(); n != 0 {
				t.Errorf("%d copies of bad answers", n)
			}
		})
	}
}

// Requests that the store throttles are retried. If it still throttles, refuses or is down, the error describes that
// without secrets. Cached copies are served meanwhile.
func TestS3Trouble(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	first := store(t, address)
	copied, _, err := first.Put(t.Context(), strings.NewReader("copied"))
	if err != nil {
		t.Fatal(err)
	}
	remote, _, err := first.Put(t.Context(), strings.NewReader("remote"))
	if err != nil {
		t.Fatal(err)
	}
	var mode atomic.Value
	mode.Store("")
	var left atomic.Int32
	st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch m := mode.Load(); {
		case m == "throttle", m == "briefly" && left.Add(-1) >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>`)
		case m == "refuse":
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w,
				`<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>secret-key not-a-secret-but-long-enough</Message></Error>`)
		case m == "hang up":
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	}))
	read := func(d Digest) (string, error) {
		b, err := st.ReadAll(t.Context(), d, 100)
		return string(b), err
	}
	if got, err := read(copied); err != nil || got != "copied" {
		t.Fatal(got, err)
	}
	left.Store(2)
	mode.Store("briefly")
	if got, err := read(remote); err != nil || got != "remote" {
		t.Errorf("after a short throttling: %q, %v", got, err)
	}
	st.backend.Distrust(remote.String())
	again := func() { st.backend.(*s3).awayUntil.Store(0) } // as if a second had passed
	for m, want := range map[string]string{"throttle": "SlowDown", "refuse": "refuses the credentials", "hang up": "doesn't answer"} {
		again()
		mode.Store(m)
		_, err := read(remote)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fs.ErrNotExist) ||
			strings.Contains(err.Error(), s3test.SecretKey) {
			t.Errorf("%s: %v, want words with %q", m, err, want)
		}
		if _, _, err := st.Put(t.Context(), strings.NewReader("new "+m)); err == nil {
			t.Errorf("%s: Put says that it is stored", m)
		}
		if got, err := read(copied); err != nil || got != "copied" {
			t.Errorf("%s: the copy: %q, %v", m, got, err)
		}
	}
	// For a moment after a failure, other requests fail without waiting for the store.
	mode.Store("hang up")
	again()
	read(remote)
	mode.Store("")
	if _, err := read(remote); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a moment after it was away: %v, want ErrUnavailable at once", err)
	}
	again()
	if got, err := read(remote); err != nil || got != "remote" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	for _, m := range []string{"throttle", "refuse", "hang up"} {
		if _, _, err := first.Open(t.Context(), Sum([]byte("new "+m))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was stored: %v", m, err)
		}
	}
}

// A request times out if the store stops responding, before or during its response.
func TestS3Stalls(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	d, _, err := store(t, address).Put(t.Context(), strings.NewReader("stalls"))
	if err != nil {
		t.Fatal(err)
	}
	for name, silent := range map[string]bool{"silent": true, "half": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			defer close(end)
			st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				io.Copy(io.Discard, r.Body)
				if !silent && r.Method == http.MethodGet {
					w.Header().Set("Content-Length", "6")
					w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
					io.WriteString(w, "sta")
					w.(http.Flusher).Flush()
				}
				select {
				case <-end:
				case <-r.Context().Done():
				}
			}))
			st.backend.(*s3).stall = 100 * time.Millisecond
			if _, err := st.ReadAll(t.Context(), d, 100); !errors.Is(err, ErrUnavailable) {
				t.Errorf("reading: %v, want ErrUnavailable", err)
			}
			if silent {
				if err := st.backend.Put(t.Context(), d.String(), io.MultiReader(strings.NewReader("stalls")),
					6); !errors.Is(err, ErrUnavailable) {
					t.Errorf("putting: %v, want ErrUnavailable", err)
				}
			}
		})
	}
}

// An interrupted upload leaves no object, and the next one is complete.
func TestS3HalfUpload(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	body := bytes.Repeat([]byte("half "), 200_000)
	var broken atomic.Bool
	broken.Store(true)
	st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut && broken.Load() {
			r.Body = io.NopCloser(io.LimitReader(r.Body, 300_000))
		}
		next.ServeHTTP(w, r)
	}))
	if _, _, err := st.Put(t.Context(), bytes.NewReader(body)); err == nil {
		t.Error("an incomplete upload was stored")
	}
	if names := s.Objects(t, address); len(names) > 0 {
		t.Errorf("half an upload left %v", names)
	}
	broken.Store(false)
	d, _, err := st.Put(t.Context(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := st.ReadAll(t.Context(), d, 1<<30); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The cache stays within its limit, survives a restart and detects damage.
func TestCache(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	dir := t.TempDir()
	small := func(o *Options) { o.Cache, o.CacheSize = dir, 100_000 }
	st := store(t, address, small)
	var all []Digest
	for i := range 20 {
		d, _, err := st.Put(t.Context(), bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 20_000)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	check := func() {
		t.Helper()
		for i, d := range all {
			if got, err := st.ReadAll(t.Context(), d, 1<<20); err != nil || len(got) != 20_000 || got[5] != byte(i) {
				t.Errorf("blob %d: %d bytes, %v", i, len(got), err)
			}
		}
		var size int64
		filepath.Walk(dir, func(_ string, info fs.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
			return nil
		})
		if size > 100_000 || size < 80_000 {
			t.Errorf("the copies take %d bytes of 100,000", size)
		}
	}
	check()
	if err := os.WriteFile(filepath.Join(dir, tmp, "half"), []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	st = store(t, address, small)
	if n := st.backend.(*s3).cache.order.Len(); n != 5 {
		t.Errorf("%d copies after the restart, want 5", n)
	}
	for _, change := range []func(string) error{
		func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte{7}, 20_000), 0o600) },
		func(p string) error { return os.Truncate(p, 10) },
		os.Remove,
	} {
		for d := range st.backend.(*s3).cache.items {
			if err := change(filepath.Join(dir, d)); err != nil {
				t.Fatal(err)
			}
		}
		check()
	}
	// Reading a damaged file ends in ErrCorrupt, and the next read is correct.
	last := all[len(all)-1]
	if err := os.WriteFile(filepath.Join(dir, last.String()), bytes.Repeat([]byte{7}, 20_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{ErrCorrupt, nil} {
		f, _, err := st.Open(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if !errors.Is(err, want) {
			t.Errorf("streaming: %v, want %v", err, want)
		}
	}
}

// Concurrent readers of a blob share one download. A reader that cancels doesn't stop it for the others.
func TestCacheLoadsOnce(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	address := s.Bucket(t)
	d, _, err := store(t, address).Put(t.Context(), strings.NewReader("once"))
	if err != nil {
		t.Fatal(err)
	}
	var gets atomic.Int32
	asked, goOn := make(chan struct{}), make(chan struct{})
	st := store(t, faulty(t, s, address, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if gets.Add(1) == 1 {
			close(asked)
		}
		<-goOn
		next.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := st.ReadAll(ctx, d, 10); gone <- err }()
	<-asked
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := st.ReadAll(t.Context(), d, 10); err != nil || string(got) != "once" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the canceled Fetch returned %v", err)
	}
	close(goOn)
	wg.Wait()
	if n := gets.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

func TestParseS3(t *testing.T) {
	t.Parallel()
	env := func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "envkey", "AWS_SECRET_ACCESS_KEY": "envsecret", "AWS_REGION": "eu-central-1"}[name]
	}
	none := func(string) string { return "" }
	for address, want := range map[string]S3{
		"s3://b": {
			Bucket:    "b",
			Endpoint:  "s3.eu-central-1.amazonaws.com",
			Region:    "eu-central-1",
			AccessKey: "envkey",
			SecretKey: "envsecret",
		},
		"s3://b/a/b/?endpoint=https://s3.test": {
			Bucket:    "b",
			Prefix:    "a/b/",
			Endpoint:  "s3.test",
			Region:    "eu-central-1",
			PathStyle: true,
			AccessKey: "envkey",
			SecretKey: "envsecret",
		},
		"s3://b?endpoint=http://127.0.0.1:9000&region=x&access-key=k&secret-key=s%2B&path-style=false&session-token=t": {
			Bucket:    "b",
			Endpoint:  "127.0.0.1:9000",
			Plain:     true,
			Region:    "x",
			AccessKey: "k",
			SecretKey: "s+",
			Token:     "t",
		},
	} {
		if got, err := ParseS3(address, env); err != nil || got != want {
			t.Errorf("%s: %+v %q, %v", address, got, got.SecretKey, err)
		}
	}
	for address, want := range map[string]string{
		"s3://":                                 "has no bucket",
		"s3://b:9000":                           "has no bucket",
		"s3://key:verysecret@b":                 "holds credentials",
		"s3://b?access-key=k":                   "one of access-key",
		"s3://b?secret-key=verysecret":          "one of access-key",
		"s3://b?secret_key=verysecret":          `parameter "secret_key"`,
		"s3://b?endpoint=verysecret://x":        "endpoint must be",
		"s3://b?endpoint=http://u:verysecret@x": "endpoint must be",
		"s3://b?access-key=k&secret-key=verysecret&path-style=maybe": "path-style must be",
		"s3://b?region=x&region=y":                                   "region twice",
		"s3://b%zz?secret-key=verysecret":                            "can't be read",
		"s3://b?secret-key=%zzverysecret":                            "can't be read",
		"s3://b":                                                     "no credentials",
		"gs://b?secret-key=verysecret":                               "must be a directory",
	} {
		_, err := ParseS3(address, none)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%s: %v, want words with %q", address, err, want)
		}
	}
	s := S3{Bucket: "b", Endpoint: "e", AccessKey: "verykey", SecretKey: "verysecret", Token: "verytoken"}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s", s, s, s, s), fmt.Sprint(&s), s.LogValue().String()} {
		if strings.Contains(text, "very") {
			t.Errorf("printed with its secrets: %s", text)
		}
	}
}
