package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// suite is the path of apt's index in a folder of releases.
const suite = "dists/stable"

// apt turns a folder of releases into an apt repository: it adds an index of the packages, signed with gpg, and the
// public key. Prereleases (1.0.0-rc1) aren't included.
func (r *release) apt(releases string) error {
	list, err := published(releases)
	if err != nil {
		return err
	}
	index := map[string]*strings.Builder{} // by architecture
	for version := range strings.FieldsSeq(string(list)) {
		if semver.Prerelease("v"+version) != "" {
			continue
		}
		packages, err := filepath.Glob(filepath.Join(releases, version, "slipway_"+version+"_*.deb"))
		if err != nil {
			return err
		}
		for _, file := range packages {
			_, arch, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".deb"), version+"_")
			if index[arch] == nil {
				index[arch] = &strings.Builder{}
			}
			if err := stanza(index[arch], file, version); err != nil {
				return err
			}
		}
	}
	archs := slices.Sorted(maps.Keys(index))
	var sums strings.Builder
	for _, arch := range archs {
		name := "main/binary-" + arch + "/Packages"
		packages := []byte(index[arch].String())
		sum := fmt.Sprintf("%x", sha256.Sum256(packages))
		fmt.Fprintf(&sums, " %s %d %s\n", sum, len(packages), name)
		// Also by checksum, so that a client with an older or newer signed list finds the index that it names.
		hashed := filepath.Join(releases, suite, filepath.Dir(name), "by-hash/SHA256", sum)
		if err := errors.Join(place(hashed, packages), place(filepath.Join(releases, suite, name), packages)); err != nil {
			return err
		}
	}
	signed, err := r.gpg(fmt.Sprintf(`Origin: Slipway
Label: Slipway
Suite: stable
Codename: stable
Date: %s
Architectures: %s
Components: main
Acquire-By-Hash: yes
SHA256:
%s`, time.Now().UTC().Format(time.RFC1123), strings.Join(archs, " "), &sums), "--yes", "--clearsign", "--digest-algo", "SHA512", "--local-user", r.aptKey)
	if err != nil {
		return err
	}
	public, err := r.gpg("", "--armor", "--export", r.aptKey)
	if err != nil {
		return err
	}
	return errors.Join(place(filepath.Join(releases, "slipway.asc"), public), place(filepath.Join(releases, suite, "InRelease"), signed))
}

// stanza writes a package's entry in the index.
func stanza(b *strings.Builder, file, version string) error {
	fields, err := exec.Command("dpkg-deb", "--field", file).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb --field %s: %w", file, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s\nFilename: %s/%s\nSize: %d\nSHA256: %x\n\n", bytes.TrimSpace(fields), version, filepath.Base(file), len(text), sha256.Sum256(text))
	return nil
}

// mayIndex returns an error if the new index would omit an indexed release, or the key can't sign.
func (r *release) mayIndex(releases string) error {
	if r.aptKey == "" {
		if _, err := os.Stat(filepath.Join(releases, suite)); err == nil {
			return fmt.Errorf("apt installs from %s: name the key of its index with -apt-key", releases)
		}
		return nil
	}
	_, err := r.gpg("", "--list-secret-keys", r.aptKey)
	return err
}

// gpg returns gpg's output for a text. gpg prints nothing for some errors, such as an unknown key.
func (r *release) gpg(text string, args ...string) ([]byte, error) {
	c := exec.Command("gpg", append([]string{"--batch", "--quiet"}, args...)...)
	c.Stdin, c.Stderr = strings.NewReader(text), os.Stderr
	out, err := c.Output()
	if err == nil && len(out) == 0 {
		err = errors.New("no such key")
	}
	if err != nil {
		return nil, fmt.Errorf("gpg with the key %s: %w", r.aptKey, err)
	}
	return out, nil
}

// place replaces a file atomically, because it may be read at the same time.
func place(name string, text []byte) error {
	if err := write(name+".part", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}
