package repository

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/seal"
)

// Files and dumps stored at the same time are each read back unchanged, shared content is stored once, and every pack
// has its name.
func TestStoredAtTheSameTime(t *testing.T) {
	t.Parallel()
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	ok(t, err)
	at, err := blob.Dir(filepath.Join(t.TempDir(), "backups"))
	ok(t, err)
	repo := New(Config{Backend: at, Seal: key})
	w := NewWriter(t.Context(), repo)
	shared := noise(1, 1<<20)
	const streams, each = 3, 4
	files, texts := make([][]File, streams), make([][][]byte, streams)
	var all sync.WaitGroup
	for s := range streams {
		all.Go(func() {
			for i := range each {
				text := append(bytes.Clone(shared), noise(uint64(10+s*each+i), 1<<20+i*(400<<10))...)
				if i%2 == 1 {
					text = text[:1000*(1+i)]
				}
				list, sum, size, err := w.Add(bytes.NewReader(text))
				if err != nil || sum != sha256.Sum256(text) || size != int64(len(text)) {
					t.Errorf("stream %d, file %d: %d bytes, %v", s, i, size, err)
				}
				files[s], texts[s] = append(files[s], File{
					Path:   fmt.Sprint(s, "/", i),
					Size:   size,
					Sum:    sum,
					Pieces: list,
				}), append(texts[s], text)
			}
		})
	}
	all.Wait()
	ok(t, w.Close())
	for i, name := range w.packs {
		if len(name) != 2*packName {
			t.Errorf("pack %d is called %q", i, name)
		}
	}
	seen := map[[sha256.Size]byte]bool{}
	for _, p := range w.pieces {
		if seen[p.Sum] {
			t.Error("a piece is stored twice")
		}
		seen[p.Sum] = true
	}
	r := NewReader(repo, &Contents{Packs: w.packs, Pieces: w.pieces})
	for s := range streams {
		for i, f := range files[s] {
			var back bytes.Buffer
			if err := r.Copy(t.Context(), &back, f); err != nil || !bytes.Equal(back.Bytes(), texts[s][i]) {
				t.Errorf("stream %d, file %d came back otherwise, %v", s, i, err)
			}
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(b)
	return b
}

// cutOneByOne is a simple implementation of cut.
func cutOneByOne(b []byte) int {
	if len(b) <= minPiece {
		return len(b)
	}
	var h uint64
	for i := minPiece; i < len(b) && i < MaxPiece; i++ {
		if h = h<<1 + gear[b[i]]; h&cutMask == 0 {
			return i + 1
		}
	}
	return min(len(b), MaxPiece)
}

// Content is cut at the same positions as in earlier versions. Otherwise a backup would store existing content again.
func TestCutIsWhereItWas(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, MaxPiece+5)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	check := func(b []byte) {
		t.Helper()
		if got, want := cut(b), cutOneByOne(b); got != want {
			t.Errorf("%d bytes are cut at %d, want %d", len(b), got, want)
		}
	}
	for _, n := range []int{
		0,
		1,
		minPiece - 1,
		minPiece,
		minPiece + 1,
		minPiece + lane,
		minPiece + 4*lane - 1,
		minPiece + 4*lane,
		minPiece + 4*lane + 1,
		MaxPiece - 1,
		MaxPiece,
		MaxPiece + 5,
	} {
		check(b[:n])
		check(make([]byte, n)) // is not cut
	}
	// Cut at every position of a group of lanes, and of the rest after the last group.
	var ending []byte // 64 bytes that cause a cut
	for ending == nil {
		for i := range b[:MaxPiece] {
			b[i] = byte(r.Uint32())
		}
		if n := cutOneByOne(b); n < MaxPiece {
			ending = slices.Clone(b[n-64 : n])
		}
	}
	for at := 1; at <= 4*lane+130; at += 13 {
		for _, length := range []int{minPiece + at, minPiece + 4*lane, minPiece + 8*lane + 7} {
			x := make([]byte, max(length, minPiece+at))
			copy(x[minPiece+at-min(at, 64):], ending[64-min(at, 64):])
			check(x)
			if at >= 64 {
				copy(x[minPiece+at-64:], ending) // a second ending after it
				check(append(x, ending...))
			}
		}
	}
}

func BenchmarkCut(b *testing.B) {
	text := bytes.Repeat([]byte("Some words of a post. "), MaxPiece/22)
	b.SetBytes(int64(len(text) - minPiece))
	for b.Loop() {
		cut(text)
	}
}

func BenchmarkCutOneByOne(b *testing.B) {
	text := bytes.Repeat([]byte("Some words of a post. "), MaxPiece/22)
	b.SetBytes(int64(len(text) - minPiece))
	for b.Loop() {
		cutOneByOne(text)
	}
}
