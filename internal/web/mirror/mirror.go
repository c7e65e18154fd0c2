// Package mirror owns /terraform: the provider for Terraform and OpenTofu, served by the provider network mirror
// protocol.
//
// It serves a release's provider archives from the folder terraform of the data directory: the list of versions, each
// version's archives with their hashes, and the archives themselves. It needs no account, since the protocol has none,
// and writes nothing. Concurrent downloads are limited in total and per network.
package mirror

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/edge/front"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/web/requestinfo"
)

// Limits of concurrent downloads, in total and per network. A machine downloads one file after another.
const (
	allDownloads     = 64
	networkDownloads = 8
)

// Folder is the folder of the files in the data directory.
const Folder = "terraform"

// provider is the path of the provider's files: its source address below the mirror's path.
const provider = "/terraform/slipway.internal/slipway/slipway/"

// absent is the response if the folder doesn't exist.
const absent = "This server doesn't have the Terraform provider. Its operator can add it: see /docs/guides/terraform#install."

// names matches the protocol's file names.
var names = lazyregexp.New(`^(index\.json|\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?\.json|terraform-provider-slipway_[0-9A-Za-z.-]+_[a-z0-9]+_[a-z0-9]+\.zip)$`)

// Serves reports whether a path belongs to the mirror.
func Serves(path string) bool { return path == "/terraform" || strings.HasPrefix(path, "/terraform/") }

// Handler serves the provider from a data directory, even if it is added later. proxies are trusted for clients'
// addresses.
func Handler(dataDir string, proxies front.Proxies) http.Handler {
	// share: total 64 downloads of the Terraform provider at once; owner 8 of a network; edge 429 with Retry-After
	places := fair.New(fair.Config{Places: allDownloads, Owner: networkDownloads})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
			return
		}
		done, ok := places.Try(fair.Who{Owner: requestinfo.Network(proxies.Addr(r))})
		if !ok {
			w.Header().Set("Retry-After", "2")
			http.Error(w, "Too many downloads at once. Try again in a moment.", http.StatusTooManyRequests)
			return
		}
		defer done()
		dir := filepath.Join(dataDir, Folder)
		if _, err := os.Stat(filepath.Join(dir, "index.json")); errors.Is(err, fs.ErrNotExist) {
			http.Error(w, absent, http.StatusNotFound)
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, provider)
		if !ok || !names.MatchString(name) {
			http.Error(w, "Not found. The mirror has the provider slipway.internal/slipway/slipway.", http.StatusNotFound)
			return
		}
		f, err := open(dir, name)
		if err != nil {
			http.Error(w, "The mirror doesn't have this version or platform.", http.StatusNotFound)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			http.Error(w, "The mirror doesn't have this version or platform.", http.StatusNotFound)
			return
		}
		kind := "application/json"
		if strings.HasSuffix(name, ".zip") {
			kind = "application/zip"
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache") // a new release replaces the lists
		http.ServeContent(w, r, name, info.ModTime(), f)
	})
}

// open opens a file in the folder without following links out of it.
func open(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(name)
}
