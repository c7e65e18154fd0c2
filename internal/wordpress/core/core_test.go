package core

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
)

// origin replaces wordpress.org: URL → content.
type origin map[string][]byte

func (o origin) RoundTrip(r *http.Request) (*http.Response, error) {
	body, ok := o[r.URL.String()]
	status := http.StatusOK
	if !ok {
		status = http.StatusNotFound
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

func archiveOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A downloaded release, or an archive that the operator configured, is only used if its checksum is right.
func TestDownloadedCore(t *testing.T) {
	t.Parallel()
	archive := archiveOf(t, map[string]string{
		"wordpress/wp-includes/version.php":             "<?php\n$wp_version = '9.8.7';\n",
		"wordpress/index.php":                           "<?php // the front",
		"wordpress/wp-config-sample.php":                "sample",
		"wordpress/wp-content/languages/de_DE.mo":       "german",
		"wordpress/../../escaped.php":                   "outside",
		"wordpress/wp-content/themes/one/style.css":     "/* Theme Name: One */",
		"wordpress/wp-content/plugins/akismet/akis.php": "<?php",
	})
	sum := sha1.Sum(archive)
	right := hex.EncodeToString(sum[:])
	sum256 := sha256.Sum256(archive)
	for name, tt := range map[string]struct {
		source string
		origin origin
		want   string // part of the error; empty if it works
	}{
		"current": {"", origin{currentSum: []byte(right), currentArchive: archive}, ""},
		"another archive": {
			"",
			origin{currentSum: []byte(right), currentArchive: append([]byte{}, archive[:len(archive)-9]...)},
			"checksum of the downloaded WordPress is wrong",
		},
		"named": {
			"https://mirror.test/wp.tar.gz#sha256=" + hex.EncodeToString(sum256[:]),
			origin{"https://mirror.test/wp.tar.gz": archive},
			"",
		},
		"named, wrong": {
			"https://mirror.test/wp.tar.gz#sha256=" + strings.Repeat("0", 64),
			origin{"https://mirror.test/wp.tar.gz": archive},
			"checksum of the downloaded WordPress is wrong",
		},
		"named, gone": {"https://mirror.test/wp.tar.gz#sha256=" + strings.Repeat("0", 64), origin{}, "can't be downloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			backend, _, err := blob.OpenBackend(filepath.Join(dir, "blobs"), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			bundles, err := bundle.New(bundle.Config{Blobs: blob.New(blob.Config{Backend: backend}), Dir: filepath.Join(dir, "bundles")})
			if err != nil {
				t.Fatal(err)
			}
			cores := New(Config{
				DB:      dbtest.New(t),
				Bundles: bundles,
				Out:     &http.Client{Transport: tt.origin},
				Dir:     filepath.Join(dir, "wordpress"),
				Source:  tt.source,
			})
			c, err := cores.Current(t.Context(), func(string, ...any) {})
			if tt.want != "" {
				if f := fault.As(err); f == nil || !strings.Contains(f.Message, tt.want) {
					t.Fatalf("%v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || c.Version != "9.8.7" {
				t.Fatalf("%+v, %v", c, err)
			}
			got := map[string]bool{}
			for f, err := range bundles.Files(context.Background(), c.Bundle) {
				if err != nil {
					t.Fatal(err)
				}
				got[f.Path] = true
			}
			for path, want := range map[string]bool{
				"public/index.php":                       true,
				"public/wp-config.php":                   true,
				"public/wp-config-sample.php":            false,
				"slipway/languages/de_DE.mo":             true,
				"public/wp-content/languages/de_DE.mo":   false,
				"public/wp-content/themes/one/style.css": true,
				"slipway/tasks/install.php":              true,
				"escaped.php":                            false,
			} {
				if got[path] != want {
					t.Errorf("%s is there: %v", path, got[path])
				}
			}
			_ = filepath.WalkDir(filepath.Dir(dir), func(path string, _ fs.DirEntry, _ error) error {
				if filepath.Base(path) == "escaped.php" && !strings.Contains(
					path,
					"bundles",
				) && !strings.Contains(path, "wordpress/core-") {
					t.Errorf("a file was written to %s", path)
				}
				return nil
			})
			if left, _ := os.ReadDir(filepath.Join(dir, "wordpress")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Variables with the prefix WP_CONFIG_ define WordPress constants, except those that Slipway sets.
func TestConstantsOfSites(t *testing.T) {
	t.Parallel()
	php, err := exec.LookPath("php")
	if err != nil {
		t.Fatal("PHP is needed: apt-get install php-cli")
	}
	dir := t.TempDir()
	config, err := ours.ReadFile("files/wp-config.php")
	if err != nil {
		t.Fatal(err)
	}
	const settings = `<?php foreach (['EMPTY_TRASH_DAYS', 'WP_POST_REVISIONS', 'OWN_TEXT', 'OWN_NUMBER', 'DISALLOW_FILE_EDIT', 'DB_NAME', 'lower', 'ABSPATH', 'SLIPWAY_INSTALLING'] as $name)
		$out[$name] = defined($name) ? constant($name) : null;
	$out['ABSPATH'] = $out['ABSPATH'] === __DIR__ . '/';
	echo json_encode($out);`
	for name, text := range map[string]string{"wp-config.php": string(config), "wp-settings.php": settings} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), php, filepath.Join(dir, "wp-config.php"))
	cmd.Env = []string{
		"SLIPWAY_WP_DATABASE=site", "WP_CONFIG_EMPTY_TRASH_DAYS=7", "WP_CONFIG_WP_POST_REVISIONS=false", "WP_CONFIG_OWN_TEXT=a b", "WP_CONFIG_OWN_NUMBER=007",
		"WP_CONFIG_DISALLOW_FILE_EDIT=false", "WP_CONFIG_DB_NAME=other", "WP_CONFIG_lower=1", "WP_CONFIG_ABSPATH=/",
		"WP_CONFIG_SLIPWAY_INSTALLING=true",
	}
	got, err := cmd.Output()
	want := `{"EMPTY_TRASH_DAYS":7,"WP_POST_REVISIONS":false,"OWN_TEXT":"a b","OWN_NUMBER":"007","DISALLOW_FILE_EDIT":true,"DB_NAME":"site","lower":null,"ABSPATH":true,` +
		`"SLIPWAY_INSTALLING":null}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
