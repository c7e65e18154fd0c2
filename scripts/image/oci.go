package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"slipway/packaging"
)

// layer is a layer in an image's manifest.
type layer struct {
	descriptor
	diff string // digest of the uncompressed tar
	what string
}

// descriptor refers to a part of an image (OCI image specification, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive writes an OCI image layout into a tar.
type archive struct {
	f    *os.File
	w    *tar.Writer
	date time.Time
}

func newArchive(name string, date time.Time) (*archive, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	a := &archive{f: f, w: tar.NewWriter(f), date: date}
	return a, a.add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
}

// abandon deletes an unfinished archive.
func (a *archive) abandon() {
	if a.f != nil {
		a.f.Close()
		os.Remove(a.f.Name())
	}
}

func (a *archive) header(name string, size int64) error {
	return a.w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: a.date, Format: tar.FormatPAX})
}

func (a *archive) add(name string, text []byte) error {
	err := a.header(name, int64(len(text)))
	if err == nil {
		_, err = a.w.Write(text)
	}
	return err
}

// blob adds a blob under its digest.
func (a *archive) blob(mediaType string, text []byte) (descriptor, error) {
	sum := sha256.Sum256(text)
	name := hex.EncodeToString(sum[:])
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: int64(len(text))}, a.add("blobs/sha256/"+name, text)
}

// layer adds a layer from an uncompressed tar.
func (a *archive) layer(from io.Reader, what string) (layer, error) {
	packed, err := os.CreateTemp("", "slipway-layer-")
	if err != nil {
		return layer{}, err
	}
	defer os.Remove(packed.Name())
	defer packed.Close()
	plain, sum := sha256.New(), sha256.New()
	zip, err := gzip.NewWriterLevel(io.MultiWriter(packed, sum), gzip.BestSpeed+3)
	if err != nil {
		return layer{}, err
	}
	if _, err := io.Copy(io.MultiWriter(zip, plain), from); err != nil {
		return layer{}, err
	}
	if err := zip.Close(); err != nil {
		return layer{}, err
	}
	size, err := packed.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = packed.Seek(0, io.SeekStart)
	}
	if err != nil {
		return layer{}, err
	}
	name := hex.EncodeToString(sum.Sum(nil))
	if err := a.header("blobs/sha256/"+name, size); err != nil {
		return layer{}, err
	}
	if _, err := io.Copy(a.w, packed); err != nil {
		return layer{}, err
	}
	return layer{
		descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: "sha256:" + name, Size: size},
		"sha256:" + hex.EncodeToString(plain.Sum(nil)), what,
	}, nil
}

// finish writes the configuration, the manifest and the index.
func (a *archive) finish(i *image, layers []layer) error {
	created := i.date.Format(time.RFC3339)
	var diffs []string
	var history []map[string]string
	var parts []descriptor
	for _, l := range layers {
		diffs, parts = append(diffs, l.diff), append(parts, l.descriptor)
		history = append(history, map[string]string{"created": created, "created_by": l.what})
	}
	settings := maps.Clone(i.kind.config)
	labels := map[string]string{
		"org.opencontainers.image.title": i.kind.title, "org.opencontainers.image.version": i.version, "org.opencontainers.image.created": created,
		"org.opencontainers.image.licenses": "Apache-2.0", // of Slipway only
	}
	if n := i.kind.node; n != nil {
		labels["dev.slipway.node"] = n.version
	}
	settings["Labels"] = labels
	config, err := json.Marshal(map[string]any{
		"created": created, "architecture": i.arch, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs}, "history": history,
		"config": settings,
	})
	if err != nil {
		return err
	}
	of, err := a.blob("application/vnd.oci.image.config.v1+json", config)
	if err != nil {
		return err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	text, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": of, "layers": parts})
	if err != nil {
		return err
	}
	manifest, err := a.blob(manifestType, text)
	if err != nil {
		return err
	}
	manifest.Platform = map[string]string{"architecture": i.arch, "os": "linux"}
	name := i.tag()
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
	if i.kind != &machine { // name for ctr import, equal to podman load's
		manifest.Annotations["io.containerd.image.name"] = "localhost/" + name
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	if err := a.add("index.json", index); err != nil {
		return err
	}
	// Docker before version 25 reads this list instead.
	var files []string
	for _, l := range layers {
		files = append(files, blobFile(l.Digest))
	}
	list, err := json.Marshal([]map[string]any{{"Config": blobFile(of.Digest), "RepoTags": []string{name}, "Layers": files}})
	if err != nil {
		return err
	}
	if err := a.add("manifest.json", list); err != nil {
		return err
	}
	if err := a.w.Close(); err != nil {
		return err
	}
	f := a.f
	a.f = nil
	return f.Close()
}

func blobFile(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

// top returns the last layer, which contains the program.
func (i *image) top() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(at string, mode int64, text []byte) error {
		err := w.WriteHeader(&tar.Header{Name: at, Mode: mode, Size: int64(len(text)), ModTime: i.date, Format: tar.FormatPAX})
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	all := i.programs()
	for _, at := range slices.Sorted(maps.Keys(all)) {
		program, err := os.ReadFile(all[at])
		if err == nil {
			err = add(at, 0o755, program)
		}
		if err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		add("usr/share/doc/slipway/LICENSES.txt", 0o644, []byte(packaging.Licenses())),
		w.Close(), // writes the end of the archive
	)
	return b.Bytes(), err
}
