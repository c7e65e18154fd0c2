package fetch

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"

	"github.com/google/go-cmp/cmp"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	files := map[string]string{
		"index.html": "<h1>one</h1>",
		"a/b/c.txt":  "deep",
		"a b\nc.txt": "odd name",
		"link":       "-> a/b/c.txt",
		"up":         "-> ../../../etc/passwd",
		"empty":      " ",
	}
	commit := h.commit(t, "acme/site", "trunk", files)
	for _, host := range []string{"git.test", "files.test"} {
		tree := fetch(t, s, Request{Site: "site_1", Repository: repo(t, host+"/acme/site"), Branch: "trunk"})
		if tree.Commit != commit || tree.Branch != "trunk" || tree.Message != "Say hello\n\nin two lines" ||
			tree.Author != "Ada Lovelace" ||
			tree.AuthorEmail != "ada@example.test" ||
			time.Since(tree.CommittedAt) > time.Hour {
			t.Errorf("%s: %+v", host, tree)
		}
		if diff := cmp.Diff(files, contents(t, tree)); diff != "" {
			t.Errorf("%s: files (-want +got)\n%s", host, diff)
		}
		// Without a branch, the remote's default branch is used.
		if tree := fetch(t, s, Request{
			Site:       "site_2",
			Repository: repo(t, host+"/acme/site"),
		}); tree.Branch != "trunk" || tree.Commit != commit {
			t.Errorf("%s: default branch: %s at %s", host, tree.Branch, tree.Commit)
		}
		branches, def, err := s.Branches(t.Context(), Request{Site: "site_1", Repository: repo(t, host+"/acme/site")})
		if err != nil || def != "trunk" || len(branches) != 1 || branches[0] != "trunk" {
			t.Errorf("%s: Branches = %v, %q, %v", host, branches, def, err)
		}
	}
}

// Without git the server starts, deployments of repositories fail with the name of the package to install, and they
// work once it is installed.
func TestWithoutGit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	commit := h.commit(t, "acme/site", "main", map[string]string{"index.html": "hello"})
	program := spy(t)
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := open(t, h, func(c *Config) {
		c.Git, c.Log = program, slog.New(slog.NewTextHandler(&log, nil))
	})
	if !strings.Contains(log.String(), "git is not installed") {
		t.Errorf("the start says %q", log.String())
	}
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	_, err := s.Fetch(t.Context(), r)
	_, _, listing := s.Branches(t.Context(), r)
	for _, err := range []error{err, listing} {
		if f := fault.As(err); f == nil || f.Code != "git_missing" || !strings.Contains(f.Details, "apt-get install git") {
			t.Errorf("got %v", err)
		}
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	if tree := fetch(t, s, r); tree.Commit != commit {
		t.Errorf("fetched %s, want %s", tree.Commit, commit)
	}
}

func TestFetchIsIncremental(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	big := strings.Repeat("0123456789abcdef\n", 1) + random(400<<10)
	h.commit(t, "acme/site", "main", map[string]string{"big.bin": big, "x": "1"})
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	first := fetch(t, s, r)
	want := h.commit(t, "acme/site", "main", map[string]string{"x": "2"})
	before, _ := packs(first.g.git())
	second := fetch(t, s, r)
	after, n := packs(second.g.git())
	if second.Commit != want || second.g != first.g || n != 2 || after-before > 20<<10 {
		t.Errorf("second fetch: %d packs, %d bytes more", n, after-before)
	}
	if got := contents(t, second); got["x"] != "2" || got["big.bin"] != big {
		t.Error("second tree is wrong")
	}
	if got := contents(t, first); got["x"] != "1" {
		t.Error("the first tree can't be read any more")
	}
	// Rewritten history and a switched branch are fetched as usual.
	want = h.commit(t, "acme/site", "other", map[string]string{"x": "3"})
	r.Branch = "other"
	if tree := fetch(t, s, r); tree.Commit != want || contents(t, tree)["x"] != "3" {
		t.Error("other branch")
	}
}

func random(n int) string {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

func TestReadFileAndCheckout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	h.commit(t, "acme/site", "main", map[string]string{
		"package.json":   `{"name":"x"}`,
		"in/alias.json":  "-> ../package.json",
		"loop":           "-> loop",
		"out":            "-> /etc/passwd",
		"up":             "-> ../../etc/passwd",
		"gone":           "-> nothing",
		".gitattributes": "*.big filter=lfs diff=lfs merge=lfs -text\n*.txt filter=evil\n",
		"x.big":          "version https://git-lfs.github.com/spec/v1\n",
		"run.sh":         "#!/bin/sh\n",
		"a.txt":          "text",
	})
	work := filepath.Join(h.root, "acme/site.work")
	run(t, work, "git", "update-index", "--chmod=+x", "run.sh")
	run(t, work, "git", "update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,module")
	run(t, work, "git", "commit", "-q", "-m", "modes")
	run(t, work, "git", "push", "-q", "origin", "main")
	tree := fetch(t, s, Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	modes := map[string]fs.FileMode{}
	files, _ := tree.Files(t.Context())
	for _, f := range files {
		modes[f.Path] = f.Mode
	}
	if modes["run.sh"] != ModeExecutable || modes["a.txt"] != ModeFile || modes["loop"] != ModeSymlink || modes["module"] != ModeSubmodule {
		t.Errorf("modes: %v", modes)
	}
	for name, want := range map[string]string{"package.json": `{"name":"x"}`, "in/alias.json": `{"name":"x"}`} {
		if b, err := tree.ReadFile(t.Context(), name, 100); string(b) != want {
			t.Errorf("ReadFile(%s) = %q, %v", name, b, err)
		}
	}
	for _, name := range []string{
		"absent", "", "in", "loop", "out", "up", "gone", "module", "../package.json", "package.json\n", "/etc/passwd",
	} {
		if b, err := tree.ReadFile(t.Context(), name, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile(%q) = %q, %v; want not exist", name, b, err)
		}
	}
	if _, err := tree.ReadFile(t.Context(), "package.json", 3); !fault.Is(err, fault.TooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "src")
	if err := tree.Checkout(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "up")); err != nil || to != "../../etc/passwd" {
		t.Errorf("link: %q, %v", to, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || st.Mode()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", st, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "x.big")); !strings.HasPrefix(string(b), "version https://git-lfs") {
		t.Errorf("LFS pointer: %q", b)
	}
	if err := tree.Checkout(t.Context(), dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second checkout into the same directory: %v", err)
	}
	// Reading stops at the callback's error and returns it.
	stop := errors.New("enough")
	if err := tree.Read(t.Context(), files, func(File, io.Reader) error { return stop }); err != stop {
		t.Errorf("Read = %v, want the callback's error", err)
	}
	n := 0
	if err := tree.Read(t.Context(), files, func(File, io.Reader) error { n++; return nil }); err != nil || n != len(files)-1 {
		t.Errorf("unread contents: %d of %d files, %v", n, len(files)-1, err)
	}
}

func TestFetchFaults(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	h.commit(t, "acme/private", "main", map[string]string{"x": "1"})
	run(t, ".", "git", "init", "-q", "--bare", filepath.Join(h.root, "acme/empty.git"))
	h.commit(t, "acme/nohead", "next", map[string]string{"x": "1"})
	run(t, ".", "git", "-C", filepath.Join(h.root, "acme/nohead.git"), "symbolic-ref", "HEAD", "refs/heads/gone")
	s := open(t, h, nil)
	good, bad := &Credential{Token: token}, &Credential{Token: "tok_wrong"}
	for name, tt := range map[string]struct {
		repo, branch string
		cred         *Credential
		kind         fault.Kind
		message      string
	}{
		"absent": {
			"git.test/acme/absent", "main", nil, fault.NotFound,
			"Repository git.test/acme/absent not found, or it is private and no token is stored",
		},
		"absent directory": {
			"files.test/acme/absent", "main", nil, fault.NotFound,
			"Repository files.test/acme/absent not found, or it is private and no token is stored",
		},
		"private without a token": {
			"git.test/acme/private", "main", nil, fault.NotFound,
			"Repository git.test/acme/private not found, or it is private and no token is stored",
		},
		"refused token": {
			"git.test/acme/private", "main", bad, fault.Forbidden,
			"git.test rejected the stored credential for git.test/acme/private",
		},
		"absent with a token": {
			"git.test/acme/absent", "main", good, fault.NotFound,
			"Repository git.test/acme/absent not found, or the stored credential has no access to it",
		},
		"no branch":            {"git.test/acme/site", "nope", nil, fault.NotFound, "Branch nope not found in git.test/acme/site"},
		"empty":                {"git.test/acme/empty", "", nil, fault.Invalid, "Repository git.test/acme/empty is empty"},
		"empty, with a branch": {"git.test/acme/empty", "main", nil, fault.Invalid, "Repository git.test/acme/empty is empty"},
		"empty directory":      {"files.test/acme/empty", "", nil, fault.Invalid, "Repository files.test/acme/empty is empty"},
		"no default": {
			"git.test/acme/nohead", "", nil, fault.Invalid, "Repository git.test/acme/nohead has no default branch",
		},
		"private address":       {"127.0.0.1/acme/site", "main", nil, fault.Forbidden, "Host 127.0.0.1 is not allowed"},
		"its port doesn't help": {strings.TrimPrefix(h.URL, "http://") + "/acme/site", "main", nil, fault.Forbidden, ""},
		"option as branch":      {"git.test/acme/site", "--upload-pack=x", nil, fault.Invalid, "Invalid branch name"},
		"bad deploy key": {
			"github.com/acme/site",
			"main",
			&Credential{DeployKey: "nonsense"},
			fault.Invalid,
			"The stored deploy key can't be read",
		},
		"newline in a token": {
			"git.test/acme/private",
			"main",
			&Credential{Token: "x\r\nX-Evil: 1"},
			fault.Forbidden,
			"git.test rejected the stored credential for git.test/acme/private",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Request{
				Site:       id.Site("s_" + strings.ReplaceAll(name, " ", "_")),
				Repository: repo(t, tt.repo),
				Branch:     tt.branch,
				Credential: tt.cred,
			}
			r.Site = id.Site(strings.NewReplacer("'", "", ",", "").Replace(string(r.Site)))
			_, err := s.Fetch(t.Context(), r)
			f := fault.As(err)
			if f == nil || f.Kind != tt.kind || tt.message != "" && f.Message != tt.message {
				t.Fatalf("got %v (%+v), want %q", err, f, tt.message)
			}
			if f.Code == codeNoBranch && !strings.HasPrefix(f.Details, "the repository's default branch is main") {
				t.Errorf("details %q, want the default branch", f.Details)
			}
			for _, secret := range []string{token, "tok_wrong", s.c.Dir, h.root} {
				if strings.Contains(f.Message+f.Details, secret) {
					t.Errorf("the fault gives %q away", secret)
				}
			}
		})
	}
}

func TestPrivateRepository(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	commit := h.commit(t, "acme/private", "main", map[string]string{"x": "1"})
	var log bytes.Buffer
	s := open(t, h, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		// A git that records its input and then works as usual.
		c.Git = spy(t)
	})
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/private"), Credential: &Credential{Token: token}}
	if tree := fetch(t, s, r); tree.Commit != commit {
		t.Error("wrong commit")
	}
	s.c.Log.Info(
		"request",
		"credential",
		r.Credential,
		"value",
		*r.Credential,
		"text",
		fmt.Sprintf("%v %+v %#v", r.Credential, *r.Credential, r),
	)
	for _, secret := range []string{token, base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))} {
		if strings.Contains(log.String(), secret) {
			t.Error("the log holds the token")
		}
		if found := leaks(t, s.c.Dir, secret); found != nil {
			t.Errorf("files hold the token: %v", found)
		}
		if found := leaks(t, filepath.Dir(s.c.Git), secret); found != nil {
			t.Errorf("arguments hold the token: %v", found)
		}
	}
	if argv := leaks(t, filepath.Dir(s.c.Git), "ls-remote"); len(argv) != 1 {
		t.Error("the spy saw nothing")
	}
}

// spy returns a git that records its arguments beside itself.
func spy(t *testing.T) string {
	t.Helper()
	real := strings.TrimSpace(run(t, ".", "which", "git"))
	p := filepath.Join(t.TempDir(), "git")
	for _, dir := range []string{filepath.Dir(p), filepath.Dir(filepath.Dir(p))} { // git runs as another user
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(p, []byte("#!/bin/sh\necho \"$@\" >> "+p+".argv\nexec "+real+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// Branches whose names are special in shells or URLs are fetched.
func TestOddBranches(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := open(t, h, nil)
	for i, branch := range []string{"#42-x", "fix(ui)", "it's", "feature/über", "a&b", "日本", "a;id", "$(id)", "`id`", `a"b`, "50%", "a,b=c"} {
		want := h.commit(t, "acme/site", branch, map[string]string{"x": branch})
		tree, err := s.Fetch(t.Context(), Request{Site: id.Site(fmt.Sprint("s", i)), Repository: repo(t, "git.test/acme/site"), Branch: branch})
		if err != nil {
			t.Fatalf("%s: %v", branch, err)
		}
		if tree.Branch != branch || tree.Commit != want {
			t.Errorf("%s: %s at %s, want %s", branch, tree.Branch, tree.Commit, want)
		}
		tree.Close()
	}
}

// Rule 3 of reliability.md 3.3 without the first check: even an unchecked branch name is never an option and runs
// nothing.
func TestNothingIsAnOption(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	s := open(t, h, nil)
	canary := filepath.Join(t.TempDir(), "PWN")
	for i, b := range append(
		hostileBranches,
		"--upload-pack=touch "+canary+";git-upload-pack",
		"--exec=touch "+canary,
		"$(touch "+canary+")",
		"`touch "+canary+"`",
		"x;touch "+canary,
	) {
		for _, to := range []string{"git.test/acme/site", "files.test/acme/site"} {
			r := Request{Site: id.Site(fmt.Sprint("s", i)), Repository: repo(t, to), Branch: b}
			if _, err := s.Fetch(t.Context(), r); !fault.Is(err, fault.Invalid) && b != "" {
				t.Fatalf("branch %q: %v", b, err)
			}
			if strings.ContainsRune(b, 0) || i%8 != 0 && !strings.Contains(b, canary) {
				continue
			}
			m, err := s.connect(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			unlock, _ := s.lock(t.Context(), "raw")
			g, err := s.renew(t.Context(), "raw", "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.update(t.Context(), m, r, g); err == nil {
				t.Errorf("branch %q was fetched", b)
			}
			unlock()
			m.close()
		}
	}
	if _, err := os.Stat(canary); err == nil {
		t.Fatal("a branch name was run")
	}
}

func TestRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	h, other := newHost(t), newHost(t)
	other.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.RequestURI(), http.StatusMovedPermanently)
	})
	h.intercept.Store(&f)
	s := open(t, h, nil)
	_, err := s.Fetch(t.Context(), Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	if f := fault.As(err); f == nil || f.Code != "repository_moved" {
		t.Errorf("redirect: %v", err)
	}
	if other.requests.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

func TestDirectoryStaysInside(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	outside := newHost(t)
	outside.commit(t, "acme/secret", "main", map[string]string{"x": "1"})
	for link, to := range map[string]string{
		"acme/link.git":   filepath.Join(outside.root, "acme/secret.git"),
		"evil":            filepath.Join(outside.root, "acme"),
		"acme/inside.git": "site.git",
	} {
		if err := os.Symlink(to, filepath.Join(h.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	os.MkdirAll(filepath.Join(h.root, "acme/gitfile"), 0o755)
	os.WriteFile(filepath.Join(h.root, "acme/gitfile/.git"), []byte("gitdir: "+filepath.Join(outside.root, "acme/secret.git")+"\n"), 0o644)
	s := open(t, h, nil)
	for _, name := range []string{"acme/link", "evil/secret", "acme/gitfile"} {
		if _, err := s.Fetch(t.Context(), Request{
			Site:       "s",
			Repository: repo(t, "files.test/"+name),
			Branch:     "main",
		}); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"acme/inside", "acme/site.work"} {
		fetch(t, s, Request{Site: "s", Repository: repo(t, "files.test/"+name), Branch: "main"})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"a": "1", "b": "2", "c": random(300 << 10)})
	for name, change := range map[string]func(*Config){
		"files": func(c *Config) { c.MaxFile = 2 },
		"size":  func(c *Config) { c.MaxSize = 1000 },
		"pack":  func(c *Config) { c.MaxPack = 100 << 10 },
	} {
		s := open(t, h, change)
		_, err := s.Fetch(t.Context(), Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
		if !fault.Is(err, fault.TooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hang := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h.intercept.Store(&hang)
	s := open(t, h, func(c *Config) { c.Timeout = 200 * time.Millisecond })
	began := time.Now()
	_, err := s.Fetch(t.Context(), Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	if f := fault.As(err); f == nil || f.Code != "fetch_timeout" {
		t.Errorf("hanging host: %v after %s", err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Fetch(ctx, Request{
		Site:       "s",
		Repository: repo(t, "git.test/acme/site"),
		Branch:     "main",
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Paths that would leave the tree are refused before they can be written.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	bare := filepath.Join(h.root, "acme/site.git")
	blob := strings.TrimSpace(run(t, bare, "git", "rev-parse", "main:x"))
	raw := make([]byte, 20)
	fmt.Sscanf(blob, "%x", &raw)
	for i, name := range []string{"..", ".git", ".GIT", "../evil", "a/../../evil", "git~1"} {
		f := filepath.Join(h.root, "tree")
		os.WriteFile(f, append([]byte("100644 "+name+"\x00"), raw...), 0o600)
		tree := strings.TrimSpace(run(t, bare, "git", "hash-object", "-t", "tree", "-w", "--literally", f))
		commit := strings.TrimSpace(run(t, bare, "git", "commit-tree", "-m", "evil", tree))
		run(t, bare, "git", "update-ref", "refs/heads/evil", commit)
		s := open(t, h, nil)
		tr, err := s.Fetch(t.Context(), Request{Site: id.Site(fmt.Sprint("s", i)), Repository: repo(t, "git.test/acme/site"), Branch: "evil"})
		if f := fault.As(err); f == nil || f.Code != "repository_refused" {
			t.Errorf("%q: %v, %v", name, tr, err)
		}
	}
	for p, want := range map[string]bool{
		"a/b":      true,
		"..a":      true,
		"a..":      true,
		"":         false,
		".":        false,
		"/a":       false,
		"a//b":     false,
		"a/":       false,
		"./a":      false,
		"a/.Git/b": false,
		"../a":     false,
	} {
		if decent(p) != want {
			t.Errorf("decent(%q) = %v", p, !want)
		}
	}
}
