package fetch

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
)

func pointerTo(content string) (text, oid string) {
	sum := sha256.Sum256([]byte(content))
	oid = hex.EncodeToString(sum[:])
	return fmt.Sprintf("%soid sha256:%s\nsize %d\n", lfsPrefix, oid, len(content)), oid
}

// speak makes the host answer the LFS batch API for these contents. href returns the download URL of an object.
func (h *host) speak(contents map[string]string, href func(oid string) string) (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/lfs/objects/batch"):
			asked.Add(1)
			if strings.Contains(r.URL.Path, "/private") {
				if _, p, _ := r.BasicAuth(); p != token {
					http.Error(w, "{}", http.StatusUnauthorized)
					return
				}
			}
			var ask struct{ Objects []map[string]any }
			json.NewDecoder(r.Body).Decode(&ask)
			for _, o := range ask.Objects {
				oid := o["oid"].(string)
				o["actions"] = map[string]any{
					"download": map[string]any{"href": href(oid), "header": map[string]string{"X-Leave": "granted"}},
				}
			}
			w.Header().Set("Content-Type", lfsType)
			json.NewEncoder(w).Encode(map[string]any{"objects": ask.Objects})
		case strings.HasPrefix(r.URL.Path, "/lfs/"):
			if r.Header.Get("X-Leave") != "granted" || r.Header.Get("Authorization") != "" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			fmt.Fprint(w, contents[strings.TrimPrefix(r.URL.Path, "/lfs/")])
		default:
			h.pass(w, r)
		}
	})
	h.intercept.Store(&f)
	return asked
}

// LFS files are fetched with the site's credential, verified, cached, and used for reading and checkouts.
func TestLFS(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	picture := strings.Repeat("picture", 1000)
	text, oid := pointerTo(picture)
	h.commit(t, "acme/private", "main", map[string]string{
		".gitattributes": "*.png filter=lfs diff=lfs merge=lfs -text\n",
		"a.png":          text,
		"b/same.png":     text,
		"page.html":      "page",
	})
	asked := h.speak(map[string]string{oid: picture}, func(oid string) string { return "https://git.test/lfs/" + oid })
	r := Request{
		Site:       "s",
		Repository: repo(t, "git.test/acme/private"),
		Branch:     "main",
		Credential: &Credential{Token: token, Host: "git.test"},
	}
	for range 2 {
		tree := fetch(t, s, r)
		got := contents(t, tree)
		if len(tree.Unfetched) != 0 || got["a.png"] != picture || got["b/same.png"] != picture || got["page.html"] != "page" {
			t.Fatalf("unfetched %v; a.png has %d bytes", tree.Unfetched, len(got["a.png"]))
		}
		dir := filepath.Join(t.TempDir(), "out")
		if err := tree.Checkout(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "b/same.png")); err != nil || string(b) != picture {
			t.Errorf("checked out: %d bytes, %v", len(b), err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("the host was asked %d times, want once", asked.Load())
	}
}

// LFS pointers without a matching attribute, or edited ones, are reported, because they would be published in place of
// the files. Other small files aren't.
func TestStrayPointers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	text, _ := pointerTo("the real one")
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no attributes": {
			map[string]string{"img/a.PNG": text, "b.mp4": text, "notes.txt": text, "tiny.gif": strings.Repeat("x", 130)},
			"[b.mp4 img/a.PNG]",
		},
		"Windows' lines": {
			map[string]string{".gitattributes": "*.png filter=lfs", "a.png": strings.ReplaceAll(text, "\n", "\r\n")},
			"[a.png]",
		},
		"large attributes": {
			map[string]string{".gitattributes": "*.png filter=lfs\n" + strings.Repeat("# a comment\n", 6000), "a.png": text},
			"[a.png]",
		},
		"none at all": {map[string]string{"a.png": strings.Repeat("y", 200)}, "[]"},
	} {
		at := "acme/" + strings.NewReplacer(" ", "-", "'", "").Replace(strings.ToLower(name))
		h.commit(t, at, "main", c.files)
		tree := fetch(t, s, Request{Site: id.Site(strings.TrimPrefix(at, "acme/")), Repository: repo(t, "git.test/"+at), Branch: "main"})
		slices.Sort(tree.Unfetched)
		if got := fmt.Sprint(tree.Unfetched); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Missing LFS files, and files that don't match their pointers, are reported. Pointers to more bytes than a tree may
// have are refused.
func TestLFSThatFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	text, oid := pointerTo("the real one")
	h.commit(t, "acme/site", "main", map[string]string{".gitattributes": "*.png filter=lfs", "a.png": text})
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	for name, prepare := range map[string]func(){
		"no LFS server": func() { h.intercept.Store(nil) },
		"other bytes": func() {
			h.speak(map[string]string{oid: "another one"}, func(oid string) string { return h.URL + "/lfs/" + oid })
		},
		"endless": func() {
			h.speak(map[string]string{oid: strings.Repeat("x", 1<<20)}, func(oid string) string { return h.URL + "/lfs/" + oid })
		},
		"private":        func() { h.speak(nil, func(string) string { return "https://127.0.0.1:1/x" }) },
		"plain http":     func() { h.speak(nil, func(string) string { return "http://elsewhere.test/x" }) },
		"file":           func() { h.speak(nil, func(string) string { return "file:///etc/passwd" }) },
		"not an address": func() { h.speak(nil, func(string) string { return "" }) },
	} {
		prepare()
		tree := fetch(t, s, r)
		if got := contents(t, tree); len(tree.Unfetched) != 1 || tree.Unfetched[0] != "a.png" || got["a.png"] != text {
			t.Errorf("%s: unfetched %v, a.png is %q", name, tree.Unfetched, got["a.png"])
		}
	}
	r.Repository = repo(t, "git.test/acme/huge")
	h.intercept.Store(nil)
	// The last size plus the commit's other files overflows int64.
	for _, most := range []string{"99999999999", "9223372036854775700", "9223372036854775807"} {
		h.commit(t, "acme/huge", "main", map[string]string{
			".gitattributes": "*.png filter=lfs",
			"a.png":          strings.Replace(text, "size 12", "size "+most, 1),
			"b.png":          text,
		})
		if _, err := s.Fetch(t.Context(), r); !fault.Is(err, fault.TooLarge) {
			t.Errorf("huge: %v", err)
		}
	}
}

// A site with a deploy key gets LFS files too: the SSH host returns their URL and an authorization. Its response is
// limited in size, and if the host doesn't support LFS, only the LFS files are missing.
func TestLFSOverSSH(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	picture := strings.Repeat("picture", 1000)
	text, oid := pointerTo(picture)
	h.commit(t, "acme/private", "main", map[string]string{".gitattributes": "*.png filter=lfs\n", "a.png": text})
	h.speak(map[string]string{oid: picture}, func(oid string) string { return h.URL + "/lfs/" + oid })
	hostKey, _ := key(t)
	user, userPEM := key(t)
	addr := sshHost(t, h.root, hostKey, user.PublicKey(), "127.0.0.1:0")
	s := open(t, nil, func(c *Config) { allowLoopback(t)(c); c.Hosts = map[string]string{addr: h.URL} })
	r := Request{
		Site:       "s",
		Repository: repo(t, "ssh://git@"+addr+"/acme/private.git"),
		Branch:     "main",
		Credential: &Credential{DeployKey: userPEM},
	}
	leave := base64.StdEncoding.EncodeToString([]byte("x:" + token))
	for name, tt := range map[string]struct {
		answer string
		want   bool
	}{
		"none": {"", false},
		"right": {
			`{"href": "` + h.URL + `/acme/private.git/info/lfs", "header": {"Authorization": "Basic ` + leave + `"}, "expires_in": 60}`,
			true,
		},
		"no leave":   {`{"href": "` + h.URL + `/acme/private.git/info/lfs"}`, false},
		"no JSON":    {"welcome", false},
		"nowhere":    {`{}`, false},
		"elsewhere":  {`{"href": "http://elsewhere.test/x"}`, false},
		"with a key": {`{"href": "https://user:pass@git.test/x"}`, false},
		"endless":    {`{"href": "` + strings.Repeat("x", 1<<20) + `"}`, false},
	} {
		at := filepath.Join(h.root, "acme/private.git", "lfs.json")
		os.Remove(at)
		if tt.answer != "" {
			if err := os.WriteFile(at, []byte(tt.answer), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.Site = id.Site("s-" + strings.ReplaceAll(name, " ", "-")) // with its own cache
		tree := fetch(t, s, r)
		got := contents(t, tree)["a.png"]
		if tt.want != (got == picture) || tt.want != (len(tree.Unfetched) == 0) {
			t.Errorf("%s: unfetched %v, a.png has %d bytes", name, tree.Unfetched, len(got))
		}
	}
}
