package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"slipway/packaging"
)

// platforms lists the platforms of the provider for Terraform and OpenTofu.
var platforms = []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64"}

// provider writes slipway_VERSION_terraform.tar.gz: the folder from which an installation serves the provider, in the
// format of the provider network mirror protocol. Its version is the release's without the commit, which Terraform and
// OpenTofu ignore.
func (r *release) provider(work string) error {
	if !r.terraform {
		return nil
	}
	version, _, _ := strings.Cut(r.version, "+")
	files := map[string][]byte{}
	order := []string{"index.json", version + ".json"}
	type archive struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes"`
	}
	archives := map[string]archive{}
	for _, platform := range platforms {
		program, err := r.buildProvider(platform, version, work)
		if err != nil {
			return err
		}
		name := "terraform-provider-slipway_" + version + "_" + platform + ".zip"
		inside := "terraform-provider-slipway_v" + version
		if strings.HasPrefix(platform, "windows_") {
			inside += ".exe"
		}
		packed, sum, err := r.zip(inside, program)
		if err != nil {
			return err
		}
		archives[platform] = archive{name, []string{sum}}
		files[name], order = packed, append(order, name)
	}
	for name, v := range map[string]any{
		"index.json":      map[string]any{"versions": map[string]any{version: struct{}{}}},
		version + ".json": map[string]any{"archives": archives},
	} {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		files[name] = append(text, '\n')
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b) // its contents are already compressed
	t := tar.NewWriter(z)
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "terraform/", Mode: 0o755, ModTime: r.date, Format: tar.FormatPAX}); err != nil {
		return err
	}
	for _, name := range order {
		h := &tar.Header{Name: "terraform/" + name, Mode: 0o644, Size: int64(len(files[name])), ModTime: r.date, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(files[name]); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return write(filepath.Join(r.out, "slipway_"+r.version+"_terraform.tar.gz"), b.Bytes(), 0o644)
}

// buildProvider builds the provider for a platform and returns its path.
func (r *release) buildProvider(platform, version, work string) (string, error) {
	if r.program != "" {
		return r.program, nil
	}
	system, arch, _ := strings.Cut(platform, "_")
	program := filepath.Join(work, "provider-"+platform)
	err := command([]string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch, "GOFLAGS="},
		"go", "-C", "terraform", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version, "-o", program, ".")
	if err != nil {
		return "", fmt.Errorf("the provider for %s: %w", platform, err)
	}
	return program, nil
}

// zip returns an archive of a program and its licenses, with the commit's date, and the archive's checksum for lock
// files.
func (r *release) zip(name, program string) (packed []byte, sum string, err error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	files := map[string][]byte{name: text, licenses: []byte(packaging.Licenses())}
	names := []string{name, licenses}
	for _, one := range names {
		h := &zip.FileHeader{Name: one, Method: zip.Deflate, Modified: r.date}
		h.SetMode(0o644)
		if one == name {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(files[one])
		}
		if err != nil {
			return nil, "", err
		}
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	sum, err = dirhash.Hash1(names, func(name string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files[name])), nil })
	return b.Bytes(), sum, err
}
