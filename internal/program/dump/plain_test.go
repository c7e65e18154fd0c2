package dump

import (
	"bytes"
	"database/sql"
	"math/rand/v2"
	"testing"
)

// A value must be written byte by byte as escapes has it, wherever those bytes are in the value.
func TestValuesAreEscaped(t *testing.T) {
	t.Parallel()
	byByte := func(v []byte) []byte {
		out := []byte{'\''}
		for _, c := range v {
			if e := escapes[c]; e != 0 {
				out = append(out, '\\', e)
			} else {
				out = append(out, c)
			}
		}
		return append(out, '\'')
	}
	r := rand.New(rand.NewPCG(1, 2))
	check := func(v []byte) {
		t.Helper()
		if got, want := appendValue(nil, sql.RawBytes(v), textual), byByte(v); !bytes.Equal(got, want) {
			t.Fatalf("%q is written as %s, want %s", v, got, want)
		}
	}
	check([]byte{})
	for c := range 256 { // each byte at each place of a word, between other bytes of all kinds
		for at := range 19 {
			for _, around := range []byte{' ', 'a', 0x80, 0xff, '\t', '&', ']', 0} {
				v := bytes.Repeat([]byte{around}, 19)
				v[at] = byte(c)
				check(v)
			}
		}
	}
	for range 2000 {
		v := make([]byte, r.IntN(100))
		for i := range v {
			v[i] = byte(r.Uint32())
		}
		check(v)
	}
}

func BenchmarkAppendValue(b *testing.B) {
	v := sql.RawBytes(bytes.Repeat([]byte("Some words of a post. "), 30))
	b.SetBytes(int64(len(v)))
	var row []byte
	for b.Loop() {
		row = appendValue(row[:0], v, textual)
	}
}
