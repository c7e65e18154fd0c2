package blob

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func journals(t *testing.T, path string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(path, logDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// After Flush, a power failure may lose or damage every blob that wasn't synced itself. The next start restores them
// from the journal.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "blobs")
	s, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch(t.Context())
	bodies := map[Digest][]byte{}
	for i := range 300 {
		body := bytes.Repeat([]byte(fmt.Sprint(i, " ")), i)
		if i%100 == 99 {
			body = bytes.Repeat(body, 200) // too long for the journal
		}
		d, err := b.PutBytes(body)
		if err != nil {
			t.Fatal(err)
		}
		bodies[d] = body
	}
	if list := journals(t, path); len(list) > 0 {
		t.Errorf("a journal before Flush: %v", list)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if list := journals(t, path); len(list) != 1 {
		t.Fatalf("journals after Flush: %v", list)
	}
	s.Close()
	i := 0
	for d, body := range bodies {
		if len(body) > journalBlob {
			continue
		}
		file := filepath.Join(path, d.String()[:2], d.String())
		var err error
		switch i++; i % 5 {
		case 0:
			err = os.Remove(file)
		case 1:
			err = os.Truncate(file, 0)
		case 2:
			err = os.WriteFile(file, make([]byte, len(body)), 0o600)
		case 3:
			err = os.Truncate(file, int64(len(body)/2))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s, err = OpenDir(path); err != nil {
		t.Fatal(err)
	}
	for d, want := range bodies {
		if got, err := s.ReadAll(t.Context(), d, 1<<30); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
		}
	}
	if list := journals(t, path); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
	if list, _ := os.ReadDir(filepath.Join(path, tmp)); len(list) > 0 {
		t.Errorf("left in tmp: %v", list)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "blobs")
	backend, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	backend.(*dir).settleAfter = time.Millisecond
	s := New(Config{Backend: backend})
	b := s.Batch(t.Context())
	kept, err := b.PutBytes([]byte("kept"))
	if err != nil {
		t.Fatal(err)
	}
	swept, err := b.PutBytes([]byte("swept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := backend.Delete(t.Context(), swept.String()); err != nil {
		t.Fatal(err)
	}
	backend.(*dir).settling.Wait()
	if list := journals(t, path); len(list) > 0 {
		t.Errorf("not settled: %v", list)
	}
	if _, err := s.ReadAll(t.Context(), kept, 10); err != nil {
		t.Error(err)
	}
}

// A failed batch leaves no journal, and a damaged journal doesn't prevent a start.
func TestJournalDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "blobs")
	s, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch(t.Context())
	if err := os.MkdirAll(filepath.Join(path, Sum([]byte("x")).String()[:2], Sum([]byte("x")).String()), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutBytes([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(); err == nil {
		t.Error("flushed what could not be written")
	}
	left, err := os.ReadDir(filepath.Join(path, tmp))
	if err != nil || len(left)+len(journals(t, path)) > 0 {
		t.Errorf("left behind: %v %v, %v", left, journals(t, path), err)
	}
	whole := Sum([]byte("whole"))
	entries := append(append(bytes.Clone(whole[:]), 0, 0, 0, 5), "whole"...)
	for name, tail := range map[string][]byte{
		"cut":   whole[:7],
		"other": append(append(bytes.Clone(whole[:]), 0, 0, 0, 5), "other"...),
		"long":  append(bytes.Clone(whole[:]), 0xff, 0xff, 0xff, 0xff),
	} {
		if err := os.WriteFile(filepath.Join(path, logDir, name), append(bytes.Clone(entries), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenDir(path); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := s.ReadAll(t.Context(), whole, 10); err != nil || string(got) != "whole" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := os.Remove(filepath.Join(path, whole.String()[:2], whole.String())); err != nil {
			t.Fatal(err)
		}
	}
	if list := journals(t, path); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
}

// After a batch has been written, its buffers aren't kept until its journal is settled.
func TestSettlingKeepsLittleMemory(t *testing.T) {
	backend, err := Dir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	d := backend.(*dir)
	d.settleAfter = time.Hour
	t.Cleanup(func() { New(Config{Backend: backend}).Close() })
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	for i := range 200 {
		b := d.begin()
		body := fmt.Appendf(nil, "file %d", i)
		if err := b.Put(t.Context(), Sum(body).String(), bytes.NewReader(body), int64(len(body))); err != nil {
			t.Fatal(err)
		}
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if more := used() - before; more > 4<<20 {
		t.Errorf("200 batches that wait to be settled hold %d KiB", more>>10)
	}
}
