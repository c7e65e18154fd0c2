// Package blobtest owns the tests that every [blob.Backend] must pass.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"slipway/internal/platform/blob"
)

// Run tests a backend. open returns an empty one that lives as long as its test.
func Run(t *testing.T, open func(t *testing.T) blob.Backend) {
	for name, test := range map[string]func(*testing.T, blob.Backend){
		"round trip":        roundTrip,
		"absent":            absent,
		"a bad put is none": badPut,
		"put again":         putAgain,
		"list":              list,
		"stat":              stat,
		"bulk":              bulk,
		"hostile names":     hostile,
		"concurrent":        concurrent,
		"cancelled":         cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func put(t *testing.T, b blob.Backend, text string) string {
	t.Helper()
	name := blob.Sum([]byte(text)).String()
	if err := b.Put(t.Context(), name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	return name
}

func get(t *testing.T, b blob.Backend, name string) string {
	t.Helper()
	f, size, err := b.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(got)) != size {
		t.Errorf("Get says %d bytes, %d came", size, len(got))
	}
	return string(got)
}

func gone(t *testing.T, b blob.Backend, name string) {
	t.Helper()
	f, _, err := b.Get(t.Context(), name)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of what isn't there: %v, want fs.ErrNotExist", err)
	}
}

func roundTrip(t *testing.T, b blob.Backend) {
	for _, text := range []string{"", "x", strings.Repeat("long ", 1<<20)} {
		name := put(t, b, text)
		if got := get(t, b, name); got != text {
			t.Errorf("%d bytes came back as %d others", len(text), len(got))
		}
	}
	name := put(t, b, "0123456789")
	f, _, err := b.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(7, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(f); string(got) != "789" {
		t.Errorf("after Seek(7) came %q", got)
	}
	if err := b.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	gone(t, b, name)
}

func absent(t *testing.T, b blob.Backend) {
	name := blob.Sum([]byte("absent")).String()
	gone(t, b, name)
	if err := b.Delete(t.Context(), name); err != nil {
		t.Errorf("Delete of what isn't there: %v", err)
	}
}

func badPut(t *testing.T, b blob.Backend) {
	name := blob.Sum([]byte("whole")).String()
	broken := errors.New("broken")
	for what, r := range map[string]io.Reader{
		"short":  strings.NewReader("who"),
		"long":   strings.NewReader("whole and more"),
		"broken": io.MultiReader(strings.NewReader("whole"), iotest.ErrReader(broken)),
	} {
		if err := b.Put(t.Context(), name, r, 5); err == nil {
			t.Errorf("%s: Put took it", what)
		}
		gone(t, b, name)
	}
	for e := range b.List(t.Context()) {
		t.Errorf("left behind: %v", e)
	}
}

// A Put renews an existing blob, so that a Sweep on another node leaves it alone.
func putAgain(t *testing.T, b blob.Backend) {
	name := put(t, b, "again")
	put(t, b, "again")
	if age := time.Since(times(t, b)[name]); age > blob.RefreshAfter {
		t.Errorf("after putting it again its age is %v", age)
	}
	if got := get(t, b, name); got != "again" {
		t.Errorf("after putting again: %q", got)
	}
}

func stat(t *testing.T, b blob.Backend) {
	name := blob.Sum([]byte("stat")).String()
	if _, err := b.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of what isn't there: %v, want fs.ErrNotExist", err)
	}
	put(t, b, "stat")
	e, err := b.Stat(t.Context(), name)
	if err != nil || e.Name != name || e.Size != 4 || time.Since(e.Time).Abs() > time.Minute {
		t.Errorf("Stat = %v, %v", e, err)
	}
}

func bulk(t *testing.T, b blob.Backend) {
	many := b.Begin()
	var wg sync.WaitGroup
	var names [100]string
	for i := range names {
		wg.Go(func() {
			text := strings.Repeat("bulk ", i*200)
			names[i] = blob.Sum([]byte(text)).String()
			if err := many.Put(t.Context(), names[i], strings.NewReader(text), int64(len(text))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := many.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if got := get(t, b, name); len(got) != i*1000 {
			t.Errorf("%d bytes of %d came back", len(got), i*1000)
		}
	}
	dropped := b.Begin()
	if err := dropped.Put(t.Context(), blob.Sum([]byte("x")).String(), strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	dropped.Drop()
}

func times(t *testing.T, b blob.Backend) map[string]time.Time {
	t.Helper()
	m := map[string]time.Time{}
	for e, err := range b.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name] = e.Time
	}
	return m
}

func list(t *testing.T, b blob.Backend) {
	want := map[string]int64{}
	for i := range 300 {
		text := strings.Repeat("x", i)
		want[put(t, b, text)] = int64(i)
	}
	n := 0
	for e, err := range b.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if size, ok := want[e.Name]; !ok || size != e.Size {
			t.Errorf("listed %s with %d bytes", e.Name, e.Size)
		}
		if age := time.Since(e.Time); age < -time.Minute || age > time.Minute {
			t.Errorf("listed with age %v", age)
		}
	}
	if n != len(want) {
		t.Errorf("listed %d of %d", n, len(want))
	}
	for range b.List(t.Context()) {
		break // stop iterating early
	}
}

func hostile(t *testing.T, b blob.Backend) {
	for _, name := range []string{
		"",
		"..",
		"../../etc/passwd",
		"ab",
		strings.Repeat("A", 64),
		strings.Repeat("../", 21) + "x",
		strings.Repeat("a", 63) + "\x00",
	} {
		if err := b.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("Put took the name %q", name)
		}
		if f, _, err := b.Get(t.Context(), name); err == nil {
			f.Close()
			t.Errorf("Get took the name %q", name)
		}
	}
}

func concurrent(t *testing.T, b blob.Backend) {
	var wg sync.WaitGroup
	body := bytes.Repeat([]byte("same "), 1000)
	name := blob.Sum(body).String()
	for range 16 {
		wg.Go(func() {
			if err := b.Put(t.Context(), name, bytes.NewReader(body), int64(len(body))); err != nil {
				t.Error(err)
			}
			if got := get(t, b, name); got != string(body) {
				t.Error("the content read differs from the one that was put")
			}
		})
	}
	wg.Wait()
}

func cancelled(t *testing.T, b blob.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := blob.Sum([]byte("late")).String()
	if err := b.Put(ctx, name, strings.NewReader("late"), 4); err == nil {
		t.Error("Put ignores its context")
	}
	gone(t, b, name)
}
