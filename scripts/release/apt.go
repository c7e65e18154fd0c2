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

// suite is where apt looks for the index of a folder of releases.
const suite = "dists/stable"

// apt makes a folder of releases one that apt installs from: an index of the packages where they lie, signed by gpg, and its
// public key. Versions before a release (1.0.0-rc1) are not in it.
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
		// By its checksum besides, so that who reads the signed list of before or of after finds the index that it names.
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

// stanza writes what apt must know of a package.
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

// mayIndex refuses to leave a release out of the index that is there, and a key that can't sign.
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

// gpg returns what gpg makes of a text. It says nothing where it has nothing to say, as of a key that it doesn't have.
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

// place writes a file that is read meanwhile: what is read is the one before or this one.
func place(name string, text []byte) error {
	if err := write(name+".part", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}
