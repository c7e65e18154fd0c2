package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway/scripts/internal/sbom"
)

// short returns the name of a cluster image on the command line.
func (k *kind) short() string {
	if k.suffix != "" {
		return k.suffix[1:]
	}
	return strings.TrimPrefix(k.name, "slipway-")
}

func clusterNames() (all []string) {
	for i := range clusterKinds {
		all = append(all, clusterKinds[i].short())
	}
	return all
}

// cluster makes cluster images with the programs of the module cluster, and a list of each image's components.
func (i *image) cluster(of string, date int64) error {
	if i.out == "" || i.version == "" {
		return fmt.Errorf("-out and -version are required")
	}
	if err := i.dated(date); err != nil {
		return err
	}
	if err := os.MkdirAll(i.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "slipway-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	names := clusterNames()
	if of != "all" {
		names = strings.Split(of, ",")
	}
	for _, name := range names {
		n := slices.Index(clusterNames(), name)
		if n < 0 {
			return fmt.Errorf("no image is called %q: there are %s", name, strings.Join(clusterNames(), ", "))
		}
		if err := i.one(&clusterKinds[n], work); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// one makes one cluster image. work holds what images share.
func (i *image) one(k *kind, work string) error {
	one := *i
	one.kind = k
	var err error
	if one.program, err = i.build(k.program, work); err != nil {
		return err
	}
	if k.beside != "" {
		if one.beside, err = i.build(k.beside, work); err != nil {
			return err
		}
	}
	if i.base == "" {
		one.keep, one.layers = "", cmp.Or(i.keep, work)
		one.base = filepath.Join(one.layers, one.layerName())
		if !exists(one.base) {
			part := filepath.Join(work, "part.tar") // mmdebstrap takes the format from the name
			if err := one.first(part, work); err != nil {
				return err
			}
			if err := move(part, one.base); err != nil {
				return err
			}
		}
	}
	file := strings.ReplaceAll(one.tag(), ":", "_") + "_" + i.arch
	one.out = filepath.Join(i.out, file+".oci.tar")
	if err := one.run(i.date.Unix()); err != nil {
		return err
	}
	parts, err := one.parts()
	if err != nil {
		return err
	}
	fmt.Println(one.out)
	return sbom.Write(filepath.Join(i.out, file+".cdx.json"), i.date, sbom.Component{Type: "container", Name: k.name, Version: i.version + k.suffix, License: sbom.Own}, parts)
}

// layerName returns the file name of a first layer. Equal layers have the same name.
func (i *image) layerName() string {
	sum := sha256.Sum256([]byte(strings.Join(append(append([]string{i.arch}, i.kind.packages...), i.kind.hooks...), "\n")))
	return "layer-" + hex.EncodeToString(sum[:8]) + ".tar"
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// move moves a file, even to another file system.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Rename(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), "part-")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return errors.Join(os.Rename(out.Name(), to), os.Remove(from))
}

// build builds the program for a path in the image, unless it was built before.
func (i *image) build(at, work string) (file string, err error) {
	name := map[string]string{"slipway/program": "slipway-program", "slipway/build": "slipway-build"}[at]
	if name == "" {
		name = path.Base(at)
	}
	file = filepath.Join(work, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	run := func(args ...string) error {
		c := exec.Command("go", args...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+i.arch, "GOFLAGS=")
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		return nil
	}
	flags := []string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + i.version, "-o", file}
	if name != "slipway" {
		return file, run(slices.Concat([]string{"-C", "cluster"}, flags, []string{"./cmd/" + name})...)
	}
	if err := run("generate", "./internal/platform/sandbox"); err != nil {
		return "", err
	}
	return file, run(append(flags, "-tags", "slipway_init", "./cmd/slipway")...)
}
