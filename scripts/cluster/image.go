package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// runtimeImage is the image of the tests' programs: this machine's Node.js and PHP, a shell, and the entry point.
const runtimeImage = "localhost/slipway-runtime:test"

// nodeVersion returns the version of the machine's Node.js.
func nodeVersion() string {
	out, _ := exec.Command("node", "--version").Output()
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}

// phpVersion returns the version of the machine's PHP. Names of its files contain the first two numbers.
func phpVersion() (version, minor string) {
	out, _ := exec.Command("php", "-r", "echo PHP_VERSION;").Output()
	version = strings.TrimSpace(string(out))
	parts := strings.SplitN(version, ".", 3)
	return version, strings.Join(parts[:min(len(parts), 2)], ".")
}

func pauseImage(dir string) error {
	return image(filepath.Join(dir, "pause.tar"), "localhost/pause:1", contents{"pause": filepath.Join(dir, "pause")}, "/pause")
}

// contents maps paths in an image to files of this machine.
type contents map[string]string

// put adds a file with the libraries that it needs.
func (c contents) put(at, from string) error {
	c[at] = from
	libraries, err := exec.Command("ldd", from).Output()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", from, err)
	}
	for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(libraries), -1) {
		c[strings.TrimPrefix(m[1], "/")] = m[1]
	}
	return nil
}

// programs adds programs of this machine.
func (c contents) programs(names ...string) error {
	for _, name := range names {
		from, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		at := "usr/bin/" + name
		if strings.HasPrefix(name, "php-fpm") {
			at = "usr/sbin/" + name
		}
		if err := c.put(at, from); err != nil {
			return err
		}
	}
	return nil
}

// glibc adds libraries of glibc that Node.js doesn't need but native modules link with.
func (c contents) glibc() error {
	for _, name := range []string{"librt.so.1", "libresolv.so.2", "libutil.so.1"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		if err != nil || len(found) == 0 {
			return errors.Join(err, errors.New("glibc has no "+name+" here"))
		}
		c[strings.TrimPrefix(found[0], "/")] = found[0]
	}
	return nil
}

// php adds PHP-FPM, the command line and extensions.
func (c contents) php() error {
	_, php := phpVersion()
	if err := c.programs("php"+php, "php-fpm"+php); err != nil {
		return err
	}
	extensions, err := filepath.Glob("/usr/lib/php/20*/*.so")
	if err != nil {
		return err
	}
	for _, at := range extensions {
		if err := c.put(strings.TrimPrefix(at, "/"), at); err != nil {
			return err
		}
	}
	c["usr/share/zoneinfo/UTC"] = "/usr/share/zoneinfo/UTC"
	settings, err := filepath.Glob("/etc/php/" + php + "/*/conf.d/*.ini") // links to files that the image has
	if err != nil {
		return err
	}
	for _, at := range settings {
		c[strings.TrimPrefix(at, "/")] = at
	}
	return nil
}

// tree adds all files and links of a folder.
func (c contents) tree(dir string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		at := strings.TrimPrefix(name, "/")
		if e.Type()&fs.ModeSymlink == 0 {
			c[at] = name
			return nil
		}
		real, err := filepath.EvalSymlinks(name)
		if err == nil {
			c[at] = linkTo + real
		}
		return nil // skip dangling links
	})
}

func images(dir string) error {
	files := contents{"slipway/program": filepath.Join(dir, "slipway-program")}
	if err := errors.Join(files.programs("node", "sh", "env", "sleep", "cat", "ls", "touch", "stty", "tty", "date", "setsid"), files.glibc(), files.php()); err != nil {
		return err
	}
	files["bin/sh"] = files["usr/bin/sh"]
	return errors.Join(image(filepath.Join(dir, "runtime.tar"), runtimeImage, files, "/slipway/program"), imageOfBuilds(dir))
}

// linkTo marks the source of a file as the target of a symbolic link.
const linkTo = "-> "

// image writes an image of one layer.
func image(out, name string, files contents, entry string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return err
	}
	put := func(w *tar.Writer, name string, text []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	for at, from := range files {
		if target, ok := strings.CutPrefix(from, linkTo); ok {
			if err := w.WriteHeader(&tar.Header{Name: at, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(from)
		if err == nil {
			err = put(w, at, text)
		}
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	all := tar.NewWriter(f)
	blob := func(kind string, text []byte) (map[string]any, error) {
		sum := sha256.Sum256(text)
		digest := hex.EncodeToString(sum[:])
		return map[string]any{"mediaType": kind, "digest": "sha256:" + digest, "size": len(text)}, put(all, "blobs/sha256/"+digest, text)
	}
	write := func(kind string, value any) (map[string]any, error) {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		return blob(kind, text)
	}
	const oci = "application/vnd.oci.image."
	data, err := blob(oci+"layer.v1.tar", layer.Bytes())
	if err != nil {
		return err
	}
	config, err := write(oci+"config.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": []string{entry}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{data["digest"]}},
	})
	if err != nil {
		return err
	}
	manifest, err := write(oci+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": config, "layers": []any{data},
	})
	if err != nil {
		return err
	}
	manifest["annotations"] = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	if err != nil {
		return err
	}
	if err := put(all, "index.json", index); err != nil {
		return err
	}
	if err := put(all, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return all.Close()
}
