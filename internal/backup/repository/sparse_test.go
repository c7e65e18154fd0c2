package repository

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Data written through sparse in pieces of any size is read back unchanged.
func TestSparse(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		var want []byte
		for range 1 + r.IntN(6) {
			part := make([]byte, r.IntN(3*block))
			if r.IntN(2) == 0 {
				for k := range part {
					part[k] = byte(r.IntN(3))
				}
			}
			want = append(want, part...)
		}
		name := filepath.Join(t.TempDir(), fmt.Sprint(i))
		f, err := os.Create(name)
		ok(t, err)
		s := NewSparse(f)
		for rest := want; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			_, err := s.Write(rest[:n])
			ok(t, err)
			rest = rest[n:]
		}
		ok(t, s.Close())
		ok(t, f.Close())
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came out as %d, %v", len(want), len(got), err)
		}
	}
}
