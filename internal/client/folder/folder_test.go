package folder

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, dir string, o Options) *Folder {
	t.Helper()
	f, err := Open(t.Context(), dir, o)
	if err == nil {
		t.Cleanup(func() { f.Close() })
		err = f.Hash(t.Context(), "", o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Folder) names() (list []string) {
	for _, x := range f.Files {
		list = append(list, x.Path)
	}
	return list
}

func (f *Folder) left() (list []string) {
	for _, x := range f.Left {
		list = append(list, x.Path)
	}
	slices.Sort(list)
	return list
}

var project = map[string]string{
	"index.html": "hello", "src/app.js": "x", "dist/app.js": "built", ".gitignore": "dist/\n*.log\n", "a.log": "log", "src/.gitignore": "!a.log\n",
	"src/a.log": "kept", ".env": "SECRET=1", ".env.local": "SECRET=2", ".env.example": "SECRET=", "node_modules/x/index.js": "x",
	"src/node_modules/y/index.js": "y", "key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "notes/todo.md": "later", ".slipwayignore": "notes/\n",
	"in.js": "-> src/app.js", "passwd": "-> /etc/passwd", "up": "-> ../x", ".slipway/project.json": "{}", ".DS_Store": "x",
}

// The same files are uploaded inside and outside a Git work tree: ignored files and secrets are skipped, and no link
// leads outside.
func TestWhichFiles(t *testing.T) {
	t.Parallel()
	want := []string{".env.example", ".gitignore", ".slipwayignore", "in.js", "index.html", "src/.gitignore", "src/a.log", "src/app.js"}
	for _, git := range []bool{false, true} {
		dir := t.TempDir()
		write(t, dir, project)
		if git {
			run(t, dir, nil, "init", "-q")
		}
		f := open(t, dir, Options{})
		if got := f.names(); !slices.Equal(got, want) {
			t.Errorf("git %v: %v, want %v", git, got, want)
		}
		for _, name := range []string{".env", ".env.local", "key", "node_modules", "passwd", "up"} {
			if !slices.ContainsFunc(f.left(), func(s string) bool { return s == name || strings.HasPrefix(s, name+"/") }) {
				t.Errorf("git %v: %s isn't listed among the skipped files: %v", git, name, f.left())
			}
		}
		if i := slices.IndexFunc(f.Files, func(x File) bool { return x.Path == "in.js" }); f.Files[i].Mode != "l" || f.Files[i].Size != 10 {
			t.Errorf("a link is %+v", f.Files[i])
		}
	}
	dir := t.TempDir()
	write(t, dir, project)
	f := open(t, dir, Options{Include: []string{".env", "/key"}})
	if got := f.names(); !slices.Contains(got, ".env") || !slices.Contains(got, "key") || slices.Contains(got, ".env.local") {
		t.Errorf("with .env included: %v", got)
	}
	f = open(t, dir, Options{Prebuilt: true})
	got := f.names()
	if !slices.Contains(got, "dist/app.js") || !slices.Contains(got, "in.js") || slices.Contains(got, ".env") || slices.Contains(got, "passwd") {
		t.Errorf("prebuilt: %v", got)
	}
	if i := slices.Index(got, "in.js"); f.Files[i].Mode != "" || f.Files[i].Digest != f.Files[slices.Index(got, "src/app.js")].Digest {
		t.Errorf("a link in what is published is %+v", f.Files[i])
	}
	if _, err := Open(t.Context(), dir, Options{MaxFiles: 3}); err == nil || !strings.Contains(err.Error(), ".slipwayignore") {
		t.Errorf("over the limit: %v", err)
	}
}

// Digests come from the cache while a file's size, time and inode are unchanged, and are recomputed otherwise.
func TestCache(t *testing.T) {
	t.Parallel()
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	write(t, dir, map[string]string{"old.txt": "one", "new.txt": "one"})
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old.txt"), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	hash := func() string {
		f, err := Open(t.Context(), dir, Options{})
		if err == nil {
			defer f.Close()
			err = f.Hash(t.Context(), cache, Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(f.Manifest())
	}
	first := hash()
	text, err := os.ReadFile(cache)
	if err != nil || !bytes.Contains(text, []byte("old.txt")) || bytes.Contains(text, []byte("new.txt")) {
		t.Errorf("the cache is %q, %v: it must trust only old files", text, err)
	}
	// A wrong digest in the cache is used while size, time and inode match.
	lie := strings.Repeat("ab", 32)
	k := load(cache)["old.txt"]
	if err := os.WriteFile(cache, bytes.ReplaceAll(text, []byte(k.digest), []byte(lie)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := hash(); strings.Count(got, lie) != 1 {
		t.Errorf("the cache wasn't used: %s", got)
	}
	now := yesterday.Add(time.Second)
	if err := os.Chtimes(filepath.Join(dir, "old.txt"), now, now); err != nil {
		t.Fatal(err)
	}
	if got := hash(); got != first {
		t.Errorf("%s, want %s", got, first)
	}
}

func run(t *testing.T, dir string, in []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.Output()
	if err != nil && (args[0] != "check-ignore" || cmd.ProcessState.ExitCode() != 1) {
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

// Ignore patterns agree with Git's in 10,000 random cases of random trees and ignore files.
func TestIgnoreAgreesWithGit(t *testing.T) {
	t.Parallel()
	const seed = 27
	r := rand.New(rand.NewPCG(seed, seed))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	word := func() string {
		s := ""
		for range 1 + r.IntN(3) {
			s += pick("a", "b", "ab", "a", "b", "c", ".", "-", "[")
		}
		if s == "." || s == ".." {
			return "a"
		}
		return s
	}
	glob := func() string {
		s := pick("", "", "", "!", "/", "**/", "\\")
		for range 1 + r.IntN(4) {
			s += pick("a", "b", "c", "*", "?", "**", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[[:alpha:]]", "[a", "\\a", "\\*", ".", "-", "/**/", "/**", "**/")
		}
		return s + pick("", "", "", "/", " ", "\\ ", "\r")
	}
	cases := 0
	for cases < 10_000 {
		dir := t.TempDir()
		run(t, dir, nil, "init", "-q")
		files := map[string]string{}
		folders := []string{""}
		for range 6 {
			folders = append(folders, folders[r.IntN(len(folders))]+word()+"/")
		}
		for range 300 {
			name := folders[r.IntN(len(folders))] + word()
			clash := false
			for other := range files {
				clash = clash || strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/")
			}
			if !clash && !slices.Contains(folders, name+"/") {
				files[name] = "x"
			}
		}
		for range 4 {
			lines := ""
			for range 1 + r.IntN(5) {
				lines += glob() + "\n"
			}
			at := folders[r.IntN(len(folders))]
			files[at+".gitignore"] = lines
		}
		write(t, dir, files)
		taken := run(t, dir, nil, "ls-files", "-coz", "--exclude-standard")
		want := strings.FieldsFunc(taken, func(r rune) bool { return r == 0 })
		slices.Sort(want)
		f := &Folder{}
		var err error
		if f.root, err = os.OpenRoot(dir); err != nil {
			t.Fatal(err)
		}
		w := &walker{f: f, gitignore: true}
		if err := w.walk(t.Context(), ".", nil); err != nil {
			t.Fatal(err)
		}
		f.Close()
		got := f.names()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("taken are %q\nwant %q\nof %s", got, want, fmt.Sprintf("%q", files))
		}
		cases += len(files)
	}
}

// A repository can't run a program on the machine that deploys it: not with an embedded repository, settings, hooks,
// filters, submodules or missing objects.
func TestGitRunsNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(dir, run string) (at string){
		"embedded bare repository": func(dir, program string) string {
			at := filepath.Join(dir, "site")
			for _, name := range []string{"HEAD", "objects", "refs", "index"} {
				if err := os.Rename(filepath.Join(dir, ".git", name), filepath.Join(at, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
				t.Fatal(err)
			}
			write(t, at, map[string]string{"config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = " + program + "\n"})
			return at
		},
		"file system monitor": func(dir, program string) string {
			run(t, dir, nil, "config", "core.fsmonitor", program)
			return dir
		},
		"hook": func(dir, program string) string {
			run(t, dir, nil, "config", "core.hooksPath", filepath.Dir(program))
			return dir
		},
		"signature": func(dir, program string) string {
			commit := run(t, dir, nil, "cat-file", "commit", "HEAD")
			head, message, _ := strings.Cut(commit, "\n\n")
			signed := head + "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n" + message
			id := strings.TrimSpace(run(t, dir, []byte(signed), "hash-object", "-w", "-t", "commit", "--stdin"))
			run(t, dir, nil, "update-ref", "HEAD", id)
			run(t, dir, nil, "config", "log.showSignature", "true")
			run(t, dir, nil, "config", "gpg.program", program)
			run(t, dir, nil, "config", "gpg.openpgp.program", program)
			return dir
		},
		"filter": func(dir, program string) string {
			for _, f := range []string{"filter.x.clean", "filter.a=b.clean"} {
				run(t, dir, nil, "config", f, program)
			}
			run(t, dir, nil, "config", "filter.x.required", "true")
			write(t, dir, map[string]string{".gitattributes": "*.html filter=x\n*.css filter=a=b\n"})
			for _, name := range []string{"index.html", "style.css"} {
				later := time.Now().Add(time.Hour)
				if err := os.Chtimes(filepath.Join(dir, name), later, later); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		},
		"missing object": func(dir, program string) string {
			for key, value := range map[string]string{
				"core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true", "protocol.ext.allow": "always",
				"remote.origin.url": "ext::" + program, "core.sshCommand": program,
			} {
				run(t, dir, nil, "config", key, value)
			}
			tree := strings.TrimSpace(run(t, dir, nil, "rev-parse", "HEAD^{tree}"))
			if err := os.Remove(filepath.Join(dir, ".git", "objects", tree[:2], tree[2:])); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"submodule": func(dir, program string) string {
			sub := filepath.Join(dir, "sub")
			run(t, dir, nil, "init", "-q", "sub")
			run(t, sub, nil, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x")
			run(t, dir, nil, "add", "sub")
			run(t, sub, nil, "config", "core.fsmonitor", program)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, tools := t.TempDir(), t.TempDir()
			ran := filepath.Join(tools, "ran")
			program := filepath.Join(tools, "post-index-change")
			if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$0\" >> "+ran+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, dir, nil, "init", "-q")
			write(t, dir, map[string]string{"index.html": "x", "style.css": "x", "site/index.html": "x"})
			run(t, dir, nil, "add", ".")
			run(t, dir, nil, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "x")
			at := prepare(dir, program)
			_ = os.Remove(ran) // the preparation may have run it
			f, err := Open(t.Context(), at, Options{})
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Error(err)
			}
			for _, args := range [][]string{
				{"rev-parse", "HEAD"},
				{"log", "-1", "--format=%B"},
				{"log", "-1", "--format=%an"},
				{"branch", "--show-current"},
				{"check-ignore", "--", ".env"},
				{"remote", "-v"},
			} {
				Git(t.Context(), at, args...)
			}
			Dirty(t.Context(), at)
			if text, err := os.ReadFile(ran); err == nil {
				t.Errorf("a program of the repository ran: %s", text)
			}
		})
	}
}

// A work tree is dirty if anything in it isn't committed.
func TestDirty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run(t, dir, nil, "init", "-q")
	write(t, dir, map[string]string{"index.html": "x"})
	if !Dirty(t.Context(), dir) {
		t.Error("a new file is committed")
	}
	run(t, dir, nil, "add", ".")
	run(t, dir, nil, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "x")
	if Dirty(t.Context(), dir) {
		t.Error("a commit is dirty")
	}
	write(t, dir, map[string]string{"index.html": "changed"})
	if !Dirty(t.Context(), dir) {
		t.Error("a change is committed")
	}
}
