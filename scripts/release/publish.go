package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/mod/semver"
)

// publish copies a release into a folder of releases and adds it to the file versions, which slipway upgrade --auto
// reads from this folder or from a web server. An existing release never changes. A release that was deleted by hand
// disappears from the list at the next publication.
func (r *release) publish(releases string) error {
	if err := r.mayPublish(releases); err != nil {
		return err
	}
	folder := filepath.Join(releases, r.version)
	switch _, err := os.Stat(folder); {
	case err == nil:
		if err := sameFiles(r.out, folder); err != nil {
			return fmt.Errorf("%s was published before, and is another one: %w", r.version, err)
		}
	case errors.Is(err, fs.ErrNotExist):
		// The folder is renamed when it is complete, so that clients never see a partial release.
		part := filepath.Join(releases, ".publishing-"+r.version)
		if err := os.RemoveAll(part); err != nil {
			return err
		}
		if err := os.CopyFS(part, os.DirFS(r.out)); err != nil {
			return err
		}
		if err := os.Rename(part, folder); err != nil {
			return err
		}
	default:
		return err
	}
	if r.aptKey != "" {
		if err := r.apt(releases); err != nil {
			return err
		}
	}
	list, err := published(releases)
	if err != nil {
		return err
	}
	signature := minisign.SignWithComments(*r.signer, list, "versions of slipway until "+r.version, "signature of versions of Slipway")
	// The list is written last, so that clients don't look for an incomplete release.
	if err := place(filepath.Join(releases, "versions.minisig"), signature); err != nil {
		return err
	}
	if err := place(filepath.Join(releases, "versions"), list); err != nil {
		return err
	}
	fmt.Printf("published %s in %s\n", r.version, folder)
	return nil
}

// mayPublish returns an error for a release that no installation would accept.
func (r *release) mayPublish(releases string) error {
	if r.signer == nil {
		return errors.New("-publish needs -sign: installations upgrade by themselves to signed releases alone")
	}
	if !isRelease(r.version) {
		return fmt.Errorf("%s is not a release: tag the commit v and the version that VERSION has", r.version)
	}
	return r.mayIndex(releases)
}

func isRelease(version string) bool {
	return semver.IsValid("v"+version) && semver.Canonical("v"+version) == "v"+version && semver.Build("v"+version) == ""
}

// published returns the versions of the signed releases in a folder, one per line, oldest first.
func published(releases string) ([]byte, error) {
	folders, err := os.ReadDir(releases)
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, f := range folders {
		if _, err := os.Stat(filepath.Join(releases, f.Name(), "SHA256SUMS.minisig")); err == nil && isRelease(f.Name()) {
			versions = append(versions, f.Name())
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
	return []byte(strings.Join(versions, "\n") + "\n"), nil
}

// sameFiles returns an error unless two folders have the same files.
func sameFiles(a, b string) error {
	one, err := os.ReadDir(a)
	if err != nil {
		return err
	}
	two, err := os.ReadDir(b)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(one, two, func(x, y fs.DirEntry) bool { return x.Name() == y.Name() }) {
		return errors.New("it has other files")
	}
	for _, f := range one {
		x, err := os.ReadFile(filepath.Join(a, f.Name()))
		if err != nil {
			return err
		}
		y, err := os.ReadFile(filepath.Join(b, f.Name()))
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			return fmt.Errorf("%s differs", f.Name())
		}
	}
	return nil
}
