package upload_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
	"slipway/internal/client/upload"
)

// server is a fake that accepts only blobs of the newest manifest with matching digests.
type server struct {
	t        *testing.T
	asked    func()            // called after each manifest, before any blob is sent
	mu       sync.Mutex        // guards what follows
	lists    int               // manifests received
	manifest map[string]file   // by path
	stored   map[string][]byte // by digest
}

type file struct {
	Path, SHA256 string
	Size         int64
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(err error) bool {
		if err != nil {
			s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
		}
		return err != nil
	}
	if r.Method == http.MethodPut {
		in, err := gzip.NewReader(r.Body)
		if fail(err) {
			return
		}
		s.manifest = map[string]file{}
		var missing []map[string]any
		for d := json.NewDecoder(in); ; {
			var f file
			if err := d.Decode(&f); err == io.EOF {
				break
			} else if fail(err) {
				return
			}
			s.manifest[f.Path] = f
			if s.stored[f.SHA256] == nil {
				missing = append(missing, map[string]any{"sha256": f.SHA256, "size": f.Size})
			}
		}
		s.lists++
		s.asked()
		fail(json.NewEncoder(w).Encode(map[string]any{"missing": map[string]any{"files": len(missing), "bytes": 1}, "needed": missing}))
		return
	}
	refused, stored := []map[string]string{}, 0
	head := make([]byte, 40)
	for {
		if _, err := io.ReadFull(r.Body, head); err == io.EOF {
			break
		} else if err != nil {
			return // cut off because a file became shorter
		}
		body := make([]byte, binary.BigEndian.Uint64(head[32:]))
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return
		}
		said := hex.EncodeToString(head[:32])
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != said {
			refused = append(refused, map[string]string{"sha256": said, "code": "digest_mismatch"})
			continue
		}
		s.stored[said], stored = body, stored+1
	}
	fail(json.NewEncoder(w).Encode(map[string]any{"stored": stored, "refused": refused}))
}

// A file that changes while it is uploaded arrives complete, in its old or new version, and the manifest matches it. A
// file that keeps changing is an error.
func TestFileChangesWhileSent(t *testing.T) {
	t.Parallel()
	const old = "what it was"
	for name, tt := range map[string]struct {
		becomes string
		always  bool
	}{
		"longer": {"what it is, and more of it", false}, "shorter": {"what", false}, "other": {"what it is!", false}, "never rests": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := filepath.Join(dir, "page.html")
			write := func(text string) {
				if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			write(old)
			if err := os.WriteFile(filepath.Join(dir, "still.html"), []byte("still"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := &server{t: t, stored: map[string][]byte{}}
			s.asked = func() {
				switch {
				case tt.always:
					write(fmt.Sprint(s.lists))
				case s.lists == 1:
					write(tt.becomes)
				}
			}
			web := httptest.NewServer(s)
			t.Cleanup(web.Close)
			c, err := rest.New(rest.Config{Server: web.URL})
			if err != nil {
				t.Fatal(err)
			}
			f, err := folder.Open(t.Context(), dir, folder.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Hash(t.Context(), "", folder.Options{}); err != nil {
				t.Fatal(err)
			}
			up := upload.Upload{ID: "upl_1"}
			up.Limits.BatchBytes, up.Limits.BatchFiles = 1<<20, 100
			err = up.Send(t.Context(), c, f, &upload.Progress{}, func() func() { return func() {} })
			if tt.always {
				if err == nil || !strings.Contains(fmt.Sprint(err), "files changed while they were sent") {
					t.Errorf("a file that never rests: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{"page.html": tt.becomes, "still.html": "still"} {
				if got := string(s.stored[s.manifest[path].SHA256]); got != want {
					t.Errorf("%s has arrived as %q, want %q", path, got, want)
				}
			}
			if s.lists != 2 {
				t.Errorf("%d lists were sent, want 2", s.lists)
			}
		})
	}
}
