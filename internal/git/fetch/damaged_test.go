package fetch

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

// branch returns a host whose branch main is the commit that make adds to the pack.
func branch(make func(p *pack) [20]byte) http.HandlerFunc {
	var p pack
	id := make(&p)
	return serve(hex.EncodeToString(id[:]), p.finish())
}

func (p *pack) tree(mode, name string, id [20]byte) [20]byte {
	return p.object(2, "tree", append([]byte(mode+" "+name+"\x00"), id[:]...))
}

func (p *pack) commit(tree [20]byte) [20]byte {
	return p.object(
		1,
		"commit",
		fmt.Appendf(nil, "tree %x\nauthor A <a@b.c> 1700000000 +0000\ncommitter A <a@b.c> 1700000000 +0000\n\nm\n", tree),
	)
}

// Responses that aren't Git's, or damaged repositories, fail with a specific error for the user rather than for the
// operator.
func TestWhatNoGitMakesSenseOf(t *testing.T) {
	t.Parallel()
	answer := func(mediaType, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			io.WriteString(w, text)
		}
	}
	const advertisement = "application/x-git-upload-pack-advertisement"
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	service := line("# service=git-upload-pack\n") + "0000"
	nobody := [20]byte{1, 2, 3}
	for name, tt := range map[string]struct {
		host http.HandlerFunc
		code string
		say  string
	}{
		"a page":        {answer("text/html", "<!DOCTYPE html>\n<title>Sign in</title>\n"), "repository_not_found", ""},
		"a page as Git": {answer(advertisement, "<!DOCTYPE html>\n"), "git_protocol", ""},
		"half an answer": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "900")
			answer(advertisement, service)(w, r)
		}, "host_unreachable", ""},
		"another version": {answer(advertisement, line("version 9\n")+"0000"), "git_protocol", ""},
		"files alone": {func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/info/refs") {
				io.WriteString(w, "c0ffee0000000000000000000000000000000000\trefs/heads/main\n")
			} else {
				http.NotFound(w, r)
			}
		}, "git_protocol", "shallow"},
		"its own words":     {answer(advertisement, service+line("ERR you are \x1b[31mbanned\n")), "host_refused", "banned"},
		"its own full disk": {answer(advertisement, service+line("ERR No space left on device\n")), "host_refused", "No space left"},
		"a status":          {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(451) }, "host_refused", "451"},
		"no pack":           {serve("c0ffee0000000000000000000000000000000000", []byte("<html>")), "git_protocol", ""},
		"another commit":    {branch(func(p *pack) [20]byte { p.object(3, "blob", nil); return nobody }), "repository_damaged", ""},
		"no such blob":      {branch(func(p *pack) [20]byte { return p.commit(p.tree("100644", "x", nobody)) }), "repository_damaged", ""},
		"a file is a tree": {branch(func(p *pack) [20]byte {
			return p.commit(p.tree("100644", "x", p.tree("100644", "y", p.object(3, "blob", nil))))
		}), "repository_damaged", ""},
		"twice the same": {branch(func(p *pack) [20]byte {
			p.object(3, "blob", nil)
			return p.commit(p.tree("100644", "x", p.object(3, "blob", nil)))
		}), "repository_damaged", ""},
		"a delta of itself": {
			branch(func(p *pack) [20]byte { p.add(7, 7, nobody[:], []byte("\x04\x04\x04abcd")); return p.commit(nobody) }),
			"repository_damaged",
			"",
		},
		"four billion": {func() http.HandlerFunc {
			var p pack
			id := p.commit(p.object(2, "tree", nil))
			data := p.finish()
			binary.BigEndian.PutUint32(data[8:], 4_000_000_000)
			return serve(hex.EncodeToString(id[:]), data)
		}(), "repository_damaged", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.intercept.Store(&tt.host)
			_, err := open(t, h, nil).Fetch(t.Context(), Request{Site: "s", Repository: repo(t, "git.test/acme/x"), Branch: "main"})
			f := fault.As(err)
			if f == nil || f.Code != tt.code || !strings.Contains(f.Details, tt.say) || strings.ContainsRune(f.Details, '\x1b') {
				t.Errorf("Fetch = %v (%+v), want %q", err, f, tt.code)
			}
		})
	}
}

// A tag of a file or a folder, such as junio-gpg-pub in Git's own repository, is refused with an error.
func TestTagOfNoCommit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	bare := filepath.Join(h.root, "acme/site.git")
	for name, object := range map[string]string{"file": "main:x", "folder": "main^{tree}"} {
		run(t, bare, "git", "tag", name, object)
		run(t, bare, "git", "tag", "-a", "-m", "m", "annotated-"+name, object)
	}
	s := open(t, h, nil)
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site")}
	for _, r.Branch = range []string{"file", "folder", "annotated-file", "annotated-folder"} {
		for range 2 { // without a cache and with one
			if _, err := s.Fetch(
				t.Context(),
				r,
			); fault.As(err) == nil || fault.As(err).Code != "not_a_commit" || !strings.HasPrefix(err.Error(), r.Branch) {
				t.Errorf("%s: %v", r.Branch, err)
			}
		}
	}
	r.Branch = "main"
	fetch(t, s, r)
}

// The error for a repository in another object format names the format.
func TestSHA256Repository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	bare, work := filepath.Join(h.root, "acme/new.git"), filepath.Join(h.root, "acme/new.work")
	run(t, ".", "git", "init", "-q", "--bare", "--object-format=sha256", "-b", "main", bare)
	run(t, ".", "git", "init", "-q", "--object-format=sha256", "-b", "main", work)
	run(t, work, "git", "commit", "-q", "--allow-empty", "-m", "m")
	run(t, work, "git", "push", "-q", bare, "main")
	s := open(t, h, nil)
	for _, host := range []string{"git.test", "files.test"} {
		_, err := s.Fetch(t.Context(), Request{Site: "s", Repository: repo(t, host+"/acme/new"), Branch: "main"})
		if f := fault.As(err); f == nil || f.Code != "object_format" {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A full disk is reported as the operator's problem, whatever git prints afterwards.
func TestFullDiskIsTheOperators(t *testing.T) {
	t.Parallel()
	s := open(t, nil, nil)
	m := &remote{refused: func() error { return nil }, said: func() string { return "" }}
	err := s.explain(t.Context(), Request{
		Repository: repo(t, "git.test/acme/x"),
	}, m, "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output\n", io.EOF)
	if fault.As(err) != nil || err == nil {
		t.Errorf("explain = %v", err)
	}
}
