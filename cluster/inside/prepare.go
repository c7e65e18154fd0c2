// Package inside owns what runs in a program's pod: the step that lays out its files and proves that its network is
// closed, and the entry point that starts the program, forwards connections to it, and reports how it ended. It trusts
// its description, but neither the network nor the program.
package inside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
	"slipway/internal/program/runtime"
)

// Time limits for fetching files and for the network policies of a new pod, which some network plug-ins apply seconds
// late.
const (
	fetchPatience   = 5 * time.Minute
	networkPatience = 30 * time.Second
)

// answerPatience is the wait for a response from a listening address, long enough for one retransmission.
const answerPatience = 1200 * time.Millisecond

func readDescription() (d pod.Description, err error) {
	text, err := os.ReadFile(pod.SpecFile)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}

// Prepare lays out a program's files. It returns nil only if the pod can't reach the canary.
func Prepare(ctx context.Context) error {
	d, err := readDescription()
	if err != nil {
		return fmt.Errorf("read the program's description: %w", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- proveClosed(ctx, d.Canary, networkPatience) }()
	if err := lay(ctx, d); err != nil {
		return err
	}
	return <-closed
}

// errOpen means that the pod reaches an address that must be closed to it.
var errOpen = errors.New("the cluster does not enforce its network policies: " +
	"the pod reaches an address that is closed to it, so the program was not started")

// proveClosed waits until a listening address is no longer reachable.
func proveClosed(ctx context.Context, canary string, patience time.Duration) error {
	if canary == "" {
		return nil
	}
	dialer := net.Dialer{Timeout: answerPatience}
	for late := time.Now().Add(patience); ; {
		c, err := dialer.DialContext(ctx, "tcp", canary)
		if err != nil {
			return context.Cause(ctx) // nil if refused or not answered, as required
		}
		c.Close()
		if time.Now().After(late) {
			return errOpen
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lay lays out trees and creates the mount points of the Secret's files and temporary folders.
func lay(ctx context.Context, d pod.Description) error {
	client, err := clientOf(d.CA)
	if err != nil {
		return err
	}
	app, err := os.OpenRoot(runtime.AppDir)
	if err != nil {
		return err
	}
	defer app.Close()
	for i, t := range d.Trees {
		if t.Stage != "" {
			if err := stage(ctx, client, d, t); err != nil {
				return err
			}
			continue
		}
		if t.Path == "" {
			if err := fetch(ctx, client, d, t, app); err != nil {
				return err
			}
			continue
		}
		if err := cover(ctx, client, d, t, app, ".slipway-"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	for _, name := range d.Files { // the Secret's file is mounted over it
		if err := place(app, name); err != nil {
			return err
		}
		if err := app.WriteFile(name, nil, 0o444); err != nil {
			return err
		}
	}
	for i, name := range d.Temporary { // the folder is mounted over it
		if err := app.MkdirAll(name, 0o755); err != nil {
			return err
		}
		staged := path.Join(pod.StageDir, strconv.Itoa(i))
		if err := copyTree(app, name, staged); err != nil {
			return err
		}
		if err := makePlaces(d, name, staged); err != nil {
			return err
		}
	}
	return store(d, app)
}

// stage lays out a tree in the volume it is mounted from.
func stage(ctx context.Context, client *http.Client, d pod.Description, t pod.Tree) error {
	into, err := os.OpenRoot(t.Stage)
	if err != nil {
		return err
	}
	defer into.Close()
	return fetch(ctx, client, d, t, into)
}

// makePlaces creates the storage folders that trees are mounted over, owned by the program's user.
func makePlaces(d pod.Description, folder, at string) error {
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, t := range d.Trees {
		if below, ok := strings.CutPrefix(t.Path, folder+"/"); ok && t.Stage != "" {
			if err := root.MkdirAll(below, 0o755); err != nil {
				return fmt.Errorf("make room for %s: %w", t.Path, err)
			}
		}
	}
	return nil
}

// place removes whatever is at path and creates its parent directory.
func place(app *os.Root, name string) error {
	if err := app.RemoveAll(name); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		return app.MkdirAll(dir, 0o755)
	}
	return nil
}

// cover replaces what is at a tree's path by the tree, or by a folder of it.
func cover(ctx context.Context, client *http.Client, d pod.Description, t pod.Tree, app *os.Root, beside string) error {
	if err := app.Mkdir(beside, 0o755); err != nil {
		return err
	}
	tree, err := app.OpenRoot(beside)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := fetch(ctx, client, d, t, tree); err != nil {
		return err
	}
	if err := place(app, t.Path); err != nil {
		return err
	}
	if err := app.Rename(path.Join(beside, t.From), t.Path); err != nil {
		return err
	}
	return app.RemoveAll(beside)
}

// trust returns a configuration that trusts only the given certificate.
func trust(ca string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("the program's description has no certificate")
	}
	return &tls.Config{RootCAs: roots, ServerName: "slipway", MinVersion: tls.VersionTLS13}, nil
}

func clientOf(ca string) (*http.Client, error) {
	trusted, err := trust(ca)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout:       fetchPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{TLSClientConfig: trusted},
	}, nil
}

// errUnreached means that the pod can't reach the control plane.
type errUnreached struct{ error }

// fetch downloads and unpacks a bundle. It retries until the control plane is reachable, since a new pod's network may
// take a while.
func fetch(ctx context.Context, client *http.Client, d pod.Description, t pod.Tree, into *os.Root) error {
	address := "https://" + d.Address + "/" + t.Bundle + "?" + t.Query
	late := time.Now().Add(networkPatience)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				why, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
				return fmt.Errorf("fetch the program's files: %s: %s", resp.Status, why)
			}
			if err := bundle.Unpack(resp.Body, bundle.ID(t.Bundle), into, d.MaxBytes); err != nil {
				return fmt.Errorf("fetch the program's files: %w", err)
			}
			return nil
		}
		if !errors.As(err, new(*net.OpError)) {
			return fmt.Errorf("fetch the program's files: %w", err)
		}
		if time.Now().After(late) {
			return errUnreached{fmt.Errorf("fetch the program's files: %w", err)}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// copyTree copies a folder's files and links to another folder, writable for its owner.
func copyTree(app *os.Root, name, to string) error {
	from, err := app.OpenRoot(name)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer out.Close()
	return fs.WalkDir(from.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || p == ".":
			return err
		case e.IsDir():
			return out.Mkdir(p, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			target, err := from.Readlink(p)
			if err != nil {
				return err
			}
			return out.Symlink(target, p)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		src, err := from.Open(p)
		if err != nil {
			return err
		}
		defer src.Close()
		dst, err := out.OpenFile(filepath.FromSlash(p), os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(dst, src)
		return errors.Join(err, dst.Close())
	})
}
