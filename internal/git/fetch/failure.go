package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

const (
	codeMissing   = "repository_not_found"
	codeNoBranch  = "branch_not_found"
	codeNoDefault = "no_default_branch"
	noRemoteRef   = "couldn't find remote ref"
)

// errDamaged means that git can't read a repository: either the host sent damaged data or the cache is damaged. If the
// cache was empty, it is the host.
var errDamaged = errors.New("objects are damaged or missing")

// explain turns git's error output into a fault for the user. An error that only the operator can fix stays a plain
// error, without secrets and paths.
func (s *Fetcher) explain(ctx context.Context, r Request, m *remote, stderr string, err error) error {
	if fault.As(err) != nil {
		return err
	}
	if disk.Full(err) {
		return fmt.Errorf("fetch %s: %w", r.Repository, err)
	}
	if errors.Is(err, errTooLarge) {
		return tooLarge(r, "it is over the limit of "+text.Size(s.c.MaxPack))
	}
	if errors.Is(err, errMemory) {
		return tooLarge(r, "git needs more than "+text.Size(s.c.MaxMemory)+" of memory to unpack it")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fetch %s: %w", r.Repository, context.Cause(ctx))
	}
	refused := m.refused()
	said := stderr + "\n" + m.said()
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(said, w) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(refused, egress.ErrQuota):
		return tooLarge(r, "it is over the limit of "+text.Size(s.c.MaxPack))
	case errors.Is(refused, egress.ErrBlocked), errors.Is(refused, egress.ErrPolicy):
		return blocked(r)
	case refused != nil:
		return unreachable(r)
	case r.Commit != "" && has("not our ref", "couldn't find remote ref", "unadvertised object", "no such remote ref"):
		return fault.New(fault.Invalid, "commit_not_found",
			fmt.Sprintf("Commit %.12s does not exist in %s", r.Commit, r.Repository),
			"it may have been removed by a forced push, or the host does not serve single commits; deploy the branch instead").Got(r.Commit)
	case has(noRemoteRef):
		return noBranch(r)
	case has("returned error: 301", "returned error: 302", "returned error: 303", "returned error: 307", "returned error: 308"):
		return fault.New(fault.Invalid, "repository_moved", fmt.Sprintf("Repository %s has moved", r.Repository),
			"the host answered with a redirect; enter the new location")
	case m.private &&
		has("Authentication failed", "could not read Username", "could not read Password", "returned error: 401",
			"returned error: 403", "Permission denied"):
		return refusedCredential(r)
	case has("could not read Username", "could not read Password", "Authentication failed", "returned error: 401",
		"returned error: 403", "returned error: 404", "returned error: 410", "not found", "Not Found", "does not exist",
		"not appear to be a git repository", "Could not read from remote repository"):
		return absent(r)
	case has("SSL certificate", "certificate verif", "SSL: ", "gnutls_handshake", "SSL_connect", "TLS connect"):
		return fault.New(fault.Invalid, "certificate_refused",
			fmt.Sprintf("The certificate of %s is not trusted", r.Repository.host), "")
	case has("transfer too slow", "Operation too slow", "Operation timed out", "returned error: 50",
		"returned error: 429", "Failed to connect", "Empty reply", "early EOF", "hung up unexpectedly",
		"unexpected disconnect", "Connection reset", "transfer closed", "RPC failed"):
		return unreachable(r)
	case has("fsck error", "fsck: "):
		return fault.New(fault.Invalid, "repository_refused",
			fmt.Sprintf("Repository %s contains malformed or unsafe objects", r.Repository),
			"run git fsck --strict to list them")
	case has("remote error: "):
		return hostRefused(r, "it said: "+s.remark(said, "remote error: ", m))
	case has("No space left", "Disk quota exceeded"):
		err = fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case has("Read-only file system", "Input/output error", "unable to create", "unable to write", "cannot fork",
		"Resource temporarily unavailable"):
		// These are problems of this server, whatever git prints after them.
	case has("returned error: 4"):
		return hostRefused(r, "it answered with HTTP status "+s.remark(said, "returned error: ", m))
	case has("is this a git repository?"): // a web page, such as a sign-in page
		return absent(r)
	case has("mismatched algorithms", "unknown object format"):
		return fault.New(fault.Invalid, "object_format",
			fmt.Sprintf("Repository %s has an object format that is not supported", r.Repository),
			"only SHA-1 repositories can be deployed")
	case has("protocol error", "invalid server response", "invalid ls-refs response", "dumb http", "fetch-pack: expected"):
		return fault.New(fault.Invalid, "git_protocol", fmt.Sprintf("Host %s did not answer as a Git server", r.Repository.host),
			"it must speak Git's smart HTTP protocol and serve shallow clones; check the repository's address")
	case has("invalid index-pack output", "did not send all necessary objects", "did not receive expected object",
		"bad object", "unresolved delta"):
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return fmt.Errorf("fetch %s: %w: %s", r.Repository, err, s.scrub(stderr, m))
}

// remark returns the rest of the line that begins with after in git's output, cleaned for users.
func (s *Fetcher) remark(said, after string, m *remote) string {
	_, text, _ := strings.Cut(said, after)
	text, _, _ = strings.Cut(text, "\n")
	return clean([]byte(s.scrub(text, m)), 200)
}

// scrub returns one line without secrets, addresses of the proxy, or paths of this machine.
func (s *Fetcher) scrub(stderr string, m *remote) string {
	for _, secret := range m.secrets {
		if secret != "" {
			stderr = strings.ReplaceAll(stderr, secret, "…")
		}
	}
	stderr = strings.ReplaceAll(stderr, s.c.Dir, "…")
	line := strings.Join(strings.Fields(strings.ToValidUTF8(stderr, "?")), " ")
	if len(line) > 500 {
		line = strings.ToValidUTF8(line[:500], "") + "…"
	}
	return line
}

func absent(r Request) error {
	e := fault.New(fault.NotFound, codeMissing,
		fmt.Sprintf("Repository %s not found, or it is private and no token is stored", r.Repository), "")
	if r.Credential != nil && (r.Credential.Token != "" || r.Credential.DeployKey != "") {
		e.Message = fmt.Sprintf("Repository %s not found, or the stored credential has no access to it", r.Repository)
	}
	return e
}

func hostRefused(r Request, why string) error {
	return fault.New(fault.Forbidden, "host_refused", fmt.Sprintf("Host %s refused to serve %s", r.Repository.host, r.Repository),
		why)
}

// unusable returns the fault of a repository whose data was damaged although the cache was empty.
func unusable(r Request, err error) error {
	if errors.Is(err, errNoCommit) {
		return fault.New(fault.Invalid, "not_a_commit",
			fmt.Sprintf("%s in %s is not a commit", cmp.Or(r.Commit, r.Branch), r.Repository),
			"deploy a branch, or a tag of a commit")
	}
	return fault.New(fault.Invalid, "repository_damaged",
		fmt.Sprintf("Repository %s can't be read: objects are damaged or missing", r.Repository),
		"run git fsck --full on its host")
}

func noBranch(r Request) error {
	return &fault.Error{Kind: fault.NotFound, Code: codeNoBranch, Message: fmt.Sprintf("Branch %s not found in %s", r.Branch, r.Repository)}
}

func noDefault(r Request) error {
	return fault.New(fault.Invalid, codeNoDefault, fmt.Sprintf("Repository %s has no default branch", r.Repository),
		"set a branch in the site's settings")
}

func refusedCredential(r Request) error {
	return fault.New(fault.Forbidden, "credential_refused",
		fmt.Sprintf("%s rejected the stored credential for %s", r.Repository.host, r.Repository),
		"it may be revoked, expired or without access to this repository")
}

func blocked(r Request) error {
	return fault.New(fault.Forbidden, "host_blocked", fmt.Sprintf("Host %s is not allowed", r.Repository.host),
		"its address is private; the operator can allow it with --outbound-allow or --git-host")
}

func unreachable(r Request) error {
	return &fault.Error{
		Kind:       fault.Unavailable,
		Code:       "host_unreachable",
		Message:    fmt.Sprintf("Host %s could not be reached", r.Repository.host),
		RetryAfter: time.Minute,
	}
}

func slow(r Request, after time.Duration) error {
	return &fault.Error{
		Kind:       fault.Unavailable,
		Code:       "fetch_timeout",
		Message:    fmt.Sprintf("Fetching %s took longer than %s", r.Repository, after),
		RetryAfter: time.Minute,
	}
}

func tooLarge(r Request, why string) error {
	return fault.New(fault.TooLarge, "repository_too_large", fmt.Sprintf("Repository %s is too large", r.Repository), why)
}
