// Package fetch owns fetching commits of Git repositories and reading their files.
//
// Fetch keeps one bare, shallow repository per site and updates it. The [Tree] that it returns lists and streams files
// directly from that repository, or checks them out for a build.
//
// Every byte and name in a repository is hostile. Git runs with an empty environment, without any configuration but
// ours, within limits and under a uid of its own. It speaks only the protocol of the request, follows no redirects, and
// runs no hooks or filters; the package fetches submodules and LFS files itself. Git reaches the network through a
// proxy ([egress.Proxy], or our SSH client for deploy keys) that connects to that one host. A cache that was being
// written during a crash, or that git reports as damaged, is deleted and fetched again.
//
// The package never starts a shell, never puts a secret into an argument or a file, and never shows users a path of
// this server.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// Disk reports the free space of the disk that holds the repositories.
type Disk interface {
	// Lacks returns how many bytes must be freed; 0 means that there is enough room.
	Lacks() int64
}

// Config holds what a Fetcher needs. Dir and Egress are required.
type Config struct {
	Dir         string            // caches, known_hosts and scratch files; made 0700; used by one process at a time
	Egress      *egress.Egress    // checks every address
	Hosts       map[string]string // --git-host: host → "http://127.0.0.1:3000", "https://…" or "file:///srv/git"
	Git         string            // program, looked up at each use; "" means git from PATH
	Depth       int               // commits of history that are fetched; 0 means 10
	Timeout     time.Duration     // for a fetch as a whole; 0 means 10 min
	MaxPack     int64             // bytes that one fetch may transfer, and that a cache may hold; 0 means 2 GiB
	MaxSize     int64             // bytes of all files of a commit; 0 means 2 GiB
	MaxFile     int               // files of a commit; 0 means 200,000
	MaxMemory   int64             // bytes per git process, or per git with all its children where cgroups exist; 0 means 512 MiB
	Fetches     int               // concurrent fetches; 0 means 8. One owner has at most 2.
	Looks       int               // concurrent looks; 0 means 3. One owner has at most 1.
	HourlyLooks int               // looks of one owner per hour; 0 means 600
	Disk        Disk              // its Lacks decides when old caches are removed. Optional.
	Log         *slog.Logger
}

// Fetcher fetches. It is safe for concurrent use; fetches of one site wait for each other.
type Fetcher struct {
	c Config
	// share: none, the operator's --git-host
	base  map[string]base
	ca    string     // PEM bundle for git: the system's roots and the operator's; "" means git's own
	known sync.Mutex // guards Dir/hosts
	mu    sync.Mutex // guards sites and the counters inside generations
	// share: total the sites whose repositories are kept; owner its sites; edge the cache used longest ago goes
	sites map[id.Site]*site
	// share: total the commits that deployments read at the time; owner its deployments that run; edge gone with them
	pins map[string]int // open Trees by directory of their generation; guarded by mu

	fetches, looks, polls *fair.Pool
	hourly                quota // looks

	sweeping sync.Mutex // only one goroutine makes room at a time

	helpers *sandbox.Helpers
	ids     sync.Mutex // guards identities and the uids of generations
	// share: total the sites that gits work for, one uid each; owner see fetches, looks and polls; edge gone with the git
	identities map[id.Site]*identity // by site
}

// New checks the configuration and makes the directories. It runs nothing, and only warns if git is missing: uploads don't need it.
func New(c Config) (*Fetcher, error) {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Minute)
	c.MaxPack = cmp.Or(c.MaxPack, 2<<30)
	c.MaxSize = cmp.Or(c.MaxSize, 2<<30)
	c.MaxFile = cmp.Or(c.MaxFile, 200_000)
	c.MaxMemory = cmp.Or(c.MaxMemory, 512<<20)
	c.Depth = cmp.Or(c.Depth, 10)
	c.Fetches = cmp.Or(c.Fetches, 8)
	c.Looks = cmp.Or(c.Looks, 3)
	c.HourlyLooks = cmp.Or(c.HourlyLooks, 600)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	c.Git = cmp.Or(c.Git, "git")
	if _, err := exec.LookPath(c.Git); err != nil {
		c.Log.Warn("git is not installed: sites from repositories can't be deployed", "err", err)
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("source directory: %w", err)
	}
	s := &Fetcher{
		c: c, base: map[string]base{}, sites: map[id.Site]*site{}, pins: map[string]int{}, identities: map[id.Site]*identity{},
		// share: total Config.Fetches (8) fetches at once; owner 2; edge waits in turn
		fetches: fair.New(fair.Config{Places: c.Fetches, Owner: 2}),
		// share: total Config.Looks (3) looks at once, 30 waiting; owner 1, 3 waiting; edge 429, or 503 where all wait, with Retry-After
		looks: fair.New(fair.Config{Places: c.Looks, Owner: 1, Waiting: 30, OwnerWaiting: 3}),
		// share: total 20 polls at once; owner 5; edge waits in turn
		polls:  fair.New(fair.Config{Places: 20, Owner: 5}),
		hourly: quota{most: c.HourlyLooks},
	}
	for host, to := range c.Hosts {
		if s.base[strings.ToLower(host)], err = parseBase(to); err != nil {
			return nil, fmt.Errorf("--git-host %s: %w", host, err)
		}
	}
	if err := os.RemoveAll(s.path("tmp")); err != nil {
		return nil, fmt.Errorf("clear source directory: %w", err)
	}
	for _, d := range []string{"", "sites", "hosts", "tmp"} {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return nil, fmt.Errorf("make source directory: %w", err)
		}
	}
	if err := s.settleLooks(); err != nil {
		return nil, err
	}
	// These files are shown to every git process.
	if err := os.MkdirAll(s.path("etc", "home"), 0o755); err != nil {
		return nil, fmt.Errorf("make source directory: %w", err)
	}
	if s.c.Dir, err = filepath.EvalSymlinks(s.c.Dir); err != nil {
		return nil, fmt.Errorf("source directory: %w", err)
	}
	if s.helpers, err = sandbox.NewHelpers(context.Background(), s.c.Dir, c.Log); err != nil {
		return nil, fmt.Errorf("limit git: %w", err)
	}
	// git-upload-pack ignores configuration from the environment when it serves a local directory, and the operator's
	// repositories often belong to another user. So safe.directory is set in a file.
	// unsynced: each start writes it
	if err := os.WriteFile(s.path("etc", "gitconfig"), []byte("[safe]\n\tdirectory = *\n"), 0o644); err != nil {
		return nil, fmt.Errorf("write git configuration: %w", err)
	}
	if s.ca, err = s.bundle(c.Egress.CAFile()); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Fetcher) path(elem ...string) string {
	return filepath.Join(append([]string{s.c.Dir}, elem...)...)
}

// Credential gives access to a private repository: a token over https, or a deploy key over ssh. If both are set, the
// deploy key is used.
type Credential struct {
	Token     string
	User      string // user name sent with the token; "" means the host's usual one
	DeployKey string // PEM, without a passphrase
	Host      string // the only host that may receive it, as returned by [Repository.Host]; "" only if nothing is stored
}

// LogValue keeps the secrets out of logs.
func (c Credential) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// String keeps the secrets out of error texts.
func (c Credential) String() string { return "[redacted]" }

// GoString keeps the secrets out of %#v.
func (c Credential) GoString() string { return "[redacted]" }

// Request says what to fetch.
type Request struct {
	Site       id.Site // whose cache; letters, digits, - and _
	Repository Repository
	Branch     string // branch, or a tag if no branch has the name; "" means the remote's default branch
	Commit     string // full id; "" means the branch's newest commit
	OnBranch   bool   // the commit must be the branch's newest or an ancestor of it
	Credential *Credential
	Owner      id.Owner // for limits and fair sharing
	Untrusted  bool     // the commit is from a fork: submodules are fetched without the credential
	Depth      int      // commits of history to fetch; 0 means Config's, less than 0 all of them
	Look       bool     // a user waits for the answer before a site exists: the request takes one of few places and is refused if many wait
}

func (r Request) check() error {
	if r.Repository.host == "" {
		_, err := ParseRepository("")
		return err
	}
	if len(r.Site) == 0 || len(r.Site) > 100 ||
		strings.Trim(string(r.Site), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return fmt.Errorf("site id %q is not a directory name", r.Site)
	}
	if r.Commit != "" {
		if err := CheckCommit(r.Commit); err != nil {
			return err
		}
	}
	if c := r.Credential; c != nil && c.Host != "" && c.Host != r.Repository.host {
		return fault.New(fault.Forbidden, "credential_refused",
			fmt.Sprintf("The stored credential is for %s and isn't sent to %s", c.Host, r.Repository.host),
			"store a credential for the new host, or remove it if the repository is public")
	}
	if r.Branch != "" {
		return CheckBranch(r.Branch)
	}
	return nil
}

// headRef is the ref of the commit that was fetched last.
const headRef = "refs/slipway/head"

// Fetch fetches the branch's newest commit, or r.Commit. It returns a fault for errors that the user can fix: the
// repository or branch doesn't exist, the credential is refused, the host can't or mustn't be reached, or something is
// too large. The caller must close the Tree.
func (s *Fetcher) Fetch(ctx context.Context, r Request) (t *Tree, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	place, err := s.place(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || !r.Look {
			place()
		}
	}()
	began := time.Now()
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	unlock, err := s.lock(ctx, r.Site)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.makeRoom(ctx); err != nil {
		return nil, err
	}

	t, err = s.fetch(ctx, r)
	if err != nil {
		if ctx.Err() != nil && parent.Err() == nil && fault.As(err) == nil {
			return nil, slow(r, s.c.Timeout)
		}
		return nil, err
	}
	if r.Look {
		t.place = place // released by Close
	} else if err := s.complete(ctx, r, t); err != nil {
		t.Close()
		if ctx.Err() != nil && parent.Err() == nil && fault.As(err) == nil {
			return nil, slow(r, s.c.Timeout)
		}
		return nil, err
	}
	s.c.Log.InfoContext(ctx, "repository fetched", "site", r.Site, "repository", r.Repository.String(), "branch",
		t.Branch, "commit", t.Commit, "files", len(t.files), "took", time.Since(began))
	return t, nil
}

// complete fetches the submodules and LFS files that the commit refers to.
func (s *Fetcher) complete(ctx context.Context, r Request, t *Tree) error {
	if err := s.lfs(ctx, r, t); err != nil {
		return err
	}
	return s.submodules(ctx, r, t)
}

// place waits for a free place for the request's git processes.
func (s *Fetcher) place(ctx context.Context, r Request) (release func(), err error) {
	if r.Look {
		if err := s.hourly.take(r.Owner); err != nil {
			return nil, err
		}
		give, err := take(ctx, s.looks, r)
		if err != nil {
			return nil, err
		}
		end, err := s.beginLook(r.Repository)
		if err != nil {
			give()
			return nil, err
		}
		return func() { end(); give() }, nil
	}
	return take(ctx, s.fetches, r)
}

func (s *Fetcher) fetch(ctx context.Context, r Request) (*Tree, error) {
	remote, err := s.connect(ctx, r)
	if err != nil {
		return nil, err
	}
	defer remote.close()
	if r.Branch == "" && !strings.Contains(string(r.Site), moduleMark) {
		if _, r.Branch, _, err = s.refs(ctx, remote, r, "HEAD", "refs/heads/main", "refs/heads/master"); err != nil {
			return nil, s.orVacant(ctx, remote, r, err)
		}
		if err := CheckBranch(r.Branch); err != nil {
			return nil, err
		}
	}
	g, err := s.generation(ctx, r.Site, r.Repository.String())
	if err != nil {
		return nil, err
	}
	for {
		t, err := s.update(ctx, remote, r, g)
		if err == nil {
			return t, nil
		}
		if g.fresh && ctx.Err() == nil && (errors.Is(err, errDamaged) || errors.Is(err, errNoCommit)) {
			s.c.Log.InfoContext(ctx, "repository can't be read", "site", r.Site, "err", err)
			return nil, unusable(r, err)
		}
		if g.fresh || ctx.Err() != nil || fault.As(err) != nil {
			return nil, s.orVacant(ctx, remote, r, err)
		}
		// The remote reported no error, so the cache may be damaged.
		s.c.Log.WarnContext(ctx, "cache discarded", "site", r.Site, "err", err)
		if g, err = s.renew(ctx, r.Site, r.Repository.String()); err != nil {
			return nil, err
		}
	}
}

// update runs git fetch in the generation and reads the new commit.
func (s *Fetcher) update(ctx context.Context, remote *remote, r Request, g *generation) (*Tree, error) {
	history := []string{s.shallow(r), "--no-tags"}
	if s.fewTags(ctx, remote, r) {
		history = history[:1] // git then fetches the tags of the fetched commits
	}
	if err := g.begin(); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(g.git(), "refs", "tags")); err != nil { // git doesn't update tags that have moved
		return nil, fmt.Errorf("forget tags: %w", err)
	}
	err := remote.try(func(config [][2]string) error {
		if r.Commit == "" {
			return s.getBranch(ctx, remote, config, r, g, history...)
		}
		if r.OnBranch {
			if err := s.checkBranch(ctx, remote, config, r, g); err != nil {
				return err
			}
		}
		stderr, err := s.get(ctx, remote, config, g, r.Commit, history...)
		if err != nil {
			return s.explain(ctx, r, remote, stderr, err)
		}
		return nil
	})
	if ctx.Err() == nil { // git exited by itself, so it has cleaned up
		g.settled()
	}
	if err != nil {
		return nil, err
	}
	return s.read(ctx, r, g)
}

// shallow returns the depth for git fetch. The largest number means the whole history.
func (s *Fetcher) shallow(r Request) string {
	if r.Depth < 0 {
		return "--depth=" + strconv.Itoa(math.MaxInt32)
	}
	return "--depth=" + strconv.Itoa(cmp.Or(r.Depth, s.c.Depth))
}

// maxTags caps the tags of a repository that are fetched for builds: each is a file in the cache.
const maxTags = 10_000

// fewTags reports whether the repository has between 1 and maxTags tags.
func (s *Fetcher) fewTags(ctx context.Context, remote *remote, r Request) bool {
	if r.Look || strings.Contains(string(r.Site), moduleMark) {
		return false
	}
	_, _, all, err := s.refs(ctx, remote, r, "HEAD", "refs/tags/*")
	return err == nil && len(all) > 0 && len(all) <= maxTags
}

// get fetches a ref or a commit into headRef.
func (s *Fetcher) get(
	ctx context.Context, remote *remote, config [][2]string, g *generation, what string, history ...string,
) (stderr string, err error) {
	return s.run(ctx, command{
		args: slices.Concat([]string{"fetch", "--quiet"}, history, []string{
			"--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance", "--end-of-options", "slipway",
			"+" + what + ":" + headRef,
		}),
		env: remote.env, config: config, site: g.site, gen: g, show: remote.show, ours: remote.ours, several: true, watch: true,
	})
}

// getBranch fetches the request's branch, or the tag of that name if there is no such branch.
func (s *Fetcher) getBranch(
	ctx context.Context, remote *remote, config [][2]string, r Request, g *generation, history ...string,
) error {
	stderr, err := s.get(ctx, remote, config, g, "refs/heads/"+r.Branch, history...)
	if err != nil && strings.Contains(stderr, noRemoteRef) {
		if _, e := s.get(ctx, remote, config, g, "refs/tags/"+r.Branch, history...); e == nil {
			return nil
		}
	}
	if err != nil {
		r.Commit = "" // report the missing branch, not the commit
		return s.explain(ctx, r, remote, stderr, err)
	}
	return nil
}

// Branches lists the repository's branches and its default branch. It also shows whether the repository can be read at
// all. It leaves out names that [CheckBranch] refuses.
func (s *Fetcher) Branches(ctx context.Context, r Request) (branches []string, byDefault string, err error) {
	if err := r.check(); err != nil {
		return nil, "", err
	}
	place, err := s.place(ctx, r)
	if err != nil {
		return nil, "", err
	}
	defer place()
	err = s.ask(ctx, r, func(ctx context.Context, remote *remote) (err error) {
		branches, byDefault, _, err = s.refs(ctx, remote, r, "HEAD", "refs/heads/*")
		return s.orVacant(ctx, remote, r, err)
	})
	return branches, byDefault, err
}

// ask calls f with a connection to the request's host, for at most 1 minute.
func (s *Fetcher) ask(ctx context.Context, r Request, f func(context.Context, *remote) error) error {
	parent := ctx
	most := min(s.c.Timeout, time.Minute)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	remote, err := s.connect(ctx, r)
	if err != nil {
		return err
	}
	defer remote.close()
	if err = f(ctx, remote); err != nil && ctx.Err() != nil && parent.Err() == nil && fault.As(err) == nil {
		err = slow(r, most)
	}
	return err
}

// Heads returns the commits of a repository's branches and tags, keyed by refs/heads/… and refs/tags/…, and its default
// branch. It leaves out names that [CheckBranch] refuses. Heads has its own pool of places, so that slow hosts don't
// delay deployments.
func (s *Fetcher) Heads(ctx context.Context, r Request) (refs map[string]string, byDefault string, err error) {
	if err := r.check(); err != nil {
		return nil, "", err
	}
	place, err := take(ctx, s.polls, r)
	if err != nil {
		return nil, "", err
	}
	defer place()
	err = s.ask(ctx, r, func(ctx context.Context, remote *remote) (err error) {
		_, byDefault, refs, err = s.refs(ctx, remote, r, "HEAD", "refs/heads/*", "refs/tags/*")
		return err
	})
	return refs, byDefault, err
}

// maxBranches caps the listed branches: a host can announce any number.
const maxBranches = 20_000

// refs lists the remote's refs. byDefault is "" if HEAD points nowhere.
func (s *Fetcher) refs(
	ctx context.Context,
	remote *remote,
	r Request,
	patterns ...string,
) (branches []string, byDefault string, all map[string]string, err error) {
	var out limited
	err = remote.try(func(config [][2]string) error {
		out = limited{max: 8 << 20}
		stderr, err := s.run(ctx, command{
			args:   append([]string{"ls-remote", "--symref", "--end-of-options", "slipway"}, patterns...),
			env:    remote.env,
			config: config, show: remote.show, ours: remote.ours, several: true,
			stdout: &out,
		})
		if err != nil {
			return s.explain(ctx, r, remote, stderr, err)
		}
		return nil
	})
	if err != nil {
		return nil, "", nil, err
	}
	if out.over {
		return nil, "", nil, tooLarge(r, "it has too many branches")
	}
	head := ""
	ids := map[string]string{}
	all = map[string]string{}
	for line := range strings.Lines(out.String()) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if to, symbolic := strings.CutPrefix(id, "ref: "); symbolic && name == "HEAD" {
			if b, ok := strings.CutPrefix(to, "refs/heads/"); ok && CheckBranch(b) == nil { // the host can send any name
				byDefault = b
			}
		} else if name == "HEAD" {
			head = strings.Trim(id, "0") // git sends zeros if it doesn't trust the host
		} else if b, ok := strings.CutPrefix(name, "refs/heads/"); ok && CheckBranch(b) == nil {
			if len(branches) == maxBranches {
				return nil, "", nil, tooLarge(r, fmt.Sprintf("it has more than %d branches", maxBranches))
			}
			branches = append(branches, b)
			ids[b], all[name] = id, id
		} else if t, ok := strings.CutPrefix(name, "refs/tags/"); ok && len(all) < 2*maxBranches {
			// The line of an annotated tag is followed by one for the commit that it points to.
			t = strings.TrimSuffix(t, "^{}")
			if CheckBranch(t) == nil {
				all["refs/tags/"+t] = id
			}
		}
	}
	if byDefault == "" { // old servers don't send the target of HEAD
		for _, b := range []string{"main", "master"} {
			if ids[b] != "" && (strings.Trim(ids[b], "0") == head || head == "") {
				byDefault = b
				break
			}
		}
	}
	if byDefault == "" || head == "" && len(branches) == 0 {
		return nil, "", nil, noDefault(r)
	}
	return branches, byDefault, all, nil
}

// Forget removes the caches of a site and of its submodules. A cache that a Tree still reads from is removed when the
// Tree is closed.
func (s *Fetcher) Forget(ctx context.Context, site id.Site) error {
	if err := (Request{Site: site, Repository: Repository{"x", "x/x"}}).check(); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, site)
	if err != nil {
		return err
	}
	defer unlock()
	if err := errors.Join(s.forget(site), s.forgetHosts(site)); err != nil {
		return fmt.Errorf("forget cache of %s: %w", site, err)
	}
	return s.forgetModules(ctx, site)
}

// bundle writes one PEM file with the system's roots and the operator's, because git reads only one file. It holds
// certificates, no secrets.
func (s *Fetcher) bundle(extra string) (string, error) {
	if extra == "" {
		return "", nil
	}
	var all []byte
	for _, f := range []string{
		os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if b, err := os.ReadFile(f); err == nil {
			all = append(b, '\n')
			break
		}
	}
	b, err := os.ReadFile(extra)
	if err != nil {
		return "", fmt.Errorf("read outbound CA file: %w", err)
	}
	to := s.path("etc", "roots.pem")
	// unsynced: each start writes it
	if err := os.WriteFile(to, append(all, b...), 0o644); err != nil {
		return "", fmt.Errorf("write roots for git: %w", err)
	}
	return to, nil
}

// limited keeps the first max bytes and records whether there were more.
type limited struct {
	strings.Builder
	max  int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.max - l.Len(); len(p) > room {
		l.over = true
		l.Builder.Write(p[:max(room, 0)])
	} else {
		l.Builder.Write(p)
	}
	return len(p), nil
}

var _ io.Writer = (*limited)(nil)

var errCorrupt = errors.New("cache is corrupt")
