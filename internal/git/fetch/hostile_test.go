package fetch

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
)

// The limits on paths apply to a tree together with its submodules, and paths above the limits are never built, because
// the same few bytes can be used in any number of places.
func TestPathsOfSubmodulesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	long := strings.Repeat("x", 250)
	at := strings.Join([]string{long, long, long}, "/")
	deep := strings.Repeat("d/", 39) + "f"
	wide := &Tree{}
	for i := range 150_000 {
		wide.files = append(wide.files, File{Path: fmt.Sprintf("%06d", i)})
	}
	for name, tt := range map[string]struct {
		at   string
		sub  *Tree
		want string
	}{
		"sum of bytes": {at, wide, "64 MiB"},
		"length":       {at, &Tree{files: []File{{Path: long + "/" + long}}}, "1024 bytes"},
		"depth":        {strings.Repeat("d/", 30) + "mod", &Tree{files: []File{{Path: deep}}}, "64 folders deep"},
		"files":        {"m", &Tree{files: make([]File, 200_000)}, "200000 files"},
	} {
		all := &Tree{files: []File{{Path: "index.html"}, {Path: tt.at, Mode: ModeSubmodule}}}
		err := s.join(Request{}, all, tt.sub, tt.at)
		if f := fault.As(err); f == nil || f.Kind != fault.TooLarge || !strings.Contains(f.Details, tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		var bytes int
		for _, f := range all.files {
			bytes += len(f.Path)
		}
		if bytes > maxNames {
			t.Errorf("%s: %d MiB of paths were made before they were refused", name, bytes>>20)
		}
	}
	all := &Tree{files: []File{{Path: "index.html"}, {Path: "mod", Mode: ModeSubmodule}}}
	if err := s.join(Request{}, all, &Tree{
		files: []File{{Path: "a/b"}},
	}, "mod"); err != nil || len(all.files) != 2 || all.files[1].Path != "mod/a/b" {
		t.Errorf("a small one: %v, %v", all.files, err)
	}
}

// A tree that contains the next level eight times, over eight levels, would be sixteen million folders from twenty
// objects. Listing it stops at the limits.
func TestTreeUsedAgainAndAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	h.tree(t, "acme/again", "")
	cmd := strings.TrimSpace(run(t, filepath.Join(h.root, "acme/again.git"), "git", "hash-object", "-w", "HEAD"))
	tree := h.tree(t, "acme/again", "100644 blob "+cmd+"\tx\n")
	for range 8 {
		var b strings.Builder
		for i := range 8 {
			fmt.Fprintf(&b, "040000 tree %s\t%d\n", tree, i)
		}
		tree = h.tree(t, "acme/again", b.String())
	}
	h.publish(t, "acme/again", tree)
	for _, look := range []bool{false, true} {
		_, err := s.Fetch(t.Context(), Request{
			Site:       id.Site(fmt.Sprint("look_", look)),
			Repository: repo(t, "git.test/acme/again"),
			Branch:     "main",
			Look:       look,
		})
		if !fault.Is(err, fault.TooLarge) || !strings.Contains(fault.As(err).Details, "200000 f") {
			t.Errorf("look %v: %v", look, err)
		}
	}
}

// advertise answers ls-remote with chosen lines (gitprotocol-pack(5), version 0).
func (h *host) advertise(head string, refs func(yield func(string) bool)) {
	const commit = "c0ffee0000000000000000000000000000000000"
	f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := func(text string) { fmt.Fprintf(w, "%04x%s", len(text)+4, text) }
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		line("# service=git-upload-pack\n")
		io.WriteString(w, "0000")
		line(commit + " HEAD\x00shallow symref=HEAD:" + head + "\n")
		for name := range refs {
			line(commit + " " + name + "\n")
		}
		io.WriteString(w, "0000")
	})
	h.intercept.Store(&f)
}

// A host's list of branches is limited, and invalid branch names are dropped, even the default's.
func TestBranchesOfAHostileHost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head string
		refs func(yield func(string) bool)
		code string // error code; empty: main is the only branch and the default
	}{
		"names of 60 KB": {"refs/heads/main", func(yield func(string) bool) {
			for i := range 300 {
				if !yield(fmt.Sprintf("refs/heads/%03d%s", i, strings.Repeat("x", 60_000))) {
					return
				}
			}
		}, "repository_too_large"},
		"too many": {"refs/heads/main", func(yield func(string) bool) {
			for i := range maxBranches + 1 {
				if !yield(fmt.Sprint("refs/heads/b", i)) {
					return
				}
			}
		}, "repository_too_large"},
		"an option":     {"refs/heads/--upload-pack=x", one("refs/heads/main"), ""},
		"a long name":   {"refs/heads/" + strings.Repeat("x", 1000), one("refs/heads/main"), ""},
		"no branch":     {"refs/pull/1/head", one("refs/heads/main"), ""},
		"a revision":    {"refs/heads/a~1", one("refs/heads/main"), ""},
		"odd among all": {"refs/heads/main", one("refs/heads/main", "refs/heads/a..b", "refs/heads/a:b", "refs/heads/x.lock"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			s := open(t, h, nil)
			h.advertise(tt.head, tt.refs)
			list, byDefault, err := s.Branches(t.Context(), Request{Site: "look_x", Repository: repo(t, "git.test/acme/x"), Look: true})
			switch f := fault.As(err); {
			case tt.code != "" && (f == nil || f.Code != tt.code):
				t.Errorf("%v (%d branches), want %s", err, len(list), tt.code)
			case tt.code == "" && (err != nil || byDefault != "main" || len(list) != 1 || list[0] != "main"):
				t.Errorf("%q, default %q, %v", list, byDefault, err)
			}
		})
	}
}

func one(names ...string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, n := range names {
			if !yield(n) {
				return
			}
		}
	}
}

// A credential doesn't follow a host's redirect to another host, port or path, neither in git nor in LFS requests.
func TestCredentialIsNotSentOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var elsewhere atomic.Int64
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		http.Error(w, "no", http.StatusNotFound)
	}))
	t.Cleanup(other.Close)
	s := open(t, h, allowLoopback(t))
	s.base["git.test"] = base{url: h.URL, addr: strings.TrimPrefix(h.URL, "http://")}
	text, _ := pointerTo("picture")
	h.commit(t, "acme/private", "main", map[string]string{".gitattributes": "*.png filter=lfs\n", "a.png": text})
	r := Request{
		Site:       "s",
		Repository: repo(t, "git.test/acme/private"),
		Branch:     "main",
		Credential: &Credential{Token: token, Host: "git.test"},
	}
	for name, to := range map[string]string{
		"another port":              other.URL,
		"the same host by its name": strings.Replace(other.URL, "127.0.0.1", "localhost", 1),
		"another protocol":          "https" + strings.TrimPrefix(other.URL, "http"),
	} {
		for _, status := range []int{301, 302, 307, 308} {
			send := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to+r.URL.RequestURI(), status)
			})
			h.intercept.Store(&send)
			if _, err := s.Fetch(t.Context(), r); fault.As(err) == nil {
				t.Errorf("%s, %d: Fetch = %v, want a fault", name, status, err)
			}
			lfs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/info/lfs") {
					send(w, r)
					return
				}
				h.pass(w, r)
			})
			h.intercept.Store(&lfs)
			if tree := fetch(t, s, r); len(tree.Unfetched) != 1 {
				t.Errorf("%s, %d: the file in LFS was fetched", name, status)
			}
		}
	}
	if elsewhere.Load() != 0 || leaked.Load() {
		t.Errorf("%d requests elsewhere, with the credential: %v", elsewhere.Load(), leaked.Load())
	}
}

// Two names are the same host only if they are equal in normalized form.
func TestCredentialOfAHostInOtherWords(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	h.commit(t, "acme/private", "main", map[string]string{"x": "x"})
	c := &Credential{Token: token, Host: "git.test"}
	for _, same := range []string{"GIT.test/acme/private", "https://git.test:443/acme/private", "ssh://git@git.test:22/acme/private"} {
		fetch(t, s, Request{Site: "s", Repository: repo(t, same), Branch: "main", Credential: c})
	}
	for _, other := range []string{
		"git.test:8443/acme/private", "https://git.test:22/acme/private", "ssh://git@git.test:443/acme/private",
		"sub.git.test/acme/private", "xn--gt-fka.test/acme/private",
	} {
		before := h.requests.Load()
		_, err := s.Fetch(t.Context(), Request{Site: "s", Repository: repo(t, other), Branch: "main", Credential: c})
		if !fault.Is(err, fault.Forbidden) || h.requests.Load() != before {
			t.Errorf("%s: %v", other, err)
		}
	}
	for _, no := range []string{
		"git.test./acme/private", "gït.test/acme/private", "git.test%2eevil/acme/private",
		"git.test@evil.test@x/acme/private", "git.test\\@evil.test/acme/private", "[::1]/acme/private",
	} {
		if r, err := ParseRepository(no); err == nil {
			t.Errorf("%s is %s", no, r)
		}
	}
}
