package blob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/blob/blobtest"
	"slipway/internal/platform/blob/s3test"
)

func TestDir(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Backend {
		b, err := blob.Dir(filepath.Join(t.TempDir(), "blobs"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

func TestS3(t *testing.T) {
	server := s3test.New(t)
	blobtest.Run(t, func(t *testing.T) blob.Backend {
		s, err := blob.Open(server.Bucket(t), blob.Options{Cache: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s.Backend()
	})
}

// With a prefix, other objects in the bucket are never listed or touched.
func TestS3Prefix(t *testing.T) {
	server := s3test.New(t)
	address := server.Bucket(t)
	if err := os.WriteFile(filepath.Join(server.Path(address), "theirs.txt"), []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	blobtest.Run(t, func(t *testing.T) blob.Backend {
		s, err := blob.Open(strings.Replace(address, "?", "/sites/"+strings.ReplaceAll(t.Name(), " ", "-")+"?",
			1), blob.Options{Cache: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s.Backend()
	})
}

func open(t testing.TB) (*blob.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blobs")
	s, err := blob.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

func file(path string, d blob.Digest) string {
	return filepath.Join(path, d.String()[:2], d.String())
}

func TestPutOpen(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	for _, size := range []int{0, 1, 1 << 20, 1<<20 + 1, 5 << 20} {
		want := make([]byte, size)
		rand.Read(want)
		for name, r := range map[string]io.Reader{
			"stream":  iotest.HalfReader(bytes.NewReader(want)),
			"seeker":  bytes.NewReader(want),
			"by byte": iotest.OneByteReader(bytes.NewReader(want[:min(size, 100)])),
		} {
			want := want
			if name == "by byte" {
				want = want[:min(size, 100)]
			}
			d, n, err := s.Put(t.Context(), r)
			if err != nil || n != int64(len(want)) || d != blob.Sum(want) {
				t.Fatalf("%s: Put = %v, %d, %v", name, d, n, err)
			}
			got, err := s.ReadAll(t.Context(), d, 1<<30)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: read %d of %d bytes, %v", name, len(got), len(want), err)
			}
		}
	}
	left, err := os.ReadDir(filepath.Join(path, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
	if _, _, err := s.Open(t.Context(), blob.Digest{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of an absent blob: %v", err)
	}
}

// A blob that changed on disk is never returned completely without an error.
func TestCorruption(t *testing.T) {
	t.Parallel()
	whole := bytes.Repeat([]byte("0123456789"), 10_000)
	for name, damage := range map[string]func(string) error{
		"truncated":   func(p string) error { return os.Truncate(p, 99_999) },
		"emptied":     func(p string) error { return os.Truncate(p, 0) },
		"bit flipped": func(p string) error { return os.WriteFile(p, append([]byte("1"), whole[1:]...), 0o600) },
		"appended":    func(p string) error { return os.WriteFile(p, append(bytes.Clone(whole), 'x'), 0o600) },
		"zeroed":      func(p string) error { return os.WriteFile(p, make([]byte, len(whole)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := open(t)
			d, _, err := s.Put(t.Context(), bytes.NewReader(whole))
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(file(path, d)); err != nil {
				t.Fatal(err)
			}
			f, size, err := s.Open(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := io.ReadAll(f)
			if !errors.Is(err, blob.ErrCorrupt) {
				t.Errorf("read %d of %d bytes: %v, want ErrCorrupt", len(got), size, err)
			}
			if size > 0 && int64(len(got)) >= size {
				t.Errorf("all %d bytes were handed out", size)
			}
			if _, err := s.ReadAll(t.Context(), d, 1<<20); !errors.Is(err, blob.ErrCorrupt) {
				t.Errorf("ReadAll: %v, want ErrCorrupt", err)
			}
			// Putting the same bytes again repairs the blob.
			if _, _, err := s.Put(t.Context(), bytes.NewReader(whole)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.ReadAll(t.Context(), d, 1<<20); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("after putting again: %v", err)
			}
		})
	}
}

// Reading after the seeks of http.ServeContent (to the end and back) still detects damage.
func TestSeekKeepsVerifying(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	d, _, err := s.Put(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file(path, d), []byte("hullo"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, _, err := s.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Seek(0, io.SeekEnd); n != 5 || err != nil {
		t.Fatalf("Seek to the end: %d, %v", n, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("read %q, %v", got, err)
	}
}

// changing is a file that is modified while it is being stored.
type changing struct {
	*bytes.Reader
	passes int
}

func (c *changing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.passes > 1 && n > 0 {
		p[0] ^= 1
	}
	return n, err
}

func (c *changing) Seek(o int64, w int) (int64, error) {
	if o == 0 && w == io.SeekStart {
		c.passes++
	}
	return c.Reader.Seek(o, w)
}

func TestPutOfChangingFile(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := &changing{Reader: bytes.NewReader([]byte("content")), passes: 1}
	if _, _, err := s.Put(t.Context(), c); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("Put = %v, want ErrCorrupt", err)
	}
	if _, _, err := s.Open(t.Context(), blob.Sum([]byte("content"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stored all the same: %v", err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	put := func(text string, age time.Duration) blob.Digest {
		d, _, err := s.Put(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(file(path, d), then, then); err != nil {
			t.Fatal(err)
		}
		return d
	}
	kept, young, old := put("kept", 48*time.Hour), put("young", time.Hour), put("old one", 48*time.Hour)
	again := put("again", 48*time.Hour)
	if _, _, err := s.Put(t.Context(), strings.NewReader("again")); err != nil {
		t.Fatal(err)
	}
	batched := put("batched", 48*time.Hour)
	b := s.Batch(t.Context())
	if _, _, err := b.Put(strings.NewReader("batched")); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	swept, err := s.Sweep(t.Context(), func(d blob.Digest) bool { return d == kept }, 24*time.Hour)
	if swept.Files != 1 || swept.Bytes != 7 || swept.Young != 3 || err != nil {
		t.Errorf("Sweep = %+v, %v; want one of 7 bytes, and three that are young", swept, err)
	}
	for _, d := range []blob.Digest{kept, young, again, batched} {
		if _, err := s.ReadAll(t.Context(), d, 100); err != nil {
			t.Errorf("swept too much: %v", err)
		}
	}
	if _, _, err := s.Open(t.Context(), old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old one is still there: %v", err)
	}
}

// meeting is a Backend that calls before and after around deletions and puts.
type meeting struct {
	blob.Backend
	before func(name string) // called before a deletion
	after  func(name string) // called after a put
}

func (m meeting) Delete(ctx context.Context, name string) error {
	m.before(name)
	return m.Backend.Delete(ctx, name)
}

func (m meeting) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	err := m.Backend.Put(ctx, name, r, size)
	m.after(name)
	return err
}

// together is a Bulk that calls after for its puts.
type together struct {
	blob.Bulk
	after func(string)
}

func (m meeting) Begin() blob.Bulk { return together{m.Backend.Begin(), m.after} }

func (b together) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	err := b.Bulk.Put(ctx, name, r, size)
	b.after(name)
	return err
}

// One node puts an old, unreferenced blob at the moment when another node deletes it, after checking its age. The blob
// exists after the put was acknowledged.
func TestSweepMeetsPut(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("met ", 100)
	d := blob.Sum([]byte(body))
	for name, put := range map[string]func(s *blob.Store) error{
		"put": func(s *blob.Store) error {
			_, _, err := s.Put(t.Context(), strings.NewReader(body))
			return err
		},
		"batch": func(s *blob.Store) error {
			for try := 0; ; try++ {
				b := s.Batch(t.Context())
				if _, err := b.PutBytes([]byte(body)); err != nil {
					return err
				}
				if err := b.Flush(); !errors.Is(err, blob.ErrSwept) || try == 3 {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "blobs")
			backend, err := blob.Dir(path)
			if err != nil {
				t.Fatal(err)
			}
			defer backend.Close()
			deletions := blob.NewMemory()
			var once sync.Once
			putDone, wrote := make(chan error, 1), make(chan struct{}, 10)
			writer := blob.New(blob.Config{
				Deletions: deletions,
				Backend:   meeting{backend, func(string) {}, func(string) { wrote <- struct{}{} }},
			})
			sweeper := blob.New(blob.Config{Deletions: deletions, Backend: meeting{backend, func(string) {
				once.Do(func() {
					go func() { putDone <- put(writer) }()
					<-wrote // the blob is new now, but the sweep has already checked its age
				})
			}, func(string) {}}})
			if err := put(blob.New(blob.Config{Backend: backend})); err != nil {
				t.Fatal(err)
			}
			old := time.Now().Add(-48 * time.Hour)
			if err := os.Chtimes(file(path, d), old, old); err != nil {
				t.Fatal(err)
			}
			if swept, err := sweeper.Sweep(t.Context(), func(blob.Digest) bool { return false }, 24*time.Hour); swept.Files != 1 || err != nil {
				t.Fatalf("swept %+v, %v; want the old one", swept, err)
			}
			if err := <-putDone; err != nil {
				t.Fatal(err)
			}
			if got, err := writer.ReadAll(t.Context(), d, 1000); err != nil || string(got) != body {
				t.Errorf("acknowledged, and gone: %v", err)
			}
			// Again, with an old record of the deletion.
			if err := put(writer); err != nil {
				t.Error(err)
			}
		})
	}
}

// With random concurrent sweeps and puts of the same blobs, every acknowledged blob exists.
func TestSweepWhilePutting(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	done := make(chan struct{})
	var sweeps atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := s.Sweep(t.Context(), func(blob.Digest) bool { return false }, time.Hour); err != nil {
					t.Error(err)
					return
				}
				sweeps.Add(1)
			}
		}
	})
	for i := range 200 {
		text := fmt.Sprint(i % 7)
		d := blob.Sum([]byte(text))
		old := time.Now().Add(-48 * time.Hour)
		if err := os.Chtimes(file(path, d), old, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, _, err := s.Put(t.Context(), strings.NewReader(text)); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		if i%10 == 0 {
			for now := sweeps.Load(); sweeps.Load() < now+2; {
				runtime.Gosched()
			}
		}
		if _, err := s.ReadAll(t.Context(), d, 10); err != nil {
			t.Fatalf("put %d, and gone: %v", i, err)
		}
	}
	close(done)
	wg.Wait()
}

func TestBatch(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	b := s.Batch(t.Context())
	var wg sync.WaitGroup
	digests := make([]blob.Digest, 200)
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < len(digests); i += 4 {
				text := strings.Repeat(fmt.Sprint(i%150, " "), i*20)
				d, n, err := b.Put(strings.NewReader(text))
				if err != nil || n != int64(len(text)) {
					t.Errorf("Put = %d, %v", n, err)
				}
				digests[i] = d
			}
		})
	}
	wg.Wait()
	big, _, err := b.Put(iotest.HalfReader(io.LimitReader(zeros{}, 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, d := range append(digests, big) {
		if _, err := s.ReadAll(t.Context(), d, 1<<30); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBatchReportsFailure(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	b := s.Batch(t.Context())
	// A directory at the file's path makes the rename fail.
	d := blob.Sum([]byte("x"))
	if err := os.MkdirAll(file(path, d), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutBytes([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err == nil {
		t.Error("Flush reports no error")
	}
	if _, err := b.PutBytes([]byte("y")); err == nil {
		t.Error("the batch accepts a blob after its end")
	}
}

func TestParseDigest(t *testing.T) {
	t.Parallel()
	d := blob.Sum([]byte("x"))
	if got, err := blob.ParseDigest(d.String()); err != nil || got != d {
		t.Errorf("round trip: %v, %v", got, err)
	}
	for _, s := range []string{"", "ab", strings.ToUpper(d.String()), d.String() + "0", "g" + d.String()[1:], "/" + d.String()[1:]} {
		if _, err := blob.ParseDigest(s); err == nil {
			t.Errorf("ParseDigest(%q) took it", s)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _ := open(b)
			buf := make([]byte, 4096)
			for b.Loop() {
				batch := s.Batch(b.Context())
				for range n {
					rand.Read(buf)
					if _, _, err := batch.Put(bytes.NewReader(buf)); err != nil {
						b.Fatal(err)
					}
				}
				if err := batch.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
