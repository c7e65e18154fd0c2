package backup

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/deploy/deployment"
)

func someManifest() *snapshot.Manifest {
	pack := func(c string) string { return strings.Repeat(c, 64) }
	return &snapshot.Manifest{
		Version:  repository.Version,
		ID:       "bkp_1",
		Site:     "site_1",
		At:       time.Unix(1_700_000_000, 0).UTC(),
		Includes: parts,
		Extra:    json.RawMessage(`{"line":"a\nb"}`),
		Live:     &deployment.Live{Release: "r"},
		Places:   map[string]int64{"main": 2},
		Folders:  []string{"uploads"},
		Contents: repository.Contents{
			Packs:  []string{pack("a"), pack("0")},
			Pieces: []repository.Piece{{Pack: 0, Offset: 0, Length: 5, Sum: sha256.Sum256([]byte("a"))}, {Pack: 1, Offset: 300, Length: 1 << 22, Sum: sha256.Sum256([]byte("b"))}},
			Files: []repository.File{
				{Path: "storage/uploads/a\nb", Size: 5, Mode: 0o644, Stamp: "5.a.b", Sum: sha256.Sum256([]byte("a")), Pieces: []int{0}},
				{Path: "storage/uploads/link", Link: "../x", Sum: snapshot.EmptySum, Pieces: []int{}},
				{Path: "database/main.sql", Size: 1 << 40, Sum: sha256.Sum256([]byte("ab")), Pieces: []int{0, 1, 0}},
			},
		},
	}
}

func decoded(plain []byte) (*snapshot.Manifest, error) {
	m := &snapshot.Manifest{}
	c, err := repository.Decode(plain, m)
	if err != nil {
		return nil, err
	}
	m.Contents = *c
	return m, nil
}

func TestManifest(t *testing.T) {
	t.Parallel()
	want := someManifest()
	plain, err := want.Encode()
	ok(t, err)
	got, err := decoded(plain)
	ok(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for n := range plain { // a truncated manifest is never read as a complete one
		if m, err := decoded(plain[:n]); err == nil {
			t.Fatalf("%d bytes of %d are %+v", n, len(plain), m)
		}
	}
	if _, err := decoded([]byte(`{"version":3}` + "\n")); err == nil || !strings.Contains(err.Error(), "newer Slipway") {
		t.Errorf("a newer one: %v", err)
	}
}

// Backups in the first version of the format can still be read.
func TestFirstManifest(t *testing.T) {
	t.Parallel()
	got, err := decoded([]byte(`{"version":1,"id":"bkp_1","site":"site_1","at":"2026-11-20T10:00:00Z","includes":["files"],"packs":["p"],` +
		`"pieces":[[0,7,5,"LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="]],` +
		`"files":[{"p":"storage/uploads/a","s":5,"m":420,"t":"5.a.b","d":[0],"h":"LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}]}`))
	ok(t, err)
	sum := sha256.Sum256([]byte("hello"))
	want := &snapshot.Manifest{
		Version:  1,
		ID:       "bkp_1",
		Site:     "site_1",
		At:       time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Includes: []string{Files},
		Contents: repository.Contents{
			Packs:  []string{"p"},
			Pieces: []repository.Piece{{Pack: 0, Offset: 7, Length: 5, Sum: sum}},
			Files:  []repository.File{{Path: "storage/uploads/a", Size: 5, Mode: 0o644, Stamp: "5.a.b", Sum: sum, Pieces: []int{0}}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := decoded([]byte(`{"version":2}`)); err == nil {
		t.Error("a second version without lists is taken")
	}
}

// Decoding any bytes takes memory in proportion to their length, and encoding the result returns the same bytes.
func FuzzManifest(f *testing.F) {
	plain, err := someManifest().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add([]byte(`{"version":1,"files":[]}`))
	f.Add([]byte("{\"version\":2}\n\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decoded(b)
		if err != nil || m.Version != repository.Version {
			return
		}
		again, err := m.Encode()
		if err != nil {
			return // for example, an invalid raw JSON value can't be encoded
		}
		got, err := decoded(again)
		if err != nil || !reflect.DeepEqual(
			got.Files,
			m.Files,
		) || !reflect.DeepEqual(got.Pieces, m.Pieces) || !reflect.DeepEqual(got.Packs, m.Packs) {
			t.Errorf("%+v became %+v (%v)", m, got, err)
		}
	})
}
