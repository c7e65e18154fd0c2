package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// lfsServer is the address of a repository's batch API and the headers for it.
type lfsServer struct {
	url    string // without /objects/batch
	header map[string]string
}

// lfsOverSSH asks an SSH host for the address and headers of its LFS server (git-lfs, docs/api/server-discovery.md),
// because a deploy key doesn't work over HTTP.
func (s *Fetcher) lfsOverSSH(ctx context.Context, r Request) (at lfsServer, err error) {
	ctx, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	b := &bridge{s: s, r: r}
	client, hangUp, err := b.dial(ctx)
	if err != nil {
		return at, err
	}
	defer hangUp()
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return at, fmt.Errorf("open SSH session: %w", err)
	}
	defer session.Close()
	out := limited{max: 64 << 10}
	session.Stdout, session.Stderr = &out, &complaint{b}
	if err := runFar(ctx, session, "git-lfs-authenticate '"+r.Repository.path+".git' download"); err != nil {
		return at, fmt.Errorf("git-lfs-authenticate: %w", err)
	}
	var answer struct {
		Href   string            `json:"href"`
		Header map[string]string `json:"header"`
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(out.String()))).Decode(&answer); err != nil || out.over {
		return at, errors.New("git-lfs-authenticate: the answer can't be read")
	}
	u, err := url.Parse(answer.Href)
	if err != nil || u.User != nil || u.Scheme != "https" && !strings.HasPrefix(answer.Href, s.base[r.Repository.host].url+"/") ||
		u.Host == "" {
		return at, errors.New("git-lfs-authenticate: the host names no https address")
	}
	return lfsServer{strings.TrimSuffix(answer.Href, "/"), answer.Header}, nil
}

// runFar runs one remote command until it exits or ctx ends. The remote shell can't be tricked with quotes:
// ParseRepository refuses them.
func runFar(ctx context.Context, session *ssh.Session, command string) error {
	ended := make(chan error, 1)
	// uncaught: copies bytes
	go func() { ended <- session.Run(command) }() // ends when the caller closes the connection
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
